"""Memory of module calls, the peak, and the timeline, from the events of taking and giving back.

All figures are in bytes above what was there before the run: params, buffers, inputs and gradients of earlier
passes are in none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from torcheer.profiling.report import CallMemory, Point
from torcheer.record.model import Record

SHARED_ROLES = ("param", "buffer")


@dataclass
class Run:
    """A stretch of the backward pass in which only nodes of one call run."""

    entry: int
    peak: int
    new: dict[int, int]  # storage → bytes taken in it and not given back


class Memory:
    """The memory events of a record, added up."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.held = list(accumulate((event.delta_bytes for event in record.memory), initial=0))
        self.parents = [call.parent for call in record.calls]
        self._extra = self._extra_backward() if record.run.num_backward else {}
        self._saved = self._saved_by_call()

    @property
    def is_measured(self) -> bool:
        """Was memory measured at all?"""
        return "memory" in self.record.run.measured

    @property
    def peak(self) -> int:
        """The most held at once."""
        return max(self.held)

    def after_forward(self) -> int:
        """Held when the model returned."""
        call = self.record.calls[0] if self.record.calls else None
        return self.held[call.memory[1]] if call is not None and call.memory is not None else 0

    def at_peak(self) -> dict[str, int]:
        """What was held at the peak, by category; what was there before is added under its own names."""
        record = self.record
        place = self.held.index(self.peak)
        found: dict[str, int] = {}
        for event in record.memory[:place]:
            found[event.role] = found.get(event.role, 0) + event.delta_bytes
        return {role: size for role, size in {**found, **self.before()}.items() if size}

    def before(self) -> dict[str, int]:
        """What was there before the run and is in no other figure: params, buffers, inputs."""
        record = self.record
        found: dict[str, int] = {}
        shares = {part.param: prod(part.shape) for part in record.parts if part.param is not None}
        for index, param in enumerate(record.params):
            size = param.size_bytes or 0
            if index in shares:  # of a param that is spread over processes, this one has a part
                size = size * shares[index] // max(param.num_elements or 1, 1)
            found[param.kind] = found.get(param.kind, 0) + size
        inputs = {
            record.values[item.value].storage: record.values[item.value].size_bytes or 0
            for op in record.ops
            if op.kind == "input"
            for item in op.outputs
        }
        if inputs:
            found["input"] = sum(inputs.values())
        return {role: size for role, size in found.items() if size}

    def of_call(self, index: int) -> CallMemory | None:
        """The figures of one module call."""
        call = self.record.calls[index]
        if call.memory is None:
            return None
        first, end = call.memory
        during = self.held[first : end + 1]
        taken: dict[int, int] = {}
        for event in self.record.memory[first:end]:
            taken[event.storage] = taken.get(event.storage, 0) + event.delta_bytes
        outputs = {self.record.values[item.value].storage for item in call.outputs}
        new = sum(taken.get(storage, 0) for storage in outputs if storage is not None)
        return CallMemory(during[0], max(during), during[-1], new, self.saved([index]), self._extra.get(index))

    def saved(self, calls: list[int]) -> int:
        """Storages that the graphs of these calls hold, each once; params and buffers apart."""
        storages: dict[int, int] = {}
        for call in calls:
            storages.update(self._saved.get(call, {}))
        return sum(storages.values())

    def held_for_backward(self) -> tuple[int, int]:
        """Bytes of all storages the graph holds, each once: of activations and inputs, and of params and buffers."""
        own: dict[int, int] = {}
        shared: dict[int, int] = {}
        for tensor in self.record.held:
            (shared if tensor.role in SHARED_ROLES else own)[tensor.storage] = tensor.size_bytes
        return sum(own.values()), sum(shared.values())

    def _saved_by_call(self) -> dict[int, dict[int, int]]:
        found: dict[int, dict[int, int]] = {}
        for tensor in self.record.held:
            if tensor.op is None or tensor.role in SHARED_ROLES:
                continue
            call: int | None = self.record.ops[tensor.op].call
            while call is not None:
                found.setdefault(call, {})[tensor.storage] = tensor.size_bytes
                call = self.parents[call]
        return found

    def _extra_backward(self) -> dict[int, int]:
        """The most a call's nodes took beyond what they left behind, which are gradients."""
        record = self.record
        extra: dict[int, int] = {}
        open_runs: dict[int, Run] = {}

        def close(call: int) -> None:
            run = open_runs.pop(call)
            extra[call] = max(extra.get(call, 0), run.peak - run.entry - sum(run.new.values()), 0)

        for place, event in enumerate(record.memory):
            if event.aten < 0 or record.aten[event.aten].phase != "backward":
                continue
            chain = self._chain(event.aten)
            for call in [call for call in open_runs if call not in chain]:
                close(call)
            for call in chain:
                run = open_runs.get(call)
                if run is None:
                    run = open_runs[call] = Run(self.held[place], self.held[place], {})
                run.peak = max(run.peak, self.held[place + 1])
                if event.delta_bytes > 0:
                    run.new[event.storage] = run.new.get(event.storage, 0) + event.delta_bytes
                else:
                    run.new.pop(event.storage, None)
        for call in list(open_runs):
            close(call)
        return extra

    def _chain(self, aten: int) -> list[int]:
        op = self.record.aten[aten]
        call: int | None = op.call if op.owner is not None else None
        chain = []
        while call is not None:
            chain.append(call)
            call = self.parents[call]
        return chain

    def timeline(self, row_of_call: Callable[[int], int | None]) -> list[Point]:
        """Every moment at which the memory held changed."""
        record = self.record
        points = []
        takers: dict[int, tuple[int | None, str]] = {}  # storage → row that took it, its role
        for place, event in enumerate(record.memory):
            op = record.aten[event.aten] if event.aten >= 0 else None
            row = row_of_call(op.call) if op is not None and op.owner is not None else None
            phase = "optimizer" if event.role == "optimizer" else op.phase if op is not None else "forward"
            # What is given back leaves the module and category that held it; another module may let go of it.
            taker, role = takers.setdefault(event.storage, (row, event.role))
            points.append(Point(event.aten, phase, row, self.held[place + 1], role, event.delta_bytes, taker))
        return points
