"""Tape → record. Runs when the record is first read, not while the model runs.

Events are replayed in order through ``record/dataflow.py``, which turns tensors into edges; then
``record/layers.py`` names the layers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.capture.sites import Sites
from torcheer.capture.torch.diagnose import diagnose
from torcheer.capture.torch.events import ATEN, CALL, INPUT, OP, OUTPUT, AtenEvent, CallEvent, OpEvent
from torcheer.capture.torch.finish_values import Values, refs_in
from torcheer.capture.torch.kinds import written_arguments
from torcheer.capture.torch.names import function_name, short_name
from torcheer.capture.torch.structure import Structure, describe_structure
from torcheer.capture.torch.tape import Tape
from torcheer.record.dataflow import Maker, edges
from torcheer.record.layers import assign_layers
from torcheer.record.model import Edge, ModuleCall, Op, Part, Record, Ref, Run, Value


class Finisher:
    """Builds the record of one tape."""

    def __init__(self, tape: Tape, structure: Structure, run: Run) -> None:
        self.tape = tape
        self.structure = structure
        self.record = Record(run)
        self.values = Values(tape, self.record)
        self.sites = Sites(tape.sites, tape.codes)
        self.flow = self.values.flow
        self.op_of: dict[int, int] = {}  # event → index into record.ops
        self.call_of: dict[int, int] = {-1: 0}
        self.op_of_wrapper: dict[int, OpEvent] = {}
        self.input_values: dict[int, int] = {}
        self.module_of: dict[int, int] = {}  # call event → id() of its module
        self._names: dict[int, tuple[str, str]] = {}
        self._last_aten: dict[int, int] = {}
        self._seq = tape.first_seq  # next autograd sequence number, as far as replayed
        self._call_counts: dict[int, int] = {}

    # -- whole ---------------------------------------------------------------------------------------

    def build(self, inputs: list[tuple[str, Ref]], outputs: list[tuple[str, Ref]]) -> Record:
        """The record, from the model's inputs to its outputs."""
        record = self.record
        record.modules, record.params, self.values.param_refs = describe_structure(self.structure, self.tape)
        self._input_ops(inputs)
        self._events()
        self._output_ops(outputs)
        record.values = self.flow.values
        record.sites = self.sites.sites
        self._close_calls()
        record.parts = self.new_parts() + self._param_parts()
        assign_layers(record)
        record.diagnostics = diagnose(self.tape, record)
        return record

    def new_parts(self) -> list[Part]:
        """What this process has of the tensors that have turned out, since last asked, to be spread over several."""
        found, self.values.parts = self.values.parts, []
        return [part._replace(value=value.index) for value, part in found]

    def _param_parts(self) -> list[Part]:
        known = self.tape.param_parts
        return [
            known[param.address]._replace(param=index)
            for index, param in enumerate(self.record.params)
            if param.address in known
        ]

    def _input_ops(self, inputs: list[tuple[str, Ref]]) -> None:
        for path, ref in inputs:
            op = self._new_op("input", "input", "input", call=0)
            if self.flow.knows(ref):
                value = self.flow.returned(ref, Maker(op.index, None))
            else:
                value = self.values.introduce(ref, "input", Maker(op.index, None), is_view=False)
            op.outputs = (self.values.item(path, value.index),)
            self.input_values[ref] = value.index
            self.values.saved(INPUT, ref, value.index)

    def _output_ops(self, outputs: list[tuple[str, Ref]]) -> None:
        reads = []
        for _, ref in outputs:
            self.values.ensure(ref)
            reads.append((self.flow.value_of(ref), self.flow.read(ref), self.flow.maker_of(ref).aten))
        # All are read before any is made: a tensor returned twice comes both times from the model's last op.
        for (path, ref), (shown, read, aten) in zip(outputs, reads, strict=True):
            op = self._new_op("output", "output", "output", call=0)
            op.args = (Ref(shown),)
            op.parents = tuple(self._lifted(edges(read, "0", aten=False), None))
            op.params = self.values.params_of((shown,))
            self.values.saved(OUTPUT, ref, shown)
            value = self.flow.returned(ref, Maker(op.index, aten))
            op.outputs = (self.values.item(path, value.index),)
            if shown in self.record.saved:
                self.record.saved[value.index] = self.record.saved[shown]

    def _events(self) -> None:
        open_ends: list[tuple[int, int, Any]] = []
        for index, raw in enumerate(self.tape.events[: self.tape.forward_end]):
            while open_ends and open_ends[-1][0] <= index:
                self._close(*open_ends.pop()[1:])
            if type(raw) is not tuple:
                continue  # it never ended: the run was cut off inside it
            if raw[0] == ATEN:
                self._aten(index, AtenEvent(*raw))
            elif raw[0] == OP:
                event = OpEvent._make(raw)
                self._open_op(index, event)
                open_ends.append((event.end, index, event))
            else:
                call = CallEvent._make(raw)
                self._open_call(index, call)
                open_ends.append((call.end, index, call))
        while open_ends:
            self._close(*open_ends.pop()[1:])

    def _close(self, index: int, event: OpEvent | CallEvent) -> None:
        if isinstance(event, OpEvent):
            self._close_op(index, event)
        else:
            self.record.calls[self.call_of[index]].outputs = self.values.same_items(self.values.items(event.out))
            for _, ref in refs_in(event.out):
                self.values.saved(index, ref, self.flow.value_of(ref))

    # -- function level ------------------------------------------------------------------------------

    def _new_op(self, kind: str, name: str, function: str, call: int) -> Op:
        op = Op(len(self.record.ops), kind, name, function, call, None)
        self.record.ops.append(op)
        return op

    def _open_op(self, index: int, event: OpEvent) -> None:
        if self._is_wrapper(index, event):
            self.op_of_wrapper[index] = event
            owner = self.op_of.get(event.owner)
            if owner is not None:
                self.op_of[index] = owner
            return
        name, function = self._name(event.func)
        op = self._new_op("op", name, function, self.call_of[event.call])
        self.op_of[index] = op.index
        op.owner = self.op_of.get(event.owner)
        op.site = self.sites.number[event.site]
        op.start_ns = event.start_ns - self.tape.start_ns
        op.time_ns = event.end_ns - event.start_ns
        op.seq = (event.seq, event.seq_end) if event.seq_end > event.seq else None
        self._seq = max(self._seq, event.seq_end)
        refs: list[tuple[str, Ref]] = []
        op.args = self.values.arguments(event.args, refs)
        if event.kwargs:
            op.kwargs = self.values.keywords(event.kwargs, refs)
        found: list[Edge] = []
        for path, ref in refs:
            found += edges(self.flow.read(ref), path, aten=False)
        op.parents = tuple(self._lifted(found, op.owner))
        op.params = self.values.params_of([self.flow.value_of(ref) for _, ref in refs])

    def _is_wrapper(self, index: int, event: OpEvent) -> bool:
        """An autograd.Function that calls modules (reentrant checkpointing): what it wraps are the ops."""
        return isinstance(event.func, type) and any(
            type(raw) is tuple and raw[0] == CALL for raw in self.tape.events[index + 1 : event.end]
        )

    def _close_op(self, index: int, event: OpEvent) -> None:
        if index in self.op_of_wrapper:
            for ref, kind, seq, output in event.nodes:
                if self.flow.knows(ref):
                    value = self.flow.values[self.flow.value_of(ref)]
                    value.grad_function, value.node_seq, value.node_output = kind.__name__, seq, output
                    value.requires_grad = True
            return
        op = self.record.ops[self.op_of[index]]
        if event.error is not None:
            return
        nodes = {node[0]: node for node in event.nodes}
        items = []
        for path, ref in refs_in(event.out):
            value = self._output_value(op, ref)
            node = nodes.get(ref)
            if node is not None:
                value.grad_function, value.node_seq, value.node_output = node[1].__name__, node[2], node[3]
                value.requires_grad = True
            items.append(self.values.item(path, value.index))
            self.values.saved(index, ref, value.index)
        op.outputs = self.values.same_items(items)
        if self.values.kept:
            for _, ref in [*refs_in(event.args), *refs_in(event.kwargs)]:
                self.values.saved(index, ref, self.flow.value_of(ref))
        if not items and event.out is not None:
            op.result = self.values.plain(event.out, "", [])

    def _output_value(self, op: Op, ref: Ref) -> Value:
        flow = self.flow
        aten = self._last_aten.get(op.index)
        if not flow.knows(ref):
            return self.values.introduce(ref, "activation", Maker(op.index, aten), is_view=True)
        maker = flow.maker_of(ref)
        if maker.op == op.index:
            return flow.values[flow.value_of(ref)]
        return flow.returned(ref, Maker(op.index, maker.aten))

    # -- ATen level ----------------------------------------------------------------------------------

    def _aten(self, index: int, event: AtenEvent) -> None:
        owner = self.op_of.get(event.owner)
        if owner is not None:
            op = self.add_aten(event, owner)
            if self.values.kept:
                self._saved_inside(index, event, op)
            return
        # Scripted, exported or otherwise compiled code: no Python call to belong to.
        short, name = self._name_of_aten(event)
        upper = self._new_op("op", short, name, self.call_of[event.call])
        op = self.add_aten(event, upper.index)
        upper.args, upper.kwargs, upper.outputs, upper.writes = op.args, op.kwargs, op.outputs, op.writes
        if event.seq is not None and event.seq > self._seq:
            # The node is made before the call reaches this level.
            upper.seq = (self._seq, event.seq)
            self._seq = event.seq
            for output, item in enumerate(op.outputs):
                value = self.flow.values[item.value]
                value.node_seq, value.node_output, value.requires_grad = event.seq - 1, output, True
        for _, ref in refs_in(event.out):
            self.values.saved(index, ref, self.flow.value_of(ref))

    def _saved_inside(self, index: int, event: AtenEvent, op: Op) -> None:
        """Contents that were kept at ATen level: results, and tensors that come from outside the run."""
        for _, ref in refs_in(event.args):
            value = self.flow.value_of(ref)
            if self.flow.values[value].kind == "constant":
                self.values.saved(index, ref, value)
        for (_, ref), item in zip(refs_in(event.out), op.outputs, strict=True):
            self.values.saved(index, ref, item.value)

    def add_aten(self, event: AtenEvent, owner: int | None, phase: str = "forward") -> Op:
        record = self.record
        call = record.ops[owner].call if owner is not None else self.call_of[event.call]
        short, name = self._name_of_aten(event)
        op = Op(len(record.aten), "op", short, name, call, None, owner=owner, phase=phase, node=event.node)
        record.aten.append(op)
        refs: list[tuple[str, Ref]] = []
        op.args = self.values.arguments(event.args, refs)
        if event.kwargs:
            op.kwargs = self.values.keywords(event.kwargs, refs)
        sources = [(path, self.flow.read(ref)) for path, ref in refs]
        op.params = self.values.params_of([self.flow.value_of(ref) for _, ref in refs])
        op.parents = tuple(edge for path, found in sources for edge in edges(found, path, aten=True))
        upper = record.ops[owner] if owner is not None and phase == "forward" else None
        if owner is not None:
            record.ops[owner].aten += (op.index,)
        if upper is not None:
            found = [edge for path, read in sources for edge in edges(read, path, aten=False)]
            self._read_inside(upper, found, op)
            self._last_aten[upper.index] = op.index
        maker = Maker(owner, op.index)
        op.writes = self._write(event, maker)
        while upper is not None and op.writes:
            upper.writes += op.writes
            upper = record.ops[upper.owner] if upper.owner is not None else None
        self._return(event, op, maker)
        return op

    def _read_inside(self, upper: Op, found: list[Edge], op: Op) -> None:
        """What an ATen op reads from outside the ops around it flows into them too."""
        if not found and not op.params:
            return
        known = {(edge.op, edge.value) for edge in upper.parents}
        target: Op | None = upper
        while target is not None:
            fresh = [
                edge._replace(argument="" if target.aten[:-1] or target.args else edge.argument)
                for edge in self._lifted(found, target.owner)
                if edge.op < target.index and (edge.op, edge.value) not in known
            ]
            if fresh:
                target.parents += tuple(fresh)
                read = target.inputs
                new = dict.fromkeys(edge.value for edge in fresh)
                target.hidden += tuple(value for value in new if value not in read)
            extra = tuple(param for param in op.params if param not in target.params)
            target.params += extra
            target = self.record.ops[target.owner] if target.owner is not None else None
            known = {(edge.op, edge.value) for edge in target.parents} if target is not None else set()

    def _write(self, event: AtenEvent, maker: Maker) -> tuple[int, ...]:
        written = []
        for place in written_arguments(event.kind, event.args):
            if isinstance(place, int):
                argument = event.args[place] if place < len(event.args) else None
            else:
                argument = (event.kwargs or {}).get(place)
            for _, ref in refs_in(argument):
                written.append(self.flow.value_of(ref))
                self.flow.wrote(ref, maker)
        return tuple(written)

    def _return(self, event: AtenEvent, op: Op, maker: Maker) -> None:
        items = []
        for path, ref in refs_in(event.out):
            if not self.flow.knows(ref):
                value = self.values.introduce(ref, "activation", maker, is_view=event.kind.is_view)
            elif self.flow.maker_of(ref) == maker:
                value = self.flow.values[self.flow.value_of(ref)]
            else:
                value = self.flow.returned(ref, maker)
            items.append(self.values.item(path, value.index))
        op.outputs = self.values.same_items(items)

    # -- module calls --------------------------------------------------------------------------------

    def _open_call(self, index: int, event: CallEvent) -> None:
        record = self.record
        module = self.structure.index_of(event.module, record.modules)
        count = self._call_counts[module] = self._call_counts.get(module, 0) + 1
        is_root = not record.calls
        parent = None if is_root else self.call_of[event.call]
        depth = 0 if parent is None else record.calls[parent].depth + 1
        call = ModuleCall(
            len(record.calls), module, count, parent, depth, None if is_root else self.sites.number[event.site]
        )
        refs = [*refs_in(event.args), *refs_in(event.kwargs)]
        for _, ref in refs:
            self.values.ensure(ref)
        call.inputs = self.values.same_items([self.values.item(path, self.flow.value_of(ref)) for path, ref in refs])
        call.start_ns = event.start_ns - self.tape.start_ns
        call.time_ns = event.end_ns - event.start_ns
        call.training, call.error = event.training, event.error
        call.first_op = call.end_op = 0 if is_root else len(record.ops)
        self.call_of[index] = call.index
        self.module_of[index] = id(event.module)
        record.calls.append(call)

    def _close_calls(self) -> None:
        """Give calls the range of their ops, and of the autograd nodes these made."""
        calls = self.record.calls
        for op in self.record.ops:
            call: ModuleCall | None = calls[op.call]
            while call is not None:
                call.end_op = max(call.end_op, op.index + 1)
                if op.seq is not None:
                    first, last = call.seq or op.seq
                    call.seq = (min(first, op.seq[0]), max(last, op.seq[1]))
                call = calls[call.parent] if call.parent is not None else None

    def _name_of_aten(self, event: AtenEvent) -> tuple[str, str]:
        kind = event.kind
        names = self._names.get(id(kind))
        if names is None:
            names = self._names[id(kind)] = (short_name(kind.name), kind.name)
        return names

    def _name(self, func: Any) -> tuple[str, str]:
        names = self._names.get(id(func))
        if names is None:
            function = function_name(func)
            names = self._names[id(func)] = (short_name(function), function)
        return names

    def _lifted(self, found: list[Edge], owner: int | None) -> list[Edge]:
        """Edges seen from an op inside ``owner``: what other ops hold inside them counts as theirs."""
        ops = self.record.ops
        if owner is None and all(ops[edge.op].owner is None for edge in found):
            return found
        around = set()
        step = owner
        while step is not None:
            around.add(step)
            step = self.record.ops[step].owner
        result = []
        for edge in found:
            op = edge.op
            if op in around:
                continue
            upper = self.record.ops[op].owner
            while upper is not None and upper not in around:
                op, upper = upper, self.record.ops[upper].owner
            result.append(edge._replace(op=op))
        return result


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A record is many small objects and no garbage: looking for some would take longer than making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
