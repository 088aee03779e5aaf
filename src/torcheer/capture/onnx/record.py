"""The record of one run of an ONNX model: a node is an op, and the one call under it.

Nodes have no source lines. Their place is the file and their position in it; where the exporter named them after
modules, as "/encoder/layers.0/fc/Gemm", the modules and their calls are in the record too.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import onnx
from onnx import numpy_helper

from torcheer import __version__
from torcheer.diff.side import Recording
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
    Run,
    Site,
    Value,
)

# What PyTorch calls the operators that only lay numbers out or pick them: readers know these names.
_NAMES = {
    "Identity": "alias", "Concat": "cat", "Expand": "expand", "Tile": "repeat", "Pad": "constant_pad_nd",
    "GatherElements": "gather", "GatherND": "gather", "Cast": "_to_copy", "Shape": "new_shape",
    "ConstantOfShape": "full", "Range": "arange", "DepthToSpace": "pixel_shuffle", "Trilu": "tril",
}  # fmt: skip


class RunRecord:
    """Builds the record of one run."""

    def __init__(self, proto: onnx.ModelProto, name: str, path: str, version: str) -> None:
        self.proto = proto
        self.path = path or name
        run = Run(name, framework="onnx", framework_version=version, training=False, grad_enabled=False)
        run.python_version, run.torcheer_version = platform.python_version(), __version__
        self.record = Record(run)
        self.contents: dict[str, Any] = {}
        self.value_of: dict[str, int] = {}  # tensor in the file → value
        self._modules: dict[str, int] = {}
        self._calls: dict[str, int] = {}  # address → its open call

    def build(self, inputs: Mapping[str, Any], weights: Mapping[str, Any], found: Mapping[str, Any]) -> Recording:
        """The record of a run that was given ``inputs`` and made ``found``."""
        self._open("", 0)
        for name, array in weights.items():
            self._add_param(name, array)
        for name, array in inputs.items():
            op = self._op("input", "input", "input")
            op.outputs = (Item(name, self._value(name, "input", array, op.index)),)
        for position, node in enumerate(self.proto.graph.node):
            self._add_node(position, node, found)
        several = len(self.proto.graph.output) > 1
        for place, one in enumerate(self.proto.graph.output):
            value = self.value_of[one.name]
            op = self._op("output", "output", "output")
            op.args = (Ref(value),)
            op.outputs = (Item(str(place) if several else "", value),)
            op.parents = self._parents([value])
        for call in self.record.calls:
            call.end_op = call.end_op or len(self.record.ops)
        self.record.run.output_structure = "tuple" if several else "ndarray"
        _name_layers(self.record)
        return Recording(self.record, self.contents)

    def _add_param(self, name: str, array: Any) -> None:
        record = self.record
        index = len(record.params)
        dtype, size = str(array.dtype), int(array.nbytes)
        record.params.append(
            Param(name, "param", tuple(array.shape), dtype, "cpu", size, int(array.size), requires_grad=False)
        )
        record.modules[0].params += (index,)
        record.values[self._value(name, "param", array, None)].param = index

    def _add_node(self, position: int, node: onnx.NodeProto, found: Mapping[str, Any]) -> None:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            self._value(node.output[0], "constant", numpy_helper.to_array(node.attribute[0].t), None)
            return
        self._enter(node.name)
        kind = node.op_type.lower()
        name = _NAMES.get(node.op_type, kind)
        op = self._op("op", kind, f"onnx.{node.op_type}")
        # A tensor of an outer graph is no argument of a node that has a graph of its own (If, Loop).
        given = [self.value_of[one] for one in node.input if one in self.value_of]
        op.args = tuple(Ref(value) for value in given)
        op.kwargs = {one.name: _plain(one) for one in node.attribute} or None
        op.parents = self._parents(given)
        op.params = tuple(p for value in given if (p := self.record.values[value].param) is not None)
        op.site = self._site(position, node)
        kept = [(place, one) for place, one in enumerate(node.output) if one in found]
        several = len(node.output) > 1
        op.outputs = tuple(
            Item(str(place) if several else "", self._value(one, "activation", found[one], op.index))
            for place, one in kept
        )
        aten = Op(len(self.record.aten), "op", name, f"onnx.{name}", op.call, op.site, op.args, op.kwargs)
        aten.outputs, aten.owner, aten.params = op.outputs, op.index, op.params
        op.aten = (aten.index,)
        self.record.aten.append(aten)

    def _op(self, kind: str, name: str, function: str) -> Op:
        op = Op(len(self.record.ops), kind, name, function, self._current, None)
        self.record.ops.append(op)
        return op

    def _value(self, name: str, kind: str, array: Any, producer: int | None) -> int:
        record = self.record
        index = self.value_of[name] = len(record.values)
        strides = tuple(step // array.itemsize for step in array.strides) if array.itemsize else None
        shape, dtype, size = tuple(array.shape), str(array.dtype), int(array.nbytes)
        record.values.append(Value(index, kind, producer, shape, dtype, "cpu", "strided", strides, 0, index, 0, size))
        record.saved[index] = f"onnx.{index}"
        self.contents[f"onnx.{index}"] = array
        return index

    def _parents(self, values: list[int]) -> tuple[Edge, ...]:
        producers = [(self.record.values[value].producer, value, place) for place, value in enumerate(values)]
        return tuple(Edge(op, value, "argument", str(place)) for op, value, place in producers if op is not None)

    def _site(self, position: int, node: onnx.NodeProto) -> int:
        self.record.sites.append(Site((Frame(self.path, position + 1, node.name or node.op_type),)))
        return len(self.record.sites) - 1

    # -- modules ---------------------------------------------------------------------------------------

    def _enter(self, node: str) -> None:
        """Close and open calls, so that the innermost one is of the module that a node is named after."""
        parts = node.strip("/").split("/")[:-1] if node.startswith("/") else []
        # A list or sequence is named in its members: "/encoder/layers/layers.0/fc/Gemm".
        own = [part.removeprefix(f"{before}.") for before, part in zip(["", *parts], parts, strict=False)]
        addresses = [".".join(own[: count + 1]) for count in range(len(own))]
        for address in [one for one in self._calls if one and one not in addresses]:
            self.record.calls[self._calls.pop(address)].end_op = len(self.record.ops)
        for depth, address in enumerate(addresses, 1):
            if address not in self._calls:
                self._open(address, depth)

    def _open(self, address: str, depth: int) -> None:
        record = self.record
        parent = next(reversed(self._calls.values()), None)
        if address not in self._modules:
            self._modules[address] = len(record.modules)
            above = None if parent is None else record.calls[parent].module
            kind = address.rpartition(".")[2] or record.run.model
            record.modules.append(Module(address, kind, f"onnx.{kind}", above, training=False))
        module = self._modules[address]
        count = 1 + sum(call.module == module for call in record.calls)
        self._calls[address] = len(record.calls)
        record.calls.append(
            ModuleCall(len(record.calls), module, count, parent, depth, None, first_op=len(record.ops), training=False)
        )

    @property
    def _current(self) -> int:
        return next(reversed(self._calls.values()))


def _plain(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)) or hasattr(value, "append"):
        return tuple(value)
    return value if isinstance(value, (bool, int, float, str)) else type(value).__name__


def _name_layers(record: Record) -> None:
    """Every op is a layer of one pass."""
    counts: dict[str, int] = {}
    for op in record.ops:
        counts[op.name] = counts.get(op.name, 0) + 1
        op.layer = len(record.layers)
        record.layers.append(Layer(op.name, counts[op.name], op.layer, (op.index,)))
