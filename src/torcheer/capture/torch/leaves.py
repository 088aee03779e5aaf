"""Functions that are one ATen call: what they do at ATen level is known without looking.

``torch.relu(x)`` is ``aten.relu(x)`` and nothing else, so calling Python a second time to be told so only costs time.
That holds while nothing stands between the two levels: autocast, a function transform, forward-mode AD, hooks on what
autograd saves, a mode of the user's. ``FunctionLevel`` asks for all of them before every call. Tensors that are no
plain strided ones are not taken either. Functions that are several ATen calls, always the same, are leaves too
(``composites.py``). ``tests/torch/test_leaves.py`` compares each with what the ATen level sees, and so does
``validate`` for the model it is given (``leaf_proof.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torcheer.capture.torch import composites
from torcheer.capture.torch.kinds import AtenKind, describe
from torcheer.capture.torch.private import (
    C_NAMESPACES,
    any_autocast,
    num_dispatch_modes,
    operators_replaced,
    saved_tensor_hooks,
    transforms,
)
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Ref

Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled


class Leaf(NamedTuple):
    """A function that is one ATen call."""

    kind: AtenKind
    # What the function is given → the ATen call's arguments, or None: called this way it is no leaf. A number: it takes
    # so many tensors and hands them on.
    arguments: Callable[[tuple[Any, ...]], tuple[Any, ...] | None] | int
    saves_result: bool
    is_cast: bool  # autocast may put other calls before it
    is_alone: Callable[..., bool] | None  # is it one call with these arguments? None: always
    func: Any  # keeps the id() of the function its own
    # For a function that is several ATen calls: writes them and returns the result's number.
    write: Callable[[Tape, tuple[Any, ...], Tensor, int], Ref] | None = None


def is_cast_or_hooked(leaf: Leaf) -> bool:
    """May autocast, or hooks on what autograd saves, put calls of their own before or after this one?"""
    return (leaf.is_cast and any_autocast()) or (_is_grad_enabled() and saved_tensor_hooks(False) is not None)


def _two(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A tensor and a tensor or number."""
    return given if len(given) == 2 and type(given[0]) is Ref and type(given[1]) in (Ref, int, float) else None


def _tensor_and_number(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return given if len(given) == 2 and type(given[0]) is Ref and type(given[1]) in (int, float) else None


def _axes(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return given if all(type(axis) is int for axis in given[1:]) else None


def _sizes(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """``x.view(2, 3)`` and ``x.view((2, 3))``."""
    sizes = given[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return (given[0], list(sizes)) if sizes and all(type(size) is int for size in sizes) else None


def _conv2d(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """As ``nn.Conv2d`` calls it."""
    if len(given) != 7 or not all(type(pair) is tuple and len(pair) == 2 for pair in given[3:6]):
        return None
    stride, padding, dilation = map(list, given[3:6])
    return (*given[:3], stride, padding, dilation, False, [0, 0], given[6])


def _is_alone_conv2d(x: Tensor, weight: Tensor, *_: Any) -> bool:
    """With a batch and no complex numbers; and where autograd is looked at, since elsewhere it arrives as a whole."""
    if x.dim() != 4 or x.is_complex() or torch.is_inference_mode_enabled():
        return False
    return not x.is_inference() and not weight.is_inference()


def _is_alone_reshape(x: Tensor, *_: Any) -> bool:
    """Where nothing needs to be copied."""
    return x.is_contiguous() and not torch.is_inference_mode_enabled() and not x.is_inference()


# Of functions that are one call with some tensors only.
_IS_ALONE: dict[Any, Callable[..., bool]] = {torch.conv2d: _is_alone_conv2d, Tensor.reshape: _is_alone_reshape}

_NN = C_NAMESPACES["torch.nn.functional"]
_SAVES_RESULT = frozenset("relu relu_ tanh sigmoid exp sqrt rsqrt".split())
# What no list of autocast's has, for any device.
_NEVER_CAST = frozenset(
    "relu relu_ tanh sigmoid neg gelu silu add add_ sub mul div view expand transpose permute unsqueeze t".split()
)


def _leaves() -> dict[int, Leaf]:
    found: dict[int, Leaf] = {}

    def add(overload: str, arguments: Any, *functions: Any) -> None:
        name, _, variant = overload.partition(".")
        kind = describe(getattr(getattr(torch.ops.aten, name), variant or "default"))
        for func in functions:
            is_alone = _IS_ALONE.get(func)
            found[id(func)] = Leaf(kind, arguments, name in _SAVES_RESULT, name not in _NEVER_CAST, is_alone, func)

    for name in ("relu", "relu_", "tanh", "sigmoid", "exp", "neg", "sqrt", "rsqrt", "cos", "sin", "t"):
        add(name, 1, getattr(torch, name), getattr(Tensor, name))
    for name in ("gelu", "silu"):
        add(name, 1, getattr(_NN, name))
    for name in ("add", "sub", "mul", "div"):
        add(f"{name}.Tensor", _two, getattr(torch, name), getattr(Tensor, name))
    add("add_.Tensor", _two, Tensor.add_)
    add("pow.Tensor_Scalar", _tensor_and_number, torch.pow)
    for name, num_tensors in (("mm", 2), ("bmm", 2), ("addmm", 3)):
        add(name, num_tensors, getattr(torch, name), getattr(Tensor, name))
    add("view", _sizes, Tensor.view)
    add("expand", _sizes, Tensor.expand)
    add("permute", _sizes, Tensor.permute)
    add("transpose.int", _axes, torch.transpose, Tensor.transpose)
    add("unsqueeze", _axes, torch.unsqueeze, Tensor.unsqueeze)
    add("convolution", _conv2d, torch.conv2d)
    add("view", _sizes, Tensor.reshape)
    for func, overload, arguments, is_alone, write in (
        (_NN.linear, "addmm", composites.linear_arguments, composites.is_plain_linear, composites.write_linear),
        (
            torch.batch_norm,
            "native_batch_norm",
            composites.batch_norm_arguments,
            composites.is_plain_batch_norm,
            composites.write_batch_norm,
        ),
        (
            torch.layer_norm,
            "native_layer_norm",
            composites.layer_norm_arguments,
            composites.is_plain_layer_norm,
            composites.write_layer_norm,
        ),
    ):
        kind = describe(getattr(torch.ops.aten, overload).default)
        found[id(func)] = Leaf(kind, arguments, False, True, is_alone, func, write)
    return found


LEAVES: dict[int, Leaf] = _leaves()
_NAMES = composites.NAMES.union(
    leaf.kind.name.replace(".", "/", 1).removesuffix(".default") for leaf in LEAVES.values()
)


def leaves_now() -> dict[int, Leaf]:
    """The leaves, by ``id()`` of the function; none while somebody has put kernels of his own behind ATen operators."""
    if operators_replaced(_NAMES):
        return {}
    if not _tried:
        if num_dispatch_modes() or transforms() is not None or any_autocast() or torch.is_inference_mode_enabled():
            return {}  # whatever is active would be asked too, or change what is seen
        for key in [key for key, leaf in LEAVES.items() if leaf.write is not None]:
            if not composites.holds_here(LEAVES[key].func):
                del LEAVES[key]
        _tried.append(True)
    return LEAVES


_tried: list[bool] = []  # not empty: the composites were tried on this PyTorch
