"""What a framework offers so that its models can be compared: the one seam through which ``diff`` runs models.

A side is one model with its inputs bound. Everything that crosses the seam is plain: numpy arrays by address, leaf
modules as data, and the record with its contents. ``capture/torch/side.py`` is one; Paddle's is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torcheer.diff.arrays import Array
from torcheer.errors import ComparisonError
from torcheer.record.model import Op, Record
from torcheer.record.payload import Payloads

Weights = Mapping[str, Array]  # by address: "features.0.weight"


class Recording(NamedTuple):
    """One run: its record and the contents of its tensors."""

    record: Record
    payloads: Payloads


@dataclass(frozen=True, slots=True)
class Leaf:
    """A module with tensors of its own, or without children: what parameters are mapped by."""

    address: str  # "features.0"
    type_name: str  # "Conv2d", "Linear", "BatchNorm1D"
    attributes: Mapping[str, Any] = field(default_factory=dict)  # public, plain data: {"in_features": 100}
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # own params and buffers: name → shape
    description: str = ""  # as the framework prints it: "Linear(in_features=100, out_features=10, bias=True)"
    trained: tuple[str, ...] = ()  # names of those tensors that are parameters
    constants: tuple[str, ...] = ()  # names of buffers that no training moves: masks, tables of positions


class Side(Protocol):
    """One model with its inputs, of whichever framework. Nothing here leaves traces after ``restore``."""

    @property
    def framework(self) -> str:
        """``"torch"``, ``"paddle"``."""

    def leaves(self) -> list[Leaf]:
        """Leaf modules in the order of their definition, each once."""

    def weights(self) -> dict[str, Array]:
        """Return copies of params and buffers by address, each tensor once."""

    def set_weights(self, weights: Weights) -> None:
        """Write these params and buffers, and leave the others as they are. Shapes fit."""

    def record_forward(self) -> Recording:
        """Run the model and record it, with the contents of all its tensors, parameters included.

        It draws the random numbers that were next when the side was made: so do two sides made one after the other.
        """

    @property
    def output(self) -> Any:
        """What the model returned in the last forward, as the framework has it."""

    def record_unfused(self) -> Recording:
        """Run the model again from the same state, without fused kernels, where the framework can do that."""

    def record_noisy(self, *, unfused: bool = False) -> Recording | None:
        """Run it again with every result off by a rounding error; None where the framework cannot do that."""

    def run_layer(self, address: str, inputs: list[Array]) -> list[Array]:
        """Run one layer by itself on these positional inputs; return the tensors it returns."""

    def backward(self, cotangents: list[Array] | None) -> dict[str, Array | None]:
        """Run backward from the outputs of the last forward; return gradients by parameter.

        ``cotangents``: the gradient of each floating output, in order, used where the user gave no loss.
        """

    def step(self) -> None:
        """One step of the user's optimizer, or of plain gradient descent where none was given."""

    def optimizer_state(self) -> dict[str, Array]:
        """Return state by parameter and name: ``"fc.weight/exp_avg"``; empty where there is none."""

    def restore(self) -> None:
        """Put weights, buffers, modes and random state back as they were when the side was made."""


@runtime_checkable
class CanReplay(Protocol):
    """A side that can make one recorded call again."""

    def replay(self, call: Op, contents: Mapping[int, Array]) -> list[Array] | None:
        """Return the tensors of a call on these contents of the values it read; None where it cannot be told."""


def check_optimizer(optimizer: Any, expected: type, framework: str) -> None:
    """Raise ``ComparisonError`` unless this is None or an optimizer of the side's own framework."""
    if optimizer is not None and not isinstance(optimizer, expected):
        raise ComparisonError(
            f"optimizers: the {framework} model was given a {type(optimizer).__module__}."
            f"{type(optimizer).__qualname__}. "
            "Pass one optimizer per model, in the order of the models: optimizers=(first, second)."
        )


def check_loss(loss: Any, expected: type, framework: str) -> Any:
    """Raise ``ComparisonError`` unless a user's function has made a tensor of the side's own framework."""
    if not isinstance(loss, expected):
        raise ComparisonError(
            f"loss_fn returned a {type(loss).__qualname__} for the {framework} model. It takes what the model returns "
            f"and returns a {framework} tensor. Where one function cannot serve both, pass loss_fn=(first, second)."
        )
    return loss
