"""A clock for devices that compute while Python goes on: CUDA, ROCm, XPU, MPS, whatever ``torch.accelerator`` offers.

Reading it puts an event into the device's queue and costs no wait. When the run is over, the device is waited for
once, and each reading becomes the time at which the device came to its event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from torcheer.capture.torch.events import CALL, OP
from torcheer.capture.torch.tape import Tape


class Event(Protocol):
    """What a device's events can do."""

    def record(self) -> None: ...
    def elapsed_time(self, end: Any, /) -> float: ...


class DeviceClock:
    """Readings are told apart by the host's time, until ``settle`` replaces them by the device's."""

    def __init__(self, make_event: Callable[[], Event], wait: Callable[[], object]) -> None:
        self._make_event = make_event
        self._wait = wait
        self._events: dict[int, Event] = {}  # reading → event
        self._times: dict[int, int] = {}
        self._last = 0

    def now(self) -> int:
        """A reading."""
        event = self._make_event()
        event.record()
        self._last = max(self._last + 1, perf_counter_ns())
        self._events[self._last] = event
        return self._last

    def settle(self, tape: Tape, nodes: list[Any]) -> None:
        """Wait for the device, and put its times in place of the readings on the tape and of nodes."""
        self._wait()
        if not self._events:
            return
        base = self._events[min(self._events)]
        for reading, event in self._events.items():
            self._times[reading] = round(base.elapsed_time(event) * 1e6)  # from milliseconds
        self._events.clear()
        for index, row in enumerate(tape.events):
            if type(row) is tuple and row[0] in (OP, CALL):
                place = 9 if row[0] == OP else 7
                tape.events[index] = (
                    *row[:place],
                    self._time(row[place]),
                    self._time(row[place + 1]),
                    *row[place + 2 :],
                )
        nodes[:] = [node._replace(**self._of_node(node)) for node in nodes]

    def _time(self, reading: int) -> int:
        return self._times.get(reading, reading)

    def _of_node(self, node: Any) -> dict[str, int]:
        start, end = self._time(node.start_ns), self._time(node.end_ns)
        return {"start_ns": start, "end_ns": end}


def device_clock(tensors: Iterable[torch.Tensor]) -> DeviceClock | None:
    """The clock of the accelerator that any of these tensors is on; None where all is on the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or all(tensor.device.type != accelerator.type for tensor in tensors):
        return None

    def make_event() -> Event:
        return torch.Event(accelerator, enable_timing=True)

    return DeviceClock(make_event, torch.accelerator.synchronize)
