"""Tape → record. Runs when the record is first read, not while the model runs.

Events are replayed in order through ``record/dataflow.py``, which turns tensors into edges; then
``record/layers.py`` names the layers.
"""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.names import function_name, short_name
from torcheer.capture.torch.structure import Structure, describe_structure
from torcheer.capture.torch.tape import ATEN, OP, AtenEvent, CallEvent, OpEvent, Tape, ValueRow
from torcheer.record.dataflow import Dataflow, Maker, edges
from torcheer.record.layers import assign_layers
from torcheer.record.model import (
    Diagnostic,
    Edge,
    Frame,
    Item,
    ModuleCall,
    Op,
    Opaque,
    Record,
    Ref,
    Run,
    Site,
    Value,
)
from torcheer.record.region import Region, region

_OUTSIDE = Maker(None, None)


class Finisher:
    """Builds the record of one tape."""

    def __init__(self, tape: Tape, structure: Structure, run: Run) -> None:
        self.tape = tape
        self.structure = structure
        self.record = Record(run)
        self.flow = Dataflow()
        self.op_of: dict[int, int] = {}  # event → index into record.ops
        self.call_of: dict[int, int] = {-1: 0}
        self.kept: dict[tuple[int, int], str] = {}  # (event, ref) → name of the contents
        self.param_refs: dict[int, int] = {}
        self._names: dict[int, tuple[str, str]] = {}
        self._last_aten: dict[int, int] = {}
        self._call_counts: dict[int, int] = {}

    # -- whole ---------------------------------------------------------------------------------------

    def build(self, inputs: list[tuple[str, Ref]], outputs: list[tuple[str, Ref]]) -> Record:
        """The record, from the model's inputs to its outputs."""
        record = self.record
        record.modules, record.params, self.param_refs = describe_structure(self.structure, self.tape)
        self._input_ops(inputs)
        self._events()
        self._output_ops(outputs)
        record.values = self.flow.values
        record.sites = self._sites()
        self._close_calls()
        assign_layers(record)
        return record

    def _input_ops(self, inputs: list[tuple[str, Ref]]) -> None:
        for path, ref in inputs:
            op = self._new_op("input", "input", "input", call=0)
            if self.flow.knows(ref):
                value = self.flow.returned(ref, Maker(op.index, None))
            else:
                value = self._introduce(ref, "input", Maker(op.index, None), is_view=False)
            op.outputs = (Item(path, value.index),)
            self._saved(-1, ref, value.index)

    def _output_ops(self, outputs: list[tuple[str, Ref]]) -> None:
        for path, ref in outputs:
            self._ensure(ref)
            op = self._new_op("output", "output", "output", call=0)
            op.args = (Ref(self.flow.value_of(ref)),)
            op.inputs = (self.flow.value_of(ref),)
            op.parents = tuple(self._lifted(edges(self.flow.read(ref), "0", aten=False), None))
            op.params = self._params_of(op.inputs)
            shown = self.flow.value_of(ref)
            value = self.flow.returned(ref, Maker(op.index, self.flow.maker_of(ref).aten))
            op.outputs = (Item(path, value.index),)
            if shown in self.record.saved:
                self.record.saved[value.index] = self.record.saved[shown]

    def _events(self) -> None:
        open_ends: list[tuple[int, int, Any]] = []
        for index, raw in enumerate(self.tape.events):
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
            self.record.calls[self.call_of[index]].outputs = tuple(self._items(event.out))
            for _, ref in _refs(event.out):
                self._saved(index, ref, self.flow.value_of(ref))

    # -- function level ------------------------------------------------------------------------------

    def _new_op(self, kind: str, name: str, function: str, call: int) -> Op:
        op = Op(len(self.record.ops), kind, name, function, call, None)
        self.record.ops.append(op)
        return op

    def _open_op(self, index: int, event: OpEvent) -> None:
        name, function = self._name(event.func)
        op = self._new_op("op", name, function, self.call_of[event.call])
        self.op_of[index] = op.index
        op.owner = self.op_of.get(event.owner)
        op.site = event.site
        op.start_ns = event.start_ns - self.tape.start_ns
        op.time_ns = event.end_ns - event.start_ns
        op.seq = (event.seq, event.seq_end) if event.seq_end > event.seq else None
        refs: list[tuple[str, Ref]] = []
        op.args = tuple(self._plain(arg, str(place), refs) for place, arg in enumerate(event.args))
        if event.kwargs:
            op.kwargs = {key: self._plain(arg, key, refs) for key, arg in event.kwargs.items()}
        found: list[Edge] = []
        inputs: dict[int, None] = {}
        for path, ref in refs:
            inputs[self.flow.value_of(ref)] = None
            found += edges(self.flow.read(ref), path, aten=False)
        op.inputs = tuple(inputs)
        op.parents = tuple(self._lifted(found, op.owner))
        op.params = self._params_of(op.inputs)

    def _close_op(self, index: int, event: OpEvent) -> None:
        op = self.record.ops[self.op_of[index]]
        if event.error is not None:
            return
        nodes = {node[0]: node for node in event.nodes}
        items = []
        for path, ref in _refs(event.out):
            value = self._output_value(op, ref)
            node = nodes.get(ref)
            if node is not None:
                value.grad_function, value.node_seq, value.node_output = node[1].__name__, node[2], node[3]
                value.requires_grad = True
            items.append(Item(path, value.index))
            self._saved(index, ref, value.index)
        op.outputs = tuple(items)
        if not items and event.out is not None:
            op.result = self._plain(event.out, "", [])

    def _output_value(self, op: Op, ref: Ref) -> Value:
        flow = self.flow
        aten = self._last_aten.get(op.index)
        if not flow.knows(ref):
            return self._introduce(ref, "activation", Maker(op.index, aten), is_view=True)
        maker = flow.maker_of(ref)
        if maker.op == op.index:
            return flow.values[flow.value_of(ref)]
        return flow.returned(ref, Maker(op.index, maker.aten))

    # -- ATen level ----------------------------------------------------------------------------------

    def _saved(self, event: int, ref: int, value: int) -> None:
        name = self.kept.get((event, ref))
        if name is not None:
            self.record.saved.setdefault(value, name)

    def _aten(self, index: int, event: AtenEvent) -> None:
        owner = self.op_of.get(event.owner)
        call = self.call_of[event.call]
        record = self.record
        promoted = owner is None
        if promoted:
            # Scripted, exported or otherwise compiled code: no Python call to belong to.
            top = self._new_op("op", short_name(event.kind.name), event.kind.name, call)
            owner = top.index
        assert owner is not None
        op = Op(len(record.aten), "op", short_name(event.kind.name), event.kind.name, call, None, owner=owner)
        record.aten.append(op)
        refs: list[tuple[str, Ref]] = []
        op.args = tuple(self._plain(arg, str(place), refs) for place, arg in enumerate(event.args))
        if event.kwargs:
            op.kwargs = {key: self._plain(arg, key, refs) for key, arg in event.kwargs.items()}
        sources = {path: self.flow.read(ref) for path, ref in refs}
        op.inputs = tuple(dict.fromkeys(self.flow.value_of(ref) for _, ref in refs))
        op.params = self._params_of(op.inputs)
        op.parents = tuple(edge for path, _ in refs for edge in edges(sources[path], path, aten=True))
        upper = record.ops[owner]
        upper.aten += (op.index,)
        self._read_inside(upper, [edge for path, _ in refs for edge in edges(sources[path], path, aten=False)], op)
        maker = Maker(owner, op.index)
        self._last_aten[owner] = op.index
        self._write(event, op, maker)
        self._return(event, op, maker)
        if promoted:
            upper.args, upper.kwargs, upper.outputs = op.args, op.kwargs, op.outputs
            upper.writes = op.writes
            for _, ref in _refs(event.out):
                self._saved(index, ref, self.flow.value_of(ref))

    def _read_inside(self, upper: Op, found: list[Edge], op: Op) -> None:
        """What an ATen op reads from outside the ops around it flows into them too."""
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
                target.inputs += tuple(
                    value
                    for value in dict.fromkeys(edge.value for edge in fresh)
                    if value not in target.inputs
                )
            extra = tuple(param for param in op.params if param not in target.params)
            target.params += extra
            target = self.record.ops[target.owner] if target.owner is not None else None
            known = {(edge.op, edge.value) for edge in target.parents} if target is not None else set()

    def _write(self, event: AtenEvent, op: Op, maker: Maker) -> None:
        written = []
        for place in event.kind.writes:
            if isinstance(place, int):
                argument = event.args[place] if place < len(event.args) else None
            else:
                argument = (event.kwargs or {}).get(place)
            for _, ref in _refs(argument):
                written.append(self.flow.value_of(ref))
                self.flow.wrote(ref, maker)
        op.writes = tuple(written)
        if written:
            top: Op | None = self.record.ops[maker.op] if maker.op is not None else None
            while top is not None:
                top.writes += tuple(written)
                top = self.record.ops[top.owner] if top.owner is not None else None

    def _return(self, event: AtenEvent, op: Op, maker: Maker) -> None:
        items = []
        for path, ref in _refs(event.out):
            if not self.flow.knows(ref):
                value = self._introduce(ref, "activation", maker, is_view=event.kind.is_view)
            elif self.flow.maker_of(ref) == maker:
                value = self.flow.values[self.flow.value_of(ref)]
            else:
                value = self.flow.returned(ref, maker)
            items.append(Item(path, value.index))
        op.outputs = tuple(items)

    # -- module calls --------------------------------------------------------------------------------

    def _open_call(self, index: int, event: CallEvent) -> None:
        record = self.record
        module = self.structure.index_of(event.module, record.modules)
        count = self._call_counts[module] = self._call_counts.get(module, 0) + 1
        is_root = not record.calls
        parent = None if is_root else self.call_of[event.call]
        depth = 0 if parent is None else record.calls[parent].depth + 1
        call = ModuleCall(len(record.calls), module, count, parent, depth, None if is_root else event.site)
        refs = [*_refs(event.args), *_refs(event.kwargs)]
        for _, ref in refs:
            self._ensure(ref)
        call.inputs = tuple(Item(path, self.flow.value_of(ref)) for path, ref in refs)
        call.start_ns = event.start_ns - self.tape.start_ns
        call.time_ns = event.end_ns - event.start_ns
        call.training, call.error = event.training, event.error
        call.first_op = call.end_op = 0 if is_root else len(record.ops)
        self.call_of[index] = call.index
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

    # -- tensors and plain data ----------------------------------------------------------------------

    def _introduce(self, ref: Ref, kind: str, maker: Maker, *, is_view: bool) -> Value:
        raw = self.tape.values[ref]
        row = raw if isinstance(raw, ValueRow) else ValueRow(*raw)
        item_bytes = row.dtype.itemsize
        shape = tuple(_size(size) for size in row.shape)
        stride = None if row.stride is None else tuple(_size(step) for step in row.stride)
        size = row.size_bytes
        if size is None and row.layout is torch.strided and all(extent >= 0 for extent in shape):
            size = item_bytes
            for extent in shape:
                size *= extent
        param = self.param_refs.get(ref)
        if param is not None and kind == "constant":
            kind = self.record.params[param].kind
        value = Value(
            -1, kind, None, shape, str(row.dtype).removeprefix("torch."), str(row.device),
            str(row.layout).removeprefix("torch."), stride, _size(row.offset), row.storage, 0, size, param=param,
        )  # fmt: skip
        bytes_covered: Region | None = None
        if row.storage is not None:
            bytes_covered = region(shape, stride, value.offset, item_bytes)
        return self.flow.introduce(ref, value, bytes_covered, maker, is_view=is_view)

    def _ensure(self, ref: Ref) -> None:
        if not self.flow.knows(ref):
            value = self._introduce(ref, "constant", _OUTSIDE, is_view=True)
            if value.kind == "constant":
                value.requires_grad = False

    def _plain(self, argument: Any, path: str, refs: list[tuple[str, Ref]]) -> Any:
        """An argument as the record keeps it; the tensors in it are added to ``refs``."""
        if isinstance(argument, Ref):
            self._ensure(argument)
            refs.append((path, argument))
            return Ref(self.flow.value_of(argument))
        if isinstance(argument, Opaque):
            return argument
        if isinstance(argument, tuple):
            return tuple(self._plain(item, f"{path}.{place}", refs) for place, item in enumerate(argument))
        if isinstance(argument, list):
            return [self._plain(item, f"{path}.{place}", refs) for place, item in enumerate(argument)]
        if isinstance(argument, dict):
            return {key: self._plain(item, f"{path}.{key}", refs) for key, item in argument.items()}
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return slice(*(self._plain(part, path, refs) for part in parts))
        if isinstance(argument, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return str(argument)
        return argument

    def _items(self, structure: Any) -> list[Item]:
        items = []
        for path, ref in _refs(structure):
            self._ensure(ref)
            items.append(Item(path, self.flow.value_of(ref)))
        return items

    def _params_of(self, values: tuple[int, ...]) -> tuple[int, ...]:
        found = (self.flow.values[value].param for value in values)
        return tuple(dict.fromkeys(param for param in found if param is not None))

    def _lifted(self, found: list[Edge], owner: int | None) -> list[Edge]:
        """Edges seen from an op inside ``owner``: what other ops hold inside them counts as theirs."""
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

    def _name(self, func: Any) -> tuple[str, str]:
        names = self._names.get(id(func))
        if names is None:
            function = function_name(func)
            names = self._names[id(func)] = (short_name(function), function)
        return names

    def _sites(self) -> list[Site]:
        sites = []
        for chain in self.tape.sites:
            pairs = list(zip(chain[::2], chain[1::2], strict=True))
            frames = [self._frame(code, offset) for code, offset in reversed(pairs)]
            sites.append(Site(tuple(frames)))
        return sites

    def _frame(self, code_id: int, offset: int) -> Frame:
        code = self.tape.codes[code_id]
        line = None
        for start, end, candidate in code.co_lines():
            if start <= offset < end:
                line = candidate
                break
        return Frame(code.co_filename, line or code.co_firstlineno, getattr(code, "co_qualname", code.co_name))

    def note(self, code: str, message: str) -> None:
        """Add something the reader must know."""
        self.record.diagnostics.append(Diagnostic(code, message))


def _size(size: Any) -> int:
    try:
        return int(size)
    except (RuntimeError, TypeError, ValueError):
        return -1  # symbolic


def _refs(structure: Any, path: str = "") -> list[tuple[str, Ref]]:
    """The tensors of a structure on the tape, with their paths."""
    if isinstance(structure, Ref):
        return [(path, structure)]
    prefix = f"{path}." if path else ""
    if isinstance(structure, (tuple, list)):
        return [pair for place, item in enumerate(structure) for pair in _refs(item, f"{prefix}{place}")]
    if isinstance(structure, dict):
        return [pair for key, item in structure.items() for pair in _refs(item, f"{prefix}{key}")]
    if isinstance(structure, slice):
        parts = (structure.start, structure.stop, structure.step)
        return [pair for part in parts for pair in _refs(part, path)]
    return []
