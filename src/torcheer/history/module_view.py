"""Modules, their calls and their params, as ``history.modules["features.6"]`` hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torcheer.errors import NotSavedError
from torcheer.history.op_view import OpView
from torcheer.record.model import Item, Module, ModuleCall, Param, Shape
from torcheer.units import bytes_text, count_text, counted_text, seconds_text, shape_text

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory


class _Entry:
    """A view on one row of one table of the record."""

    __slots__ = ("_history", "_index")

    def __init__(self, history: ModelHistory, index: int) -> None:
        self._history = history
        self._index = index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Entry) or type(other) is not type(self):
            return NotImplemented
        return self._index == other._index and self._history.record is other._history.record

    def __hash__(self) -> int:
        return hash((id(self._history.record), type(self).__name__, self._index))


class ParamView(_Entry):
    """A parameter or buffer of the model."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ParamView {self.address}: {shape_text(self.shape)} {self.dtype}, {self.kind}>"

    @property
    def entry(self) -> Param:
        """Its entry in the record."""
        return self._history.record.params[self._index]

    @property
    def address(self) -> str:
        """``features.6.weight``."""
        return self.entry.address

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further addresses of the same tensor."""
        return self.entry.aliases

    @property
    def kind(self) -> str:
        """``param`` or ``buffer``."""
        return self.entry.kind

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self.entry.shape

    @property
    def dtype(self) -> str:
        """``float32``."""
        return self.entry.dtype

    @property
    def device(self) -> str:
        """``cpu``."""
        return self.entry.device

    @property
    def size_bytes(self) -> int | None:
        """Its bytes."""
        return self.entry.size_bytes

    @property
    def num_elements(self) -> int | None:
        """How many numbers it holds."""
        return self.entry.num_elements

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self.entry.requires_grad

    @property
    def used_by(self) -> tuple[OpView, ...]:
        """Operations that read it."""
        users = self._history.structure.param_users.get(self._index, ())
        return tuple(OpView(self._history, op) for op in users)

    @property
    def has_gradient(self) -> bool:
        """Whether its gradient is kept."""
        contents = self._history.contents
        return contents.has_gradient(contents.gradient_of_param(self._index))

    @property
    def gradient(self) -> Any:
        """Its gradient in the last recorded backward pass."""
        if self.has_gradient:
            contents = self._history.contents
            try:
                return contents.read_gradient(contents.gradient_of_param(self._index))
            except NotSavedError as error:
                raise NotSavedError(f"The gradient of {self.address} is not kept: {error}") from None
        raise NotSavedError(f"{self.address} has no gradient: {self._why_no_gradient()}")

    def _why_no_gradient(self) -> str:
        contents = self._history.contents
        if not self.requires_grad:
            return "it does not require grad. Call requires_grad_() on it before the run"
        if not self._history.record.run.num_backward:
            return "no backward pass was recorded. Call history.log_backward(loss)"
        reason = contents.why_no_gradient(contents.gradient_of_param(self._index))
        return reason or "the recorded backward pass did not reach it. Check that the loss depends on it"


class CallView(_Entry):
    """One call of a module."""

    __slots__ = ()

    def __repr__(self) -> str:
        name = self.label or "the model itself"
        return f"<CallView {name}: {counted_text(len(self.ops), 'operation')}, {seconds_text(self.time_ns)}>"

    @property
    def entry(self) -> ModuleCall:
        """Its entry in the record."""
        return self._history.record.calls[self._index]

    @property
    def label(self) -> str:
        """``features.6:1``; empty for the model's own call."""
        return self._history.structure.call_label(self._index)

    @property
    def call_index(self) -> int:
        """Which call of its module it is, from 1."""
        return self.entry.call_index

    @property
    def module(self) -> ModuleView:
        """The module called."""
        return ModuleView(self._history, self.entry.module)

    @property
    def parent(self) -> CallView | None:
        """The call it happened in."""
        parent = self.entry.parent
        return None if parent is None else CallView(self._history, parent)

    @property
    def children(self) -> tuple[CallView, ...]:
        """Calls made directly inside it."""
        children = self._history.structure.call_children.get(self._index, ())
        return tuple(CallView(self._history, call) for call in children)

    @property
    def ops(self) -> tuple[OpView, ...]:
        """All operations inside it, those of calls inside included."""
        span = range(self.entry.first_op, self.entry.end_op)
        ordinal = self._history.structure.ordinal
        return tuple(OpView(self._history, op) for op in span if op in ordinal)

    @property
    def output_ops(self) -> tuple[OpView, ...]:
        """Operations that made what it returned."""
        made = self._history.structure.producers(self.entry.outputs)
        return tuple(OpView(self._history, op) for op in made)

    @property
    def inputs(self) -> tuple[Item, ...]:
        """Tensors it was given: path and index into ``record.values``."""
        return self.entry.inputs

    @property
    def outputs(self) -> tuple[Item, ...]:
        """Tensors it returned: path and index into ``record.values``."""
        return self.entry.outputs

    @property
    def training(self) -> bool:
        """Whether the module was in training mode."""
        return self.entry.training

    @property
    def time_ns(self) -> int | None:
        """Wall time of the call."""
        return self.entry.time_ns

    @property
    def error(self) -> str | None:
        """The exception that ended it."""
        return self.entry.error


class ModuleView(_Entry):
    """A module of the model, called or not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ModuleView {self.address or 'the model itself'}: {self.type_name}({self.extra})>"

    def __str__(self) -> str:
        own = sum(param.num_elements or 0 for param in self.params if param.kind == "param")
        size = sum(param.size_bytes or 0 for param in self.params if param.kind == "param")
        outputs = ", ".join(op.label for op in self.output_ops) or "none"
        children = ", ".join(child.address for child in self.children) or "none"
        return (
            f"Module {self.address or '(the model itself)'}: {self.type_name}({self.extra})\n"
            f"\tMode: {'training' if self.training else 'evaluation'}\n"
            f"\tParams: {count_text(own)} of its own ({bytes_text(size)})\n"
            f"\tCalls: {count_text(len(self.calls))}, {seconds_text(self.time_ns)}\n"
            f"\tOutputs: {outputs}\n"
            f"\tModules inside: {children}"
        )

    @property
    def entry(self) -> Module:
        """Its entry in the record."""
        return self._history.record.modules[self._index]

    @property
    def address(self) -> str:
        """``features.6``; empty for the model itself."""
        return self.entry.address

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further addresses of the same module."""
        return self.entry.aliases

    @property
    def type_name(self) -> str:
        """``Conv2d``."""
        return self.entry.type_name

    @property
    def qualified_type(self) -> str:
        """``torch.nn.modules.conv.Conv2d``."""
        return self.entry.qualified_type

    @property
    def extra(self) -> str:
        """Its settings as it prints them: ``64, 192, kernel_size=(5, 5)``."""
        return self.entry.extra

    @property
    def attributes(self) -> dict[str, Any]:
        """Its public plain attributes."""
        return self.entry.attributes

    @property
    def training(self) -> bool:
        """Whether it was in training mode."""
        return self.entry.training

    @property
    def params(self) -> tuple[ParamView, ...]:
        """Its own params and buffers, without those of modules inside."""
        return tuple(ParamView(self._history, param) for param in self.entry.params)

    @property
    def parent(self) -> ModuleView | None:
        """The module that holds it."""
        parent = self.entry.parent
        return None if parent is None else ModuleView(self._history, parent)

    @property
    def children(self) -> tuple[ModuleView, ...]:
        """The modules it holds directly."""
        children = self._history.structure.module_children.get(self._index, ())
        return tuple(ModuleView(self._history, module) for module in children)

    @property
    def calls(self) -> tuple[CallView, ...]:
        """Its calls, in order."""
        calls = self._history.structure.module_calls.get(self._index, ())
        return tuple(CallView(self._history, call) for call in calls)

    @property
    def output_ops(self) -> tuple[OpView, ...]:
        """Operations that made what its calls returned, each once."""
        return tuple(dict.fromkeys(op for call in self.calls for op in call.output_ops))

    @property
    def time_ns(self) -> int | None:
        """Wall time of all its calls; None where one is unknown."""
        times = [call.time_ns for call in self.calls]
        return None if None in times else sum(time for time in times if time is not None)
