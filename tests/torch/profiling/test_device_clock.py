"""The clock of accelerators, with events that pretend: no accelerator is here. The report shows what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.capture.torch import profiled
from torcheer.capture.torch.device_clock import DeviceClock, device_clock

STEP_MS = 0.5


class Pretended:
    """Every event comes half a millisecond of device time after the one before, however long the host takes."""

    made = 0

    def record(self) -> None:
        Pretended.made += 1
        self.at_ms = Pretended.made * STEP_MS

    def elapsed_time(self, end: Any) -> float:
        return end.at_ms - self.at_ms


class Clocks:
    def __init__(self) -> None:
        self.made: list[DeviceClock] = []
        self.waits = 0

    def __call__(self, *_: Any) -> DeviceClock:
        def wait() -> None:
            self.waits += 1

        self.made.append(DeviceClock(Pretended, wait))
        return self.made[-1]


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(profiled, "clock_of", clocks)
    return clocks


def test_times_are_those_of_the_devices_events(clocks: Clocks) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    report = tl.profile(model, torch.rand(2, 4), backward=True, measure="time", repeats=3, warm_up=1)
    assert report.record.run.clock == "device"
    assert clocks.waits == 5  # once per run, not per op
    # Between the two events of each op there is one step; around it are its module's.
    assert [op.figures.forward_ns for op in report.ops] == [500_000, 500_000]
    assert report["0"].total.forward_ns == 3 * 500_000
    assert report[""].total.forward_ns == (3 + 3 + 3) * 500_000
    # Each autograd node takes one step: addmm, and the two leaves of the linear layer; relu.
    assert report["1"].total.backward_ns == 500_000
    assert report["0"].total.backward_ns >= 3 * 500_000


def test_the_users_own_run_is_timed_by_the_device_too(clocks: Clocks) -> None:
    model = nn.Linear(4, 4)
    with tl.InspectorGadgets(model, measure="time") as inspector:
        model(torch.rand(2, 4)).sum().backward()
    assert inspector.report.record.run.clock == "device"
    assert inspector.report.ops[0].figures.forward_ns == 500_000
    assert clocks.waits == 1


def test_the_hosts_clock_is_used_where_all_is_on_the_cpu() -> None:
    assert device_clock([torch.rand(1)]) is None
    assert tl.profile(nn.Linear(1, 1), torch.rand(1, 1), repeats=1).record.run.clock == "wall"
