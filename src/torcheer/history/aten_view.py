"""One ATen operation of a run: what a call people recognise does underneath."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torcheer.record.model import Op, Value
from torcheer.units import shape_text

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_view import OpView


class Output(NamedTuple):
    """One tensor an operation returned."""

    path: str  # where it sat in what was returned: "" for a bare tensor, else such as "0"
    value: Value


class AtenView:
    """One ATen operation, of the forward or of a backward pass."""

    __slots__ = ("_history", "_index")

    def __init__(self, history: ModelHistory, index: int) -> None:
        self._history = history
        self._index = index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AtenView):
            return NotImplemented
        return self._index == other._index and self._history.record is other._history.record

    def __hash__(self) -> int:
        return hash((id(self._history.record), "aten", self._index))

    def __repr__(self) -> str:
        shapes = ", ".join(shape_text(output.value.shape) for output in self.outputs) or "no tensor"
        return f"<AtenView {self.function}: {shapes}, {self.phase}>"

    @property
    def op(self) -> Op:
        """Its entry in the record."""
        return self._history.record.aten[self._index]

    @property
    def function(self) -> str:
        """``aten.convolution.default``."""
        return self.op.function

    @property
    def phase(self) -> str:
        """``forward``, ``backward`` or ``recompute``."""
        return self.op.phase

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The tensors it returned."""
        values = self._history.record.values
        return tuple(Output(item.path, values[item.value]) for item in self.op.outputs)

    @property
    def owner(self) -> OpView | None:
        """The operation that caused it; None where its module did, as for scripted code."""
        owner = self.op.owner
        return None if owner is None else self._history.op_view(owner)

    @property
    def module(self) -> str:
        """Address of the innermost module it ran for."""
        record = self._history.record
        return record.modules[record.calls[self.op.call].module].address

    @property
    def parents(self) -> tuple[AtenView, ...]:
        """ATen operations it got tensors from, each once."""
        found = dict.fromkeys(edge.op for edge in self.op.parents)
        return tuple(AtenView(self._history, index) for index in found)

    @property
    def node(self) -> str | None:
        """The autograd node that ran it, in a backward pass."""
        return self.op.node

    @property
    def time_ns(self) -> int | None:
        """Wall time of its call."""
        return self.op.time_ns
