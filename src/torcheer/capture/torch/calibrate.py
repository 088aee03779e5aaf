"""What recording itself costs on this machine, measured on models that do next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from statistics import median
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.capture.torch.clocking import NODE, Bias, TimedBackward, TimedLevel
from torcheer.capture.torch.events import OP, OpEvent
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.modes import AtenLevel, FunctionLevel
from torcheer.capture.torch.session import TorchSession

_NUM = 60  # ops or calls per run
_ROUNDS = 7


class _Ops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(_NUM):
            x = x.neg()
        return x


class _Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(_NUM):
            x = x.expand_as(x)
        return x


class _Reads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(_NUM):
            x.dim()
        return x


class _Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def no_aten_level(_tape: Any, _keeper: Any) -> nullcontext[None]:
    """In place of the ATen level: nothing."""
    return nullcontext()


@cache
def calibrate() -> Bias:
    """Measure what recording costs: some tens of milliseconds, once per process."""
    with torch.inference_mode(False), torch.enable_grad():
        return _measured()


def _measured() -> Bias:
    x = torch.zeros(4, requires_grad=True)
    ops, calls, reads = _Ops(), nn.Sequential(*(_Nothing() for _ in range(_NUM))), _Reads()
    empty = _added(_Nothing(), x)
    op = max(0.0, (_added(ops, x) - empty) / _NUM)
    with_aten = _added(ops, x, aten_level=AtenLevel)
    return Bias(
        op=op,
        op_rest=max(0.0, (_added(ops, x, level=TimedLevel) - empty) / _NUM - _seen(ops, x)),
        op_inside=max(0.0, _inside(ops, x) - _fastest(partial(ops, x)) / _NUM),
        call=max(0.0, (_added(calls, x) - empty) / _NUM),
        call_rest=max(0.0, (_added(calls, x) - empty) / _NUM - _seen(calls, x)),
        read=max(0.0, (_added(reads, x, level=TimedLevel) - empty) / _NUM),
        node=_node(_Views(), x),
        aten=max(0.0, (with_aten - empty) / _NUM - op),
    )


def _added(model: nn.Module, x: Tensor, **levels: Any) -> float:
    """What recording adds to a run of a model."""
    return _fastest(partial(_record, model, x, **levels)) - _fastest(partial(model, x))


def _fastest(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(_ROUNDS):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return float(min(times))


def _record(
    model: nn.Module, x: Tensor, *, level: type[FunctionLevel] = FunctionLevel, aten_level: Any = no_aten_level
) -> TorchSession:
    session = TorchSession(model, Inputs((x,), {}), None, level=level, aten_level=aten_level)
    session.run()
    return session


def _inside(model: nn.Module, x: Tensor) -> float:
    """What an op takes between its two readings of the clock."""
    found = []
    for _ in range(_ROUNDS):
        events = [OpEvent._make(raw) for raw in _record(model, x).tape.events if raw[0] == OP]
        found.append(median(event.end_ns - event.start_ns for event in events))
    return min(found)


def _seen(model: nn.Module, x: Tensor) -> float:
    """What recording an op, or else a module call, costs as it is measured on the spot."""
    found = []
    for _ in range(_ROUNDS):
        session = _record(model, x, level=TimedLevel)
        level = session.function_level
        assert isinstance(level, TimedLevel)
        found.append(median((level.costs or session.tape.call_costs or {}).values()))
    return min(found)


def _node(model: nn.Module, x: Tensor) -> float:
    """What a node that does nothing takes between its two readings of the clock."""
    found = []
    for _ in range(_ROUNDS):
        session = TorchSession(model, Inputs((x,), {}), None, aten_level=no_aten_level, backward=lean_backward)
        loss = session.run().sum()
        with session.watching_backward():
            loss.backward(inputs=[x])
        recorder = session.backward_recorder
        assert isinstance(recorder, TimedBackward)
        found.append(median(node.end_ns - node.start_ns for node in recorder.nodes if node.kind == NODE))
        x.grad = None
    return min(found)


def lean_backward(*args: Any) -> TimedBackward:
    """A recorder of backward passes that takes nothing but times."""
    recorder = TimedBackward(*args)
    recorder.records = False
    return recorder
