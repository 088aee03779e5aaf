"""One layer with several passes: the same operation at the same place in the code, run again by a loop."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

from torcheer.errors import LookupKeyError
from torcheer.history import op_text
from torcheer.history.op_view import OpView
from torcheer.record.model import Frame, Layer, Shape
from torcheer.units import counted_text

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.module_view import ParamView


class LayerView:
    """A layer and its passes. What differs from pass to pass must be asked of a pass."""

    __slots__ = ("_history", "_index")

    def __init__(self, history: ModelHistory, index: int) -> None:
        self._history = history
        self._index = index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LayerView):
            return NotImplemented
        return self._index == other._index and self._history.record is other._history.record

    def __hash__(self) -> int:
        return hash((id(self._history.record), "layer", self._index))

    def __repr__(self) -> str:
        return f"<LayerView {self.label}: {counted_text(self.num_passes, 'pass', 'passes')}>"

    def __str__(self) -> str:
        return op_text.describe_layer(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __iter__(self) -> Iterator[OpView]:
        return iter(self.passes)

    def __len__(self) -> int:
        return self.num_passes

    @property
    def history(self) -> ModelHistory:
        """The history it belongs to."""
        return self._history

    @property
    def entry(self) -> Layer:
        """Its entry in the record."""
        return self._history.record.layers[self._index]

    @property
    def label(self) -> str:
        """``add_1_3``."""
        return self.entry.label

    @property
    def layer_label(self) -> str:
        """The same as ``label``."""
        return self.entry.label

    @property
    def layer(self) -> LayerView:
        """Itself."""
        return self

    @property
    def name(self) -> str:
        """``add``."""
        return self.entry.name

    @property
    def passes(self) -> tuple[OpView, ...]:
        """Its operations, in order."""
        return tuple(OpView(self._history, op) for op in self.entry.ops)

    @property
    def num_passes(self) -> int:
        """How many operations it has."""
        return len(self.entry.ops)

    @property
    def function(self) -> str:
        """``torch.add``."""
        return self.passes[0].function

    @property
    def shape(self) -> Shape | None:
        """Shape of the output, where all passes agree."""
        shapes = {view.shape for view in self}
        return shapes.pop() if len(shapes) == 1 else None

    @property
    def dtype(self) -> str | None:
        """Dtype of the output, where all passes agree."""
        dtypes = {view.dtype for view in self}
        return dtypes.pop() if len(dtypes) == 1 else None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the outputs of all passes; None where one is unknown."""
        sizes = [view.size_bytes for view in self]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def params(self) -> tuple[ParamView, ...]:
        """Params and buffers its passes read, each once."""
        return tuple(dict.fromkeys(param for view in self for param in view.params))

    @property
    def parents(self) -> tuple[OpView, ...]:
        """Operations its passes got tensors from, each once; passes of its own among them in a recurrence."""
        return tuple(dict.fromkeys(parent for view in self for parent in view.parents))

    @property
    def children(self) -> tuple[OpView, ...]:
        """Operations that read what its passes made, each once."""
        return tuple(dict.fromkeys(child for view in self for child in view.children))

    @property
    def module(self) -> str:
        """Address of the innermost module it was computed in; empty for the model itself."""
        return self.passes[0].module

    @property
    def source(self) -> Frame | None:
        """The line of the user's code that called it."""
        return self.passes[0].source

    @property
    def time_ns(self) -> int | None:
        """Wall time of all passes; None where one is unknown."""
        times = [view.time_ns for view in self]
        return None if None in times else sum(time for time in times if time is not None)

    @property
    def has_contents(self) -> bool:
        """Whether the contents of all passes are kept."""
        return all(view.has_contents for view in self)

    @property
    def tensor_contents(self) -> Any:
        """Not one tensor: raises an error that tells how to ask for a pass."""
        self._ask_for_a_pass()

    @property
    def gradient(self) -> Any:
        """Not one tensor: raises an error that tells how to ask for a pass."""
        self._ask_for_a_pass()

    @property
    def grad_contents(self) -> Any:
        """The same as ``gradient``."""
        self._ask_for_a_pass()

    @property
    def lookup_keys(self) -> list[str]:
        """Every key of the history that means this layer."""
        return self._history.lookup.keys_of_layer(self._index)

    def _ask_for_a_pass(self) -> NoReturn:
        label, passes = self.label, counted_text(self.num_passes, "pass", "passes")
        raise LookupKeyError(f"{label} has {passes}. Ask for one: history['{label}:1'].")
