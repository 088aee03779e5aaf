"""Writes ops and layer calls into the record as they happen.

``record/dataflow.py`` turns tensors into edges. What is only bookkeeping (source lines, layers, ranges of calls)
waits for ``finish``, which the first reader of the record asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from torcheer.capture.arguments import tensors_in
from torcheer.capture.asked import OpPreview
from torcheer.capture.paddle.gradients import Gradients
from torcheer.capture.paddle.private import Tensor, has_contents
from torcheer.capture.paddle.structure import Structure
from torcheer.capture.paddle.tensors import Tensors, is_tensor, keep, node_name
from torcheer.capture.sites import Sites
from torcheer.record.dataflow import Dataflow, Maker, edges
from torcheer.record.layers import assign_layers
from torcheer.record.model import Diagnostic, Edge, Item, ModuleCall, Op, Opaque, Record, Ref, Run

_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))


class Function(NamedTuple):
    """What is known of an operator before it is called."""

    name: str  # "conv2d"
    full_name: str  # "paddle._C_ops.conv2d"
    writes: tuple[int, ...]  # places of the arguments it writes to


class Wanted(Protocol):
    """Decides whose results to keep."""

    def wants(self, preview: OpPreview) -> bool: ...


class Recorder:
    """The record of one run, while it is being written."""

    def __init__(self, model: Any, run: Run, wanted: Wanted | None, store: Any) -> None:
        self.model = model
        self.wanted = wanted
        self.store = store
        self.is_paused = False
        self.structure = Structure(model)
        self.record = Record(run, modules=self.structure.modules, params=self.structure.params)
        self.flow = Dataflow()
        self.tensors = Tensors(self.flow, self.structure.origins)
        self.gradients = Gradients()
        self.stop_codes: frozenset[CodeType] = frozenset()
        self.start_ns = perf_counter_ns()
        self._call = 0
        self._owner: int | None = None
        self._counts: dict[int, int] = {}
        self._chains: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        self._root_entered = False
        self._num_listed = 0
        self._is_finished = False

    # -- the model's own call ------------------------------------------------------------------------

    def begin(self, inputs: list[tuple[str, Any]], args: Any, kwargs: Any) -> None:
        """The model is about to be called."""
        for path, tensor in inputs:
            op = self._new_op("input", "input", "input")
            value = self.tensors.made(tensor, Maker(op.index, None), (), kind="input")
            op.outputs = (Item(path, value.index),)
            self._keep(op, value.index, tensor)
            self.gradients.watch_leaf(tensor, value=value.index)
            self._num_listed += 1
        for origin, tensor in self.structure.param_tensors():
            self.gradients.watch_leaf(tensor, param=origin)
        self.start_ns = perf_counter_ns()
        self._open_call(self.model, args, kwargs, None)

    def end(self, output: Any, error: BaseException | None) -> None:
        """The model's call is over."""
        call = self.record.calls[0]
        call.time_ns = perf_counter_ns() - self.start_ns
        if error is not None:
            call.error = f"{type(error).__name__}: {error}"
            return
        call.outputs = self._items(output)
        for path, tensor in _unique(tensors_in(output, is_tensor)):
            number = self.tensors.number_of(tensor)
            shown = self.flow.value_of(number)
            op = self._new_op("output", "output", "output")
            op.args = (Ref(shown),)
            op.parents = tuple(self._lifted(edges(self.flow.read(number), "0", aten=False)))
            op.params = self._params_of([shown])
            value = self.flow.returned(number, Maker(op.index, None))
            op.outputs = (Item(path, value.index),)
            if shown in self.record.saved:
                self.record.saved[value.index] = self.record.saved[shown]
            else:
                self._keep(op, value.index, tensor)

    # -- ops -----------------------------------------------------------------------------------------

    def operation(
        self, function: Function, run: Callable[..., Any], args: Any, kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        """Make a call that the model makes, and write it down."""
        with self._own_work():
            op, found = self._open_operation(function, args, kwargs, frame)
        outer, self._owner = self._owner, op.index
        start = perf_counter_ns()
        try:
            out = run(*args, **kwargs)
        finally:
            end = perf_counter_ns()
            self._owner = outer
            op.start_ns, op.time_ns = start - self.start_ns, end - start
        with self._own_work():
            self._close_operation(op, function, args, found, out)
        self._num_listed += outer is None
        return out

    def _open_operation(
        self, function: Function, args: Any, kwargs: dict[str, Any], frame: FrameType
    ) -> tuple[Op, list[tuple[str, Any]]]:
        """The op before it runs, and the tensors it is given."""
        found: list[tuple[str, Any]] = []
        op = self._new_op("op", _spoken(function.name, args), function.full_name)
        op.args = tuple(self._plain(argument, str(place), found) for place, argument in enumerate(args))
        if kwargs:
            op.kwargs = {name: self._plain(argument, name, found) for name, argument in kwargs.items()}
        numbers = [self.tensors.number_of(tensor) for _, tensor in found]
        sources = [(path, self.flow.read(number)) for (path, _), number in zip(found, numbers, strict=True)]
        op.parents = tuple(self._lifted([edge for path, read in sources for edge in edges(read, path, aten=False)]))
        op.params = self._params_of([self.flow.value_of(number) for number in numbers])
        op.site = self._site(frame)
        return op, found

    def _close_operation(self, op: Op, function: Function, args: Any, found: list[tuple[str, Any]], out: Any) -> None:
        """What it wrote and returned."""
        made = list(tensors_in(out, is_tensor))
        if not made and not found and self.record.ops[-1] is op:
            self.record.ops.pop()  # it asked about something that is no tensor
            return
        written = self._write(op, function, args)
        items = []
        if not made:
            made = [("", tensor) for tensor in written]  # ``y[0] = 1`` returns nothing
        for path, tensor in made:
            if not has_contents(tensor) and tuple(tensor.shape) in {(), (0,)}:
                continue  # stands for an output that this call does not have
            value = self.tensors.made(tensor, Maker(op.index, None), [argument for _, argument in found])
            items.append(Item(path, value.index))
            value.requires_grad = not tensor.stop_gradient
            value.grad_function = _node_of(tensor, (function.full_name, len(found), path))
            self._keep(op, value.index, tensor)
            self.gradients.watch(tensor, value.index)
        op.outputs = tuple(items)
        if not made and isinstance(out, _PLAIN):
            op.result = out

    @contextmanager
    def _own_work(self) -> Iterator[None]:
        """What is called inside is torcheer's own and not the model's."""
        was_paused, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = was_paused

    def _new_op(self, kind: str, name: str, function: str) -> Op:
        op = Op(len(self.record.ops), kind, name, function, self._call, None, owner=self._owner)
        self.record.ops.append(op)
        return op

    def _write(self, op: Op, function: Function, args: tuple[Any, ...]) -> list[Any]:
        written = []
        for place in function.writes:
            target = args[place] if place < len(args) else None
            for tensor in target if isinstance(target, (list, tuple)) else (target,):
                if isinstance(tensor, Tensor):
                    number = self.tensors.number_of(tensor)
                    op.writes += (self.flow.value_of(number),)
                    value = self.flow.wrote(number, Maker(op.index, None))
                    value.requires_grad = not tensor.stop_gradient
                    written.append(tensor)
        return written

    def _lifted(self, found: list[Edge]) -> list[Edge]:
        """Edges as an op at the present level sees them: what other ops hold inside them counts as theirs."""
        ops = self.record.ops
        around = set()
        step = self._owner
        while step is not None:
            around.add(step)
            step = ops[step].owner
        result = []
        for edge in found:
            op = edge.op
            upper = ops[op].owner
            while upper is not None and upper not in around:
                op, upper = upper, ops[upper].owner
            if op not in around:
                result.append(edge._replace(op=op))
        return result

    def _params_of(self, values: list[int]) -> tuple[int, ...]:
        found = (self.flow.values[value].param for value in values)
        return tuple(dict.fromkeys(param for param in found if param is not None))

    def _keep(self, op: Op, value: int, tensor: Any) -> None:
        """Keep the contents of a value if they are wanted."""
        if self.wanted is None:
            return
        facts = self.flow.values[value]
        module = self.record.modules[self.record.calls[op.call].module] if self.record.calls else None
        preview = OpPreview(
            op.name,
            op.function,
            module.address if module is not None else "",
            module.type_name if module is not None else "",
            facts.shape,
            facts.dtype,
            self._num_listed,
        )
        if self.wanted.wants(preview):
            name = f"value.{value}"
            keep(self.store, name, tensor)
            self.record.saved[value] = name

    # -- layer calls ---------------------------------------------------------------------------------

    def layer_call(
        self, run: Callable[..., Any], layer: Any, args: Any, kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        """Make a call of a layer that the model makes, and write it down."""
        if layer is self.model and not self._root_entered:
            # The session has opened the model's own call; this is Layer.__call__ inside it.
            self._root_entered = True
            return run(layer, *args, **kwargs)
        outer = self._call
        with self._own_work():
            call = self._open_call(layer, args, kwargs, frame)
        start = perf_counter_ns()
        call.start_ns = start - self.start_ns
        try:
            out = run(layer, *args, **kwargs)
        except BaseException as raised:
            call.time_ns = perf_counter_ns() - start
            call.error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            self._call = outer
        call.time_ns = perf_counter_ns() - start
        with self._own_work():
            call.outputs = self._items(out)
        return out

    def _open_call(self, layer: Any, args: Any, kwargs: dict[str, Any], frame: FrameType | None) -> ModuleCall:
        module = self.structure.place_of(layer)
        count = self._counts[module] = self._counts.get(module, 0) + 1
        calls = self.record.calls
        parent = self._call if calls else None
        depth = calls[parent].depth + 1 if parent is not None else 0
        call = ModuleCall(len(calls), module, count, parent, depth, None if frame is None else self._site(frame))
        call.inputs = (*self._items(args), *self._items(kwargs))
        call.first_op = call.end_op = len(self.record.ops) if calls else 0
        call.start_ns = 0
        call.training = bool(getattr(layer, "training", False))
        calls.append(call)
        self._call = call.index
        return call

    def _items(self, structure: Any) -> tuple[Item, ...]:
        return tuple(Item(path, self.tensors.value_of(tensor)) for path, tensor in tensors_in(structure, is_tensor))

    # -- arguments and sites -------------------------------------------------------------------------

    def _plain(self, argument: Any, path: str, found: list[tuple[str, Any]]) -> Any:
        """An argument as the record keeps it; the tensors in it are added to ``found``."""
        if isinstance(argument, Tensor):
            found.append((path, argument))
            return Ref(self.tensors.value_of(argument))
        if isinstance(argument, _PLAIN):
            return argument
        if isinstance(argument, (tuple, list)):
            return tuple(self._plain(item, f"{path}.{place}", found) for place, item in enumerate(argument))
        if isinstance(argument, dict):
            return {str(key): self._plain(item, f"{path}.{key}", found) for key, item in argument.items()}
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return slice(*(self._plain(part, path, found) for part in parts))
        if type(argument).__module__.startswith("paddle") and type(argument).__name__ in {"DataType", "VarType"}:
            return str(argument)
        return Opaque(getattr(argument, "__qualname__", None) or type(argument).__qualname__)

    def _site(self, frame: FrameType | None) -> int:
        """Number of the call site: the way from the layer's forward down to the call."""
        chain: list[int] = []
        codes = []
        while frame is not None and frame.f_code not in self.stop_codes:
            code = frame.f_code
            codes.append(code)
            chain += (id(code), frame.f_lasti)
            frame = frame.f_back
        key = tuple(chain)
        number = self._chains.get(key)
        if number is None:
            number = self._chains[key] = len(self._chains)
            self._codes.update((id(code), code) for code in codes)
        return number

    # -- reading -------------------------------------------------------------------------------------

    def finish(self) -> Record:
        """The whole record."""
        record = self.record
        if self._is_finished:
            return record
        self._is_finished = True
        sites = Sites(self._chains, self._codes)
        record.sites = sites.sites
        entries: list[Op | ModuleCall] = [*record.ops, *record.calls]
        for entry in entries:
            if entry.site is not None:
                entry.site = sites.number[entry.site]
        record.values = self.flow.values
        self.structure.refresh()
        self._close_calls()
        assign_layers(record)
        record.diagnostics += [
            Diagnostic(
                "op-not-seen",
                f"A tensor was made by an operation ({node}) that was not seen: its function was kept somewhere "
                "before the capture began, in a list or a closure. The tensor appears as a constant. "
                "Call the function as paddle.… or paddle.nn.functional.… where it is used.",
            )
            for node in self.tensors.unseen_makers
        ]
        return record

    def _close_calls(self) -> None:
        calls = self.record.calls
        for op in self.record.ops:
            call: ModuleCall | None = calls[op.call] if calls else None
            while call is not None:
                call.end_op = max(call.end_op, op.index + 1)
                call = calls[call.parent] if call.parent is not None else None


def _spoken(name: str, args: tuple[Any, ...]) -> str:
    """One operator of Paddle's is two kinds of pooling, told apart by an argument."""
    if name in {"pool1d", "pool2d", "pool3d"}:
        return next((kind + name for kind in args if isinstance(kind, str) and kind in {"max", "avg"}), name)
    return name


_nodes: dict[tuple[str, int, str], str | None] = {}  # of ops by function, number of tensors given, place of the result


def _node_of(tensor: Any, kind: tuple[str, int, str]) -> str | None:
    """The autograd node of a result, by its name."""
    if tensor.stop_gradient or tensor.is_leaf:
        return None
    if kind not in _nodes:
        _nodes[kind] = node_name(tensor)
    return _nodes[kind]


def _unique(found: Any) -> list[tuple[str, Any]]:
    seen: dict[int, tuple[str, Any]] = {}
    for path, tensor in found:
        seen.setdefault(id(tensor), (path, tensor))
    return list(seen.values())
