"""What a watch costs that logs every hundredth step: single steps of one training, in turns with and without it.

Two trainings of one kind differ by 1 to 2 % through where their tensors lie in memory alone, which is more than what is
measured here. So one training makes all the steps; the watch is taken off and put on again between them, and each
step is compared with the one beside it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from watch_models import build

import torcheer as tl

EVERY = 100
LOGGED = 10  # pairs of steps for each logged one


class Cost(NamedTuple):
    """Processor time, as multiples of plain steps."""

    quiet: float  # a step that is not logged
    logged: float  # one that is, among others that are not
    idle: float  # of the writer's thread while it waits
    uncertainty: float  # standard error of ``total``

    @property
    def total(self) -> float:
        """Of a training with one logged step in a hundred."""
        return ((EVERY - 1) * self.quiet + self.logged) / EVERY + self.idle


def cost(model: str, folder: Path, seconds: float = 25) -> Cost:
    training = build(model)
    watch = tl.watch(training.model, log_freq=EVERY, backend="store", dir=folder, name=f"{model}-quiet", verbose=False)
    watcher = watch._watchers[0]

    def step(number: int | None = None) -> float:
        """Time of a step; the one of that number, or one that is not watched."""
        if number is None:
            watcher.stop()
        else:
            watcher.step = number - 1
        start = time.process_time()
        training.step()
        if number is not None and number % EVERY == 0:
            watch._sink.writer.flush()
        took = time.process_time() - start
        if number is None:
            watcher.start()
        return took

    for number in (0, 1, None, EVERY):
        plain = step(number)
    quiet, logged = [], []
    start, pairs = time.process_time(), 0
    while time.process_time() - start < seconds or len(logged) < 3:
        pairs += 1
        one, other = (step(1), step()) if pairs % 2 else (step(), step(1))[::-1]
        quiet.append(one / other)
        if pairs % LOGGED == 0:
            plain = step()
            logged.append(step(EVERY * (1 + pairs // LOGGED)) / plain)
            step(1)  # finds the caches as a logged step leaves them
    before = time.process_time()
    time.sleep(1)
    idle = time.process_time() - before
    watch.stop()
    deviation = 1.4826 * statistics.median(abs(one - statistics.median(quiet)) for one in quiet)
    return Cost(statistics.median(quiet), statistics.median(logged), idle, 1.2533 * deviation / len(quiet) ** 0.5)
