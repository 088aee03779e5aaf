"""What watching costs a training step, beside plain training and beside the rivals, in one process, in turns.

python benchmarks/watch_cost.py [mlp|resnet18|transformer] [--rivals] [--rounds N]

wall: how long the training thread takes for its steps, one torch thread, the writer's thread beside it.
cpu: processor time of the whole process, the writer's thread included, until everything is written.
Each figure is the ratio of the fastest turns; a turn is some steps in a row, and turns of all rows alternate.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from watch_models import MODELS, Training, build
from watch_rivals import rivals

import torcheer as tl

BARS = {"mlp": 1.3, "resnet18": 1.08, "transformer": 1.12}
QUIET_BAR = 1.01


@dataclass
class Row:
    """One way of training."""

    name: str
    training: Training
    flush: Callable[[], object] = lambda: None
    after_step: Callable[[Training], object] = lambda _: None
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def turn(self, steps: int) -> None:
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.training.step()
            self.after_step(self.training)
        wall = time.perf_counter() - wall
        self.flush()
        cpu = time.process_time() - cpu
        self.wall_ms.append(wall / steps * 1e3)
        self.cpu_ms.append(cpu / steps * 1e3)


def watched(name: str, model: str, folder: Path, log_freq: int) -> Row:
    training = build(model)
    watch = tl.watch(
        training.model, log_freq=log_freq, backend="store", dir=folder, name=f"{model}-{log_freq}", verbose=False
    )
    training.step()  # records the graph
    return Row(name, training, watch._sink.writer.flush)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.25, help="plain training in a turn, about so long")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models or list(MODELS):
            compare(model, Path(folder), given)


def compare(model: str, folder: Path, given: argparse.Namespace) -> None:
    plain = Row("plain", build(model))
    rows = [
        plain,
        watched("torcheer, every step", model, folder, 1),
        watched("torcheer, quiet steps", model, folder, 10**9),
    ]
    if given.rivals:
        rows += [Row(*rival) for rival in rivals(model, folder)]
    for row in rows:
        row.turn(2)
        row.wall_ms.clear()
        row.cpu_ms.clear()
    start = time.perf_counter()
    plain.training.step()
    steps = max(2, round(given.seconds / (time.perf_counter() - start)))
    for turn in range(given.rounds):
        shift = turn % len(rows)
        for row in rows[shift:] + rows[:shift]:
            row.turn(steps)
    report(model, rows, steps)


def report(model: str, rows: list[Row], steps: int) -> None:
    plain = rows[0]
    print(f"\n{plain.training.name}: plain step {min(plain.wall_ms):.2f} ms, {steps} steps a turn")
    print(f"{'':28}{'wall':>8}{'cpu':>8}{'median wall':>13}{'median cpu':>12}")
    for row in rows:
        wall, cpu = min(row.wall_ms) / min(plain.wall_ms), min(row.cpu_ms) / min(plain.cpu_ms)
        pairs = [a / b for a, b in zip(row.wall_ms, plain.wall_ms, strict=True)]
        cpu_pairs = [a / b for a, b in zip(row.cpu_ms, plain.cpu_ms, strict=True)]
        print(f"{row.name:28}{wall:8.3f}{cpu:8.3f}{statistics.median(pairs):13.3f}{statistics.median(cpu_pairs):12.3f}")
    every, quiet = rows[1], rows[2]
    # Of a hundred steps one is logged and 99 are quiet.
    for kind in ("wall_ms", "cpu_ms"):
        base = min(getattr(plain, kind))
        mixed = (min(getattr(every, kind)) + 99 * min(getattr(quiet, kind))) / 100 / base
        print(f"log_freq=100, {kind[:-3]:4}: {mixed:.4f} (bar {QUIET_BAR})")
    print(f"bar of every step: {BARS[model]}")


if __name__ == "__main__":
    main()
