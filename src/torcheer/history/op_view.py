"""One operation of a run, as ``history["conv2d_3_7"]`` hands it out.

A view is two words, a history and a number; what it shows is read from the record when asked for. Two views
of the same operation are equal.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from torcheer.errors import NotSavedError
from torcheer.history import frames, op_text
from torcheer.history.arguments import readable
from torcheer.history.aten_view import AtenView, Output
from torcheer.record.frames import source
from torcheer.record.model import Frame, Item, Op, Shape, Value
from torcheer.units import counted_text, shape_text

if TYPE_CHECKING:
    from torcheer.history.layer_view import LayerView
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.module_view import ParamView


class Inflow(NamedTuple):
    """A tensor that flows into an operation."""

    parent: OpView
    value: Value
    how: str  # "argument", or "memory" where another op wrote into memory this one reads
    argument: str  # "0", "1.2", "weight"; "" if not among the arguments


class OpView:
    """One operation; in the user's terms also the layer, where the layer has one pass."""

    __slots__ = ("_history", "_index")

    def __init__(self, history: ModelHistory, index: int) -> None:
        self._history = history
        self._index = index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpView):
            return NotImplemented
        return self._index == other._index and self._history.record is other._history.record

    def __hash__(self) -> int:
        return hash((id(self._history.record), self._index))

    def __repr__(self) -> str:
        shapes = ", ".join(shape_text(output.value.shape) for output in self.outputs) or "no tensor"
        dtype = f" {self.dtype}" if self.dtype else ""
        return f"<OpView {self.label}: {shapes}{dtype}, {'saved' if self.has_contents else 'not saved'}>"

    def __str__(self) -> str:
        return op_text.describe_op(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def history(self) -> ModelHistory:
        """The history it belongs to."""
        return self._history

    @property
    def op(self) -> Op:
        """Its entry in the record."""
        return self._history.record.ops[self._index]

    @property
    def label(self) -> str:
        """``conv2d_3_7``, or ``add_1_3:2`` where the layer has several passes."""
        return self._history.structure.labels[self._index]

    @property
    def layer_label(self) -> str:
        """Label of its layer, without the pass."""
        layer = self.op.layer
        return self._history.record.layers[layer].label if layer >= 0 else self.label

    @property
    def layer(self) -> OpView | LayerView:
        """Its layer: itself where the layer has one pass."""
        return self if self.num_passes == 1 else self._history.layers[self.op.layer]

    @property
    def pass_index(self) -> int:
        """Which pass of its layer it is, from 1."""
        return self.op.pass_index

    @property
    def num_passes(self) -> int:
        """How many passes its layer has."""
        layer = self.op.layer
        return len(self._history.record.layers[layer].ops) if layer >= 0 else 1

    @property
    def passes(self) -> tuple[OpView, ...]:
        """All passes of its layer, itself among them."""
        layer = self.op.layer
        return self._ops(self._history.record.layers[layer].ops if layer >= 0 else (self._index,))

    @property
    def position(self) -> int | None:
        """Its position in the listing; None inside another operation."""
        return self._history.structure.ordinal.get(self._index)

    @property
    def name(self) -> str:
        """``conv2d``."""
        return self.op.name

    @property
    def function(self) -> str:
        """``torch.conv2d``."""
        return self.op.function

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the model."""
        return self.op.kind == "input"

    @property
    def is_output(self) -> bool:
        """Whether it is an output of the model."""
        return self.op.kind == "output"

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The tensors it returned."""
        values = self._history.record.values
        return tuple(Output(item.path, values[item.value]) for item in self._items)

    @property
    def result(self) -> Any:
        """What it returned, where that is plain data and no tensor."""
        return self.op.result

    @property
    def shape(self) -> Shape | None:
        """Shape of its first output."""
        return self.outputs[0].value.shape if self._items else None

    @property
    def dtype(self) -> str | None:
        """Dtype of its first output: ``float32``."""
        return self.outputs[0].value.dtype if self._items else None

    @property
    def device(self) -> str | None:
        """Device of its first output: ``cpu``."""
        return self.outputs[0].value.device if self._items else None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all its outputs; None where one is unknown."""
        sizes = [output.value.size_bytes for output in self.outputs]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def grad_function(self) -> str | None:
        """Autograd node of its first output that has one: ``ConvolutionBackward0``."""
        return next((o.value.grad_function for o in self.outputs if o.value.grad_function), None)

    @property
    def has_contents(self) -> bool:
        """Whether the contents of all its outputs are kept."""
        contents, items = self._history.contents, self._items
        return bool(items) and all(contents.has(item.value) for item in items)

    @property
    def tensor_contents(self) -> Any:
        """Its output tensor; a tuple of tensors where it returned several."""
        if not self._items:
            if self.result is None:
                raise NotSavedError(f"{self.label} returned no tensor. Look at its inputs: .parents.")
            raise NotSavedError(f"{self.label} returned no tensor but {self.result!r}. Read it from .result.")
        if len(self._items) == 1:
            return self.tensor(0)
        return tuple(self.tensor(position) for position in range(len(self._items)))

    def tensor(self, position: int = 0) -> Any:
        """Return the contents of one of its outputs, counted from 0."""
        output = self._output(position)
        contents, what = self._history.contents, f"The contents of {self._what(output)}"
        if contents.has(output.value.index):
            try:
                return contents.read(output.value.index)
            except NotSavedError as error:
                raise NotSavedError(f"{what} are not kept: {error}") from None
        reason = contents.why_not(output.value.index)
        if reason is not None:
            raise NotSavedError(f"{what} are not kept: {reason.rstrip('.')}. Print the layer for what is known of it.")
        raise NotSavedError(f"{what} were not saved. {self.how_to_save}")

    @property
    def how_to_save(self) -> str:
        """What to do to have its contents."""
        # An op inside another is no layer: its tensor cannot be asked for alone.
        asked = f"['{self.layer_label}']" if self.op.layer >= 0 else "'all'"
        return f"Keep it by recording with layers_to_save={asked}"

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient of one of its outputs is kept."""
        contents = self._history.contents
        return any(contents.has_gradient(contents.gradient_of(item.value)) for item in self._items)

    @property
    def gradient(self) -> Any:
        """Gradient of its output; a tuple where it returned several, with None where none arrived."""
        if not self.has_gradient:
            raise NotSavedError(f"{self.label} has no gradient: {self._why_no_gradient()}")
        contents = self._history.contents
        try:
            found = tuple(contents.read_gradient(contents.gradient_of(item.value)) for item in self._items)
        except NotSavedError as error:
            raise NotSavedError(f"The gradient of {self.label} is not kept: {error}") from None
        return found[0] if len(found) == 1 else found

    @property
    def grad_contents(self) -> Any:
        """The same as ``gradient``."""
        return self.gradient

    @property
    def parents(self) -> tuple[OpView, ...]:
        """Operations it got tensors from, each once."""
        return self._ops(self._history.structure.parents[self._index])

    @property
    def children(self) -> tuple[OpView, ...]:
        """Operations that read what it made, each once."""
        return self._ops(self._history.structure.children[self._index])

    @property
    def edges(self) -> tuple[Inflow, ...]:
        """Every tensor that flows into it, and how."""
        history = self._history
        values = history.record.values
        return tuple(
            Inflow(OpView(history, edge.op), values[edge.value], edge.how, edge.argument) for edge in self.op.parents
        )

    @property
    def params(self) -> tuple[ParamView, ...]:
        """Params and buffers it read."""
        return tuple(self._history.params.at(param) for param in self.op.params)

    @property
    def written_params(self) -> tuple[ParamView, ...]:
        """Params and buffers it wrote in place, itself or through a view."""
        return tuple(self._history.params.at(param) for param in self._history.structure.written_params(self._index))

    @property
    def args(self) -> tuple[Any, ...]:
        """Its positional arguments; tensors print as the label of the operation that made them."""
        return tuple(readable(self._history.structure, argument) for argument in self.op.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Its keyword arguments, like ``args``."""
        return {name: readable(self._history.structure, arg) for name, arg in (self.op.kwargs or {}).items()}

    @property
    def aten(self) -> tuple[AtenView, ...]:
        """The ATen operations that ran for it, those of its backward included (``phase`` tells which)."""
        return tuple(AtenView(self._history, index) for index in self.op.aten)

    @property
    def inner(self) -> tuple[OpView, ...]:
        """Operations directly inside it, such as those in the forward of an ``autograd.Function``."""
        return self._ops(self._history.structure.inner.get(self._index, ()))

    @property
    def owner(self) -> OpView | None:
        """The operation it is inside of."""
        owner = self.op.owner
        return None if owner is None else OpView(self._history, owner)

    @property
    def module(self) -> str:
        """Address of the innermost module it was computed in; empty for the model itself."""
        record = self._history.record
        return record.modules[record.calls[self.op.call].module].address

    @property
    def module_calls(self) -> tuple[str, ...]:
        """Module calls around it, outermost first, without the model's own: ``features:1``."""
        structure = self._history.structure
        labels = (structure.call_label(call) for call in structure.call_chain(self.op.call))
        return tuple(label for label in labels if label)

    @property
    def output_of(self) -> tuple[str, ...]:
        """Module calls that returned a tensor it made, innermost first."""
        structure = self._history.structure
        return tuple(structure.call_label(call) for call in structure.outputs_of.get(self._index, ()))

    @property
    def bottom_output_of(self) -> str | None:
        """The module call without calls inside whose output it made, and in which it was computed."""
        structure = self._history.structure
        call = self.op.call
        if call in structure.call_children or call not in structure.outputs_of.get(self._index, ()):
            return None
        return structure.call_label(call)

    @property
    def stack(self) -> tuple[Frame, ...]:
        """Frames from the model's forward down to its call."""
        return frames.stack(self._history.structure, self._index)

    @property
    def source(self) -> Frame | None:
        """The line of the user's code that called it."""
        return source(self.stack)

    @property
    def time_ns(self) -> int | None:
        """Wall time of its call."""
        return self.op.time_ns

    @property
    def backward_time_ns(self) -> int | None:
        """Wall time of its part of the last recorded backward pass."""
        return self.op.backward_time_ns

    @property
    def lookup_keys(self) -> list[int | str]:
        """Every key of the history that means this operation."""
        return self._history.lookup.keys_of(self._index)

    @property
    def _items(self) -> tuple[Item, ...]:
        return self._history.structure.outputs(self._index)

    def _ops(self, indices: tuple[int, ...]) -> tuple[OpView, ...]:
        return tuple(OpView(self._history, index) for index in indices)

    def _output(self, position: int) -> Output:
        outputs = self.outputs
        if not -len(outputs) <= position < len(outputs):
            num_outputs = counted_text(len(outputs), "output tensor")
            raise IndexError(f"{self.label} has {num_outputs}, there is no number {position}")
        return outputs[position]

    def _what(self, output: Output) -> str:
        return f"output {output.path!r} of {self.label}" if len(self.outputs) > 1 else self.label

    def _why_no_gradient(self) -> str:
        if not self._history.record.run.num_backward:
            return "no backward pass was recorded. Call history.log_backward(loss)"
        if not any(output.value.requires_grad for output in self.outputs):
            return "none of its outputs requires grad. Call requires_grad_() on what it reads before the run"
        contents = self._history.contents
        for item in self._items:
            reason = contents.why_no_gradient(contents.gradient_of(item.value))
            if reason is not None:
                return reason
        if not self.has_contents:
            return f"gradients are kept for saved outputs. {self.how_to_save}"
        return "the recorded backward pass did not reach it. Check that the loss depends on it"
