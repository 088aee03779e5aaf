"""How layers of each framework name and lay out their tensors, told against one common form.

The common form is torch's. A framework whose ``Linear`` keeps its weight the other way round says so here once, and
both weights and gradients are then compared in the same layout. ``register`` adds a layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.side import Leaf

Transform = Callable[[Array], Array]

# Each is its own inverse or has one below, and is linear, so that gradients take the same way as weights.
TRANSFORMS: dict[str, Transform] = {
    "same": lambda array: array,
    "transpose": lambda array: np.ascontiguousarray(np.swapaxes(array, -1, -2)) if array.ndim > 1 else array,
    "flip": lambda array: np.ascontiguousarray(np.flip(array)),
    "flatten": lambda array: np.ascontiguousarray(array).reshape(-1),  # its reader knows the shape it had
}


def transform(name: str) -> Transform:
    """The transform of this name; ``"axes 2,3,1,0"`` brings the axes into this order, ``"row"``
    makes a vector the row of a matrix."""
    if name.startswith("axes "):
        axes = tuple(int(axis) for axis in name.removeprefix("axes ").split(","))
        return lambda array: np.ascontiguousarray(np.transpose(array, axes))
    if name == "row":
        return lambda array: array.reshape(1, -1)
    return TRANSFORMS[name]


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of layer in one framework, told against the common form."""

    kind: str  # of the common form: "linear", "batchnorm"
    names: Mapping[str, str] = field(default_factory=dict)  # name in the framework → name in the common form
    transforms: Mapping[str, str] = field(default_factory=dict)  # name in the framework → name in TRANSFORMS
    skipped: tuple[str, ...] = ()  # tensors without a counterpart that change no output
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name in the framework → what it joins, in rows


VARIANCES = ("running_var", "_variance", "moving_variance")
MEANS = ("running_mean", "_mean", "moving_mean")
COUNTERS = ("num_batches_tracked",)
STATISTICS = (*VARIANCES, *MEANS, *COUNTERS)  # buffers that training moves

_FORMS: dict[tuple[str, str], Form] = {}
_NORMS = re.compile(r"^(batchnorm|instancenorm|syncbatchnorm)(\d+d)?$")


def register(framework: str, type_name: str, form: Form) -> None:
    """Tell how a kind of layer is laid out in a framework: ``register("paddle", "Linear", Form("linear", …))``."""
    for name, transform in form.transforms.items():
        if transform not in TRANSFORMS:
            raise ValueError(f"{transform!r} for {type_name}.{name} is none of {', '.join(TRANSFORMS)}")
    _FORMS[framework, type_name] = form


def form_of(framework: str, leaf: Leaf) -> Form:
    """The form of a leaf; one that nobody registered is in the common form already, under its own name."""
    known = _FORMS.get((framework, leaf.type_name))
    if known is not None:
        return known
    kind = leaf.type_name.lower().replace("_", "")
    norm = _NORMS.match(kind)
    return Form(norm[1].removeprefix("sync") if norm else kind, skipped=COUNTERS)


def common_shape(transform: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in the common form."""
    if transform == "transpose" and len(shape) > 1:
        return (*shape[:-2], shape[-1], shape[-2])
    return (math.prod(shape),) if transform == "flatten" else tuple(shape)


def cell(kind: str) -> Form:
    """A recurrent cell: it has the tensors of a recurrent layer of one layer and one direction."""
    parts = [f"{what}_{gate}" for what in ("weight", "bias") for gate in ("ih", "hh")]
    return Form(kind, names={part: f"{part}_l0" for part in parts})


register("torch", "Conv1D", Form("linear", transforms={"weight": "transpose"}))  # Hugging Face's, of GPT-2
register("torch", "NonDynamicallyQuantizableLinear", Form("linear"))
register(
    "torch",
    "MultiheadAttention",
    Form(
        "multiheadattention",
        names={f"{part}_proj_weight": f"{part}_proj.weight" for part in "qkv"},
        joins={
            f"in_proj_{name}": tuple(f"{part}_proj.{name}" for part in "qkv")  # three projections in one tensor
            for name in ("weight", "bias")
        },
    ),
)
register("torch", "LayerNorm", Form("layernorm", transforms={"weight": "flatten", "bias": "flatten"}))
register("torch", "Bilinear", Form("bilinear", transforms={"bias": "flatten"}))
register("torch", "RNNCell", cell("rnn"))
register("torch", "LSTMCell", cell("lstm"))
register("torch", "GRUCell", cell("gru"))
