"""Builds a record by hand, one module call and one op at a time, keeping its tables consistent."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from torcheer.record.model import (
    Edge,
    Frame,
    Item,
    Layer,
    Module,
    ModuleCall,
    Op,
    Param,
    Record,
    Ref,
    Shape,
    Site,
    Value,
)

FILE = "/home/user/net.py"
OP_NS = 1_000  # every op takes one microsecond, so that a call's time is its number of ops


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass
class RecordBuilder:
    record: Record
    open_calls: list[int] = field(default_factory=list)
    num_storages: int = 0
    param_values: list[int] = field(default_factory=list)

    def param(self, address: str, shape: Shape) -> int:
        index, num_elements = len(self.record.params), prod(shape)
        self.record.params.append(
            Param(address, "param", shape, "float32", "cpu", 4 * num_elements, num_elements, requires_grad=True)
        )
        self.param_values.append(self.value("param", shape, param=index, requires_grad=True))
        return index

    def module(self, address: str, type_name: str, parent: int | None, **fields: Any) -> int:
        qualified = f"torch.nn.modules.{type_name}" if parent is not None else f"net.{type_name}"
        self.record.modules.append(Module(address, type_name, qualified, parent, **fields))
        return len(self.record.modules) - 1

    def value(self, kind: str, shape: Shape, *, dtype: str = "float32", over: int | None = None, **fields: Any) -> int:
        """Append a value; ``over`` is the value it was written over in place."""
        values = self.record.values
        if over is None:
            storage, version = self.num_storages, 0
            self.num_storages += 1
        else:
            storage, version = values[over].storage, values[over].version + 1
        producer = fields.pop("producer", None)
        item_bytes = 8 if dtype == "int64" else 4
        values.append(
            Value(
                len(values),
                kind,
                producer,
                shape,
                dtype,
                "cpu",
                "strided",
                _strides(shape),
                0,
                storage,
                version,
                item_bytes * prod(shape),
                **fields,
            )
        )
        return len(values) - 1

    def site(self, *lines: int) -> int:
        site = Site(tuple(Frame(FILE, line, "forward") for line in lines))
        if site not in self.record.sites:
            self.record.sites.append(site)
        return self.record.sites.index(site)

    def enter(self, module: int, site: int | None, inputs: tuple[Item, ...] = ()) -> int:
        calls = self.record.calls
        parent = self.open_calls[-1] if self.open_calls else None
        call_index = 1 + sum(call.module == module for call in calls)
        first_op = len(self.record.ops) if parent is not None else 0
        calls.append(
            ModuleCall(
                len(calls),
                module,
                call_index,
                parent,
                len(self.open_calls),
                site,
                inputs=inputs,
                first_op=first_op,
                start_ns=OP_NS * first_op,
            )
        )
        self.open_calls.append(len(calls) - 1)
        return len(calls) - 1

    def leave(self, *outputs: int) -> None:
        call = self.record.calls[self.open_calls.pop()]
        call.outputs = tuple(Item("" if len(outputs) == 1 else str(i), value) for i, value in enumerate(outputs))
        call.end_op = len(self.record.ops)
        call.time_ns = OP_NS * (call.end_op - call.first_op)

    def op(self, name: str, function: str, shape: Shape, inputs: tuple[int, ...], **fields: Any) -> int:
        """Append an op with one output; return the value it made."""
        ops = self.record.ops
        index = len(ops)
        params = fields.setdefault("params", ())
        over = fields.pop("over", None)
        grad_function = fields.pop("grad_function", None)
        if grad_function is not None:
            fields["seq"] = (index, index + 1)
        result = self.value(
            "activation",
            shape,
            over=over,
            producer=index,
            requires_grad=grad_function is not None,
            grad_function=grad_function,
            node_seq=None if grad_function is None else index,
        )
        edges = tuple(
            Edge(producer, value, "argument", str(position))
            for position, value in enumerate(inputs)
            if (producer := self.record.values[value].producer) is not None
        )
        reads = inputs + tuple(self.param_values[param] for param in params)
        extra = fields.pop("extra_args", ())
        op = Op(
            index,
            fields.pop("kind", "op"),
            name,
            function,
            self.open_calls[-1],
            fields.pop("site", None),
            args=(*(Ref(value) for value in reads), *extra),
            outputs=(Item("", result),),
            writes=() if over is None else (over,),
            parents=edges,
            start_ns=OP_NS * index,
            time_ns=OP_NS,
            **fields,
        )
        ops.append(op)
        return result

    def input(self, shape: Shape) -> int:
        """The input op: it has an output and reads nothing."""
        result = self.value("input", shape, producer=len(self.record.ops))
        self.record.ops.append(Op(len(self.record.ops), "input", "input", "", 0, None, outputs=(Item("", result),)))
        return result

    def output(self, value: int) -> None:
        """The output op: it reads what the model returned and makes nothing."""
        producer = self.record.values[value].producer
        assert producer is not None
        edge = Edge(producer, value, "argument", "0")
        self.record.ops.append(
            Op(len(self.record.ops), "output", "output", "", 0, None, args=(Ref(value),), parents=(edge,))
        )

    def aten(self, op: int, function: str, extra_outputs: tuple[int, ...] = (), **fields: Any) -> int:
        """Append the one ATen call of a function-level op: it reads and makes the same values."""
        ops, table = self.record.ops, self.record.aten
        above, index = ops[op], len(table)
        made_by = {item.value: row.index for row in table for item in row.outputs}
        parents = tuple(
            Edge(made_by[value], value, "argument", str(position))
            for position, value in enumerate(above.inputs)
            if value in made_by
        )
        outputs = tuple(item.value for item in above.outputs) + extra_outputs
        table.append(
            Op(
                index,
                "op",
                function.split(".")[1].replace("_", ""),
                function,
                above.call,
                above.site,
                args=above.args,
                outputs=tuple(Item("" if len(outputs) == 1 else str(i), value) for i, value in enumerate(outputs)),
                writes=above.writes,
                parents=parents,
                owner=op,
                params=above.params,
                seq=above.seq,
                **fields,
            )
        )
        above.aten = (*above.aten, index)
        return index

    def layers(self, loops: tuple[tuple[int, ...], ...] = ()) -> None:
        """Give every op its layer; each of ``loops`` lists ops that are passes of one layer."""
        later = {op for loop in loops for op in loop[1:]}
        passes = {loop[0]: loop for loop in loops}
        counts: dict[str, int] = {}
        for op in self.record.ops:
            if op.index in later:
                continue
            number = counts[op.name] = counts.get(op.name, 0) + 1
            position, rows = len(self.record.layers), passes.get(op.index, (op.index,))
            self.record.layers.append(Layer(op.name, number, position, rows))
            for pass_index, row in enumerate(rows, start=1):
                self.record.ops[row].layer, self.record.ops[row].pass_index = position, pass_index
