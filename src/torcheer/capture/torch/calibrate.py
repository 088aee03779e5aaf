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

from torcheer.capture.torch.clocking import NODE, Bias, TimedBackward
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.modes import AtenLevel
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.tape import OP, OpEvent

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
    ops, calls = _Ops(), nn.Sequential(*(_Nothing() for _ in range(_NUM)))
    plain_ops, plain_calls = _fastest(partial(ops, x)), _fastest(partial(calls, x))
    with_ops, with_aten = _fastest(partial(_record, ops, x, False)), _fastest(partial(_record, ops, x, True))
    empty = _fastest(partial(_record, _Nothing(), x, False)) - _fastest(partial(_Nothing(), x))
    with_calls = _fastest(partial(_record, calls, x, False))
    op = max(0.0, (with_ops - plain_ops - empty) / _NUM)
    return Bias(
        op=op,
        op_inside=max(0.0, _inside(ops, x) - plain_ops / _NUM),
        call=max(0.0, (with_calls - plain_calls - empty) / _NUM),
        node=_node(_Views(), x),
        aten=max(0.0, (with_aten - with_ops) / _NUM),
    )


def _fastest(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(_ROUNDS):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return float(min(times))


def _record(model: nn.Module, x: Tensor, with_aten: bool) -> TorchSession:
    session = TorchSession(model, Inputs((x,), {}), None, aten_level=AtenLevel if with_aten else no_aten_level)
    session.run()
    return session


def _inside(model: nn.Module, x: Tensor) -> float:
    """What an op takes between its two readings of the clock."""
    found = []
    for _ in range(_ROUNDS):
        events = [OpEvent._make(raw) for raw in _record(model, x, False).tape.events if raw[0] == OP]
        found.append(median(event.end_ns - event.start_ns for event in events))
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
