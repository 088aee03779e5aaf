"""Histories on records made by hand, with numpy arrays for tensors."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy

from tests.unit.record_builder import RecordBuilder
from torcheer.history import ModelHistory
from torcheer.record.model import Edge, Item, Record, Run


def save_all(record: Record) -> dict[str, Any]:
    """Mark all activations as saved and return their contents: numbers counting up from the value's index."""
    payloads = {}
    record.saved = {value.index: f"value.{value.index}" for value in record.values if value.producer is not None}
    for index, name in record.saved.items():
        shape = record.values[index].shape
        payloads[name] = numpy.arange(numpy.prod(shape, dtype=int), dtype="float32").reshape(shape) + index
    return payloads


def saved_history(record: Record) -> ModelHistory:
    """A history with the contents of everything."""
    return ModelHistory(record, save_all(record))


def bare_history(record: Record) -> ModelHistory:
    """A history without any contents."""
    record.saved = {}
    return ModelHistory(record, {})


class FakeSession:
    """Stands for the room that recorded the run."""

    output = "what the model returned"

    def __init__(self) -> None:
        self.losses: list[tuple[Any, dict[str, Any]]] = []
        self.watch = nullcontext()

    def backward(self, loss: Any, **kwargs: Any) -> None:
        self.losses.append((loss, kwargs))

    def watching_backward(self) -> Any:
        return self.watch


def build_net(name: str = "Net") -> tuple[RecordBuilder, int]:
    """A model inside its own call, with its input."""
    build = RecordBuilder(Record(Run(name, time_ns=288_000_000, seed=3210097511)))
    build.module("", name, None)
    build.enter(0, None)
    return build, build.input((2, 3))


def split_record() -> Record:
    """chunk gives two tensors, each used; their sum is the output: branching, two outputs of one op."""
    build, x = build_net("Split")
    build.module("halves", "Halves", 0)
    build.enter(1, build.site(5))
    first = build.op("chunk", "torch.chunk", (2, 1), (x,), site=build.site(9))
    second = build.value("activation", (2, 2), producer=1)
    build.record.ops[1].outputs = (Item("0", first), Item("1", second))
    build.leave(first, second)
    total = build.op("add", "torch.Tensor.add", (2, 2), (first, second), site=build.site(6))
    build.output(total)
    build.leave(total)
    build.layers()
    return build.record


def shared_record(num_calls: int = 3, one_layer: bool = True) -> Record:
    """The module ``cell`` called several times, as a loop (one layer) or from different lines."""
    build, x = build_net("Shared")
    build.param("cell.weight", (3, 3))
    build.module("cell", "Linear", 0, params=(0,), aliases=("tied",))
    ops = []
    for turn in range(num_calls):
        build.enter(1, build.site(5 if one_layer else 5 + turn))
        ops.append(len(build.record.ops))
        x = build.op("linear", "torch._C._nn.linear", (2, 3), (x,), params=(0,), site=build.site(134))
        build.leave(x)
    build.output(x)
    build.leave(x)
    build.layers((tuple(ops),) if one_layer else ())
    return build.record


def nested_record() -> Record:
    """An autograd.Function with two ops in its forward; the op after it reads what the inner one made."""
    build, x = build_net("Custom")
    outer = build.op("double", "autograd.Double", (2, 3), (x,), site=build.site(7))
    build.op("mul", "torch.Tensor.mul", (2, 3), (x,), site=build.site(30))
    inside = build.op("mul", "torch.Tensor.mul", (2, 3), (outer,), site=build.site(31))
    for index in (2, 3):
        build.record.ops[index].owner = 1
    relu = build.op("relu", "torch.relu", (2, 3), (inside,), site=build.site(8))
    build.output(relu)
    build.leave(relu)
    ops = build.record.ops
    ops[3].parents = (Edge(2, ops[2].outputs[0].value, "argument", "0"),)
    build.layers()
    # The builder lists every op; those inside another are in no layer.
    build.record.layers = [layer for layer in build.record.layers if layer.ops[0] not in (2, 3)]
    for position, layer in enumerate(build.record.layers):
        layer.position = position
        ops[layer.ops[0]].layer = position
    ops[2].layer = ops[3].layer = -1
    return build.record
