"""What watching costs, with the bars it has to clear: a training step beside plain training and beside the rivals, in
one process, in turns; then memory, disk, readers, and whether the weights are the same.

python benchmarks/watch_cost.py [PART …] [--rivals] [--rounds N] [--json FILE]

PART: mlp, resnet18, transformer, flat, memory, disk, reader, identical, compiled; default: all of them. With the rivals
    all take about ten minutes on an idle machine; at the end every figure stands beside its bar.
--rivals: also torchexplorer, wandb.watch offline and TensorBoard histograms, those that are installed. torchexplorer
    comes with `pip install --no-deps --target DIR torchexplorer==1.1.2 loguru flask pyperclip` and PYTHONPATH=DIR.
cpu: processor time of the whole process, the writer's thread included, until everything is written. Bars are about
    this one, as the rivals' figures are.
wall: how long the training thread takes for its steps, one torch thread, the writer's thread beside it.
A turn is some steps in a row, turns of all rows alternate; each figure is the median, over the rounds, of a turn's
ratio to the plain turn beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import watch_quiet
from watch_models import MODELS, Training, build
from watch_rivals import rivals
from watch_run import PARTS, Figure

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
    end: Callable[[], object] = lambda: None
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
    return Row(name, training, watch._sink.writer.flush, end=watch.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *MODELS, *PARTS], default=[])
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.25, help="plain training in a turn, about so long")
    parser.add_argument("--quiet-seconds", type=float, default=25, help="of steps for log_freq=100, each model")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures: list[Figure] = []
    rivals_cost: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in given.parts or [*MODELS, *PARTS]:
            found = PARTS[part]() if part in PARTS else compare(part, Path(folder), given, rivals_cost)
            for figure in found:
                print(figure, flush=True)
                figures.append(figure)
    if given.json is not None:
        plain = {"torch": torch.__version__, "rivals": rivals_cost}
        plain["figures"] = [{**figure._asdict(), "holds": figure.holds} for figure in figures]
        given.json.write_text(json.dumps(plain, indent=1), encoding="utf-8")
    print("\nEverything, beside its bar:")
    for figure in figures:
        print(figure)
    for row in rivals_cost:
        print(f"{row['model']}, {row['row']}: {row['cpu']:.2f} × cpu, {row['wall']:.2f} × wall")
    missed = [figure.name for figure in figures if not figure.holds]
    print(f"\n{len(figures) - len(missed)} of {len(figures)} bars hold" + "".join(f"\nmissed: {one}" for one in missed))
    return bool(missed)


def compare(
    model: str, folder: Path, given: argparse.Namespace, rivals_cost: list[dict[str, object]]
) -> Iterator[Figure]:
    """Turns of plain, watched and rivals' training."""
    plain = Row("plain", build(model))
    every = watched("torcheer, every step", model, folder, 1)
    rows = [plain, every]
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
    print(f"\n{plain.training.name}: plain step {min(plain.cpu_ms):.2f} ms, {steps} steps a turn")
    print(f"{'':28}{'cpu':>8}{'wall':>8}   least cpu, least wall")
    for row in rows:
        cpu, wall = ratio(row.cpu_ms, plain.cpu_ms), ratio(row.wall_ms, plain.wall_ms)
        least = [min(of) / min(base) for of, base in ((row.cpu_ms, plain.cpu_ms), (row.wall_ms, plain.wall_ms))]
        print(f"{row.name:28}{cpu:8.3f}{wall:8.3f}{least[0]:11.3f}{least[1]:12.3f}")
        rivals_cost.append({"model": model, "row": row.name, "cpu": cpu, "wall": wall})
    cost = ratio(every.cpu_ms, plain.cpu_ms)
    yield Figure(f"{plain.training.name}: everything logged every step, cpu", cost, BARS[model], "×")
    every.end()
    seldom = watch_quiet.cost(model, folder, given.quiet_seconds)
    print(
        f"log_freq=100: a quiet step {seldom.quiet:.4f}, a logged one {seldom.logged:.3f}, the writer's waiting "
        f"{seldom.idle:.5f}; together {seldom.total:.4f} ± {seldom.uncertainty:.4f}"
    )
    yield Figure(f"{plain.training.name}: log_freq=100, cpu", seldom.total, QUIET_BAR, "×")


def ratio(times: list[float], plain: list[float]) -> float:
    """Median of the turns' ratios to the plain turn of their round."""
    return statistics.median(a / b for a, b in zip(times, plain, strict=True))


if __name__ == "__main__":
    sys.exit(main())
