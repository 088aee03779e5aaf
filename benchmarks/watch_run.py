"""What a long watched run costs beside time: memory, disk, readers, and whether it changes anything."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from watch_models import Training, build

import torcheer as tl
from torcheer.errors import StoreError
from torcheer.store import Run


class Figure(NamedTuple):
    """One measured figure and its bar."""

    name: str
    value: float
    bar: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.value <= self.bar

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        return f"{self.name:62}{self.value:10.3f} {self.unit:6} bar {self.bar:g}: {verdict}"


def small() -> Training:
    """Steps of a millisecond."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    return Training("small", model, torch.optim.SGD(model.parameters(), 1e-3), torch.randn(32, 32),
                    torch.randint(10, (32,)))  # fmt: skip


def watched(training: Training, folder: Path, name: str) -> tl.watch:
    return tl.watch(training.model, log_freq=1, backend="store", dir=folder, name=name, verbose=False)


def flat() -> Iterator[Figure]:
    """Cost of the first logged steps against those after 1,000, both as multiples of plain ones beside them."""
    watched_model, plain = build("mlp"), build("mlp")
    with tempfile.TemporaryDirectory() as folder, watched(watched_model, Path(folder), "flat") as w:
        watched_model.step()
        plain.step()
        early = _ratio(watched_model, plain, w.flush)
        for _ in range(900):
            watched_model.step()
        late = _ratio(watched_model, plain, w.flush)
    yield Figure("a logged step after 1,000 against the first ones (MLP, cpu)", late / early, 1.05, "×")


def _ratio(one: Training, other: Training, flush: Callable[[], object]) -> float:
    ratios = []
    for _ in range(8):
        took = []
        for training in (one, other):
            start = time.process_time()
            for _ in range(6):
                training.step()
            flush()
            took.append(time.process_time() - start)
        ratios.append(took[0] / took[1])
    return statistics.median(ratios)


def memory() -> Iterator[Figure]:
    training = small()
    with tempfile.TemporaryDirectory() as folder, watched(training, Path(folder), "memory") as w:
        for _ in range(500):  # caches of the allocator and of SQLite fill up
            training.step()
        w.flush()
        before = _resident_mb()
        for _ in range(10_000):
            training.step()
        w.flush()
        yield Figure("memory growth over 10,000 logged steps", _resident_mb() - before, 20, "MB")
        with w.open() as run:
            tensors, steps = len(run.series), 10_500
        size = sum(path.stat().st_size for path in w.folder.glob("rank-0.sqlite*"))
        yield Figure(
            "disk per logged step and tensor, 10,500 steps of a small MLP", size / steps / tensors, 100, "bytes"
        )


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def disk(steps: int = 1000) -> Iterator[Figure]:
    for model in ("mlp", "transformer"):
        training = build(model)
        if model == "transformer":  # as many tensors, batches that take less time
            training.x, training.y = training.x[:2], training.y[:2]
        with tempfile.TemporaryDirectory() as folder, watched(training, Path(folder), model) as w:
            for _ in range(steps):
                training.step()
            w.flush()
            with w.open() as run:
                tensors = len(run.series)
            w.stop()
            size = sum(path.stat().st_size for path in w.folder.iterdir() if path.is_file())
        name = f"disk per logged step and tensor, {steps} steps of {training.name}"
        yield Figure(name, size / steps / tensors, 100, "bytes")


WRITER = """
import sys, time
sys.path[:0] = [sys.argv[2]]
import torch
torch.set_num_threads(1)
from watch_run import small, watched
from pathlib import Path
training = small()
w = watched(training, Path(sys.argv[1]), "run")
took = []
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    start = time.thread_time()
    training.step()
    took.append(time.thread_time() - start)
w.stop()
took.sort()
print(took[len(took) // 2] * 1e3, len(took), w.failure)
"""


def reader(seconds: float = 12) -> Iterator[Figure]:
    """Polls a hundred times a second while another process trains; then the same training without a reader."""
    steps = []
    for is_read in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", WRITER, folder, str(Path(__file__).parent), str(seconds)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            if is_read:
                took, num_errors = _poll(Path(folder) / "run", process)
            out = process.communicate()[0].split()
            steps.append(float(out[0]))
    took.sort()
    yield Figure(f"errors in {len(took)} polls beside a writer", num_errors, 0, "")
    yield Figure("99th percentile of a poll and the newest step, wall", took[len(took) * 99 // 100] * 1e3, 2, "ms")
    yield Figure("a writer's median step with a reader against without", steps[0] / steps[1], 1.05, "×")


def _poll(folder: Path, process: subprocess.Popen[str]) -> tuple[list[float], int]:
    while not (folder / "rank-0.sqlite").exists():
        time.sleep(0.05)
    time.sleep(1)
    took, num_errors, cursor = [], 0, None
    with Run.open(folder) as run:
        while process.poll() is None:
            start = time.perf_counter()
            try:
                change = run.follow(cursor)
                cursor = change.cursor
                run.at()
            except StoreError:
                num_errors += 1
            took.append(time.perf_counter() - start)
            time.sleep(0.01)
    return took, num_errors


def identical() -> Iterator[Figure]:
    for model in ("mlp", "resnet18", "transformer"):
        plain, other = build(model), build(model)
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            for _ in range(4):
                plain.step()
            torch.manual_seed(1)
            with watched(other, Path(folder), model):
                for _ in range(4):
                    other.step()
        pairs = zip(plain.model.state_dict().values(), other.model.state_dict().values(), strict=True)
        different = sum(not torch.equal(one, two) for one, two in pairs)
        yield Figure(f"weights and buffers that differ from an unwatched run, {plain.name}", different, 0, "")


def compiled() -> Iterator[Figure]:
    """What watching a compiled model costs, as multiples of its compiled step. It has no bar; it is stated."""
    ways: dict[str, str | None] = {
        "compiled": None,
        'compiled="outside", the default': "outside",
        'compiled="eager"': "eager",
    }
    trainings = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name, way in ways.items():
            training = build("transformer")
            training.model = torch.compile(training.model)
            flush: Callable[[], object] = int
            if way is not None:
                watch = tl.watch(
                    training.model, log_freq=1, compiled=way, backend="store", dir=folder, name=way, verbose=False
                )
                flush = stack.enter_context(watch).flush
            for _ in range(3):
                training.step()
            trainings.append((name, training, flush))
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(20):
            for name, training, flush in trainings:
                start = time.process_time()
                training.step()
                flush()
                took[name].append(time.process_time() - start)
    plain, *watched_ones = took.values()
    print(f"\nsmall transformer under torch.compile, {statistics.median(plain) * 1e3:.1f} ms a step; every step logged")
    for name, times in zip(list(ways)[1:], watched_ones, strict=True):
        ratio = statistics.median(one / other for one, other in zip(times, plain, strict=True))
        print(f"    {name}: {ratio:.3f} × cpu")
    yield from ()


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "flat": flat, "memory": memory, "disk": disk, "reader": reader, "identical": identical,
    "compiled": compiled,
}  # fmt: skip
