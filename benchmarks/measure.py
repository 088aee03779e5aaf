"""Interleaved timing: what is compared runs in turns in one process, and the fastest turn counts.

On a shared machine two figures are comparable only when they were measured side by side: a ratio is always
made of two minima of the same run. The spread (median ÷ minimum) tells how quiet the machine was: near 1, the
figures can be trusted to a per cent or two.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CLOCKS: dict[str, Callable[[], int]] = {
    "wall": time.perf_counter_ns,
    # Immune to other processes, but blind to PyTorch's worker threads: for use with one thread only.
    "thread": time.thread_time_ns,
}


def _nothing() -> None:
    pass


@dataclass
class Task:
    """One of the things compared."""

    run: Callable[[], Any]  # what is timed; its result is dropped outside the timed region
    before: Callable[[], Any] = _nothing  # runs before each timed call, untimed
    after: Callable[[], Any] = _nothing  # runs after each timed call and the drop of its result, untimed
    calls: int = 1  # timed calls per turn
    every: int = 1  # takes part in every n-th round: for what is very slow
    num_warm_up: int = 2


@dataclass
class Timing:
    """Times of one task, in milliseconds."""

    samples_ms: list[float] = field(default_factory=list)

    @property
    def min_ms(self) -> float:
        return min(self.samples_ms)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    @property
    def spread(self) -> float:
        return self.median_ms / self.min_ms

    def as_dict(self) -> dict[str, float]:
        return {"min_ms": self.min_ms, "median_ms": self.median_ms, "num_samples": len(self.samples_ms)}


def measure(tasks: dict[str, Task], rounds: int, clock: str = "wall") -> dict[str, Timing]:
    """Time all tasks, in turns. Each turn starts with the garbage of the others collected."""
    for task in tasks.values():
        for _ in range(task.num_warm_up):
            _timed(task, CLOCKS[clock])
    gc.collect()
    # What lives by now stays out of the collections between turns, which would take longer than the turns.
    gc.freeze()
    timings = {name: Timing() for name in tasks}
    names = list(tasks)
    for turn in range(rounds):
        # Each task comes after each other one in some round.
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            task = tasks[name]
            if turn % task.every:
                continue
            gc.collect()
            timings[name].samples_ms += [_timed(task, CLOCKS[clock]) for _ in range(task.calls)]
    gc.unfreeze()
    return timings


def _timed(task: Task, now: Callable[[], int]) -> float:
    task.before()
    start = now()
    result = task.run()
    end = now()
    del result
    task.after()
    return (end - start) / 1e6
