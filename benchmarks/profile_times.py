"""Rows about cost: a training step that is checked or profiled, beside the same step plain."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

import torcheer as tl
from benchmarks.healthy_nets import healthy
from benchmarks.measure import Task, Timing, measure
from benchmarks.profile_figures import Figure, exactly
from benchmarks.sick_nets import CASES


class Step:
    """A training step of a GPT-2 of six layers, with its dropout; one thread."""

    def __init__(self, width: int, tokens: int, batch: int) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import transformers  # takes seconds

        transformers.logging.set_verbosity_error()
        torch.manual_seed(0)
        config = transformers.GPT2Config(n_layer=6, n_embd=width, n_head=8, vocab_size=8000, n_positions=tokens)
        self.model = transformers.GPT2LMHeadModel(config)
        self.ids = torch.randint(0, 8000, (batch, tokens))

    def __call__(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.model(input_ids=self.ids, labels=self.ids).loss.backward()


class Open:
    """An inspection that is open around each timed call, and opened and closed outside of it."""

    def __init__(self, step: Step, **options: Any) -> None:
        self.step, self.options = step, options
        self.inspector: Any = None

    def before(self) -> None:
        self.inspector = tl.InspectorGadgets(self.step.model, **self.options)
        self.inspector.start()

    def after(self) -> None:
        self.inspector.finish()
        self.inspector = None


def _anomaly(step: Step) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        step()


def _profiled(step: Step) -> None:
    with tl.InspectorGadgets(step.model, measure="time"):
        step()


# The step of the bars takes half a second on one thread of a small machine; that of the other figures a third of it.
QUIET = 1.05  # median ÷ minimum of the plain step
MAX_TIMES = 3  # as many rounds as were asked for
SIZES = {"mid": (512, 256, 1), "small": (256, 128, 2)}


def steps(size: str, rounds: int) -> dict[str, Timing]:
    """All ways to run the step, in turns. CPU time of one thread: the machine may be busy."""
    step = Step(*SIZES[size])
    guard, sentinel = Open(step, measure="nan", nan="stop"), Open(step, measure="nan", nan="stop", replay=True)
    tasks = {
        "plain": Task(step),
        "every op checked": Task(step, guard.before, guard.after),
        "checked by step, replayed on a hit": Task(step, sentinel.before, sentinel.after),
        "profiled": Task(lambda: _profiled(step)),
        "anomaly mode": Task(lambda: _anomaly(step), every=3),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # anomaly mode warns that it is slow
            timings = measure(tasks, rounds, "thread")
            for _ in range(MAX_TIMES - 1):
                if timings["plain"].spread < QUIET:
                    break
                # Something else ran on the machine: noise only adds time, so more rounds bring the minima nearer.
                for name, more in measure(tasks, rounds, "thread").items():
                    timings[name].samples_ms += more.samples_ms
            return timings
    finally:
        torch.set_num_threads(threads)


def latency(rounds: int) -> Iterator[Figure]:
    """Forward time of models that take about a millisecond, as shown, beside their plain latency."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, (model, x) in quick_nets().items():
            shown: list[float] = []

            def profiled(model: Any = model, x: Any = x, shown: list[float] = shown) -> None:
                report = tl.profile(model, x, measure="time", repeats=5, clock="thread")
                shown.append((report.totals.figures.forward_ns or 0) / 1e6)

            with torch.no_grad():
                tasks = {"plain": Task(lambda model=model, x=x: model(x), calls=5), "profiled": Task(profiled)}
                plain = measure(tasks, rounds, "thread")["plain"].median_ms
            yield Figure(
                10, "forward time shown ÷ plain latency", name, median(shown[2:]) / plain,
                note=f"plain {plain:.2f} ms; medians", details={"shown_ms": shown},
            )  # fmt: skip
    finally:
        torch.set_num_threads(threads)


def quick_nets() -> dict[str, tuple[Any, Any]]:
    """Models of a millisecond: many ops, and next to nothing to compute."""
    import transformers  # takes seconds

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=100, bos_token_id=0, eos_token_id=0)
    layers = [layer for _ in range(50) for layer in (torch.nn.Linear(32, 32), torch.nn.ReLU())]
    return {
        "GPT-2, 2 layers, 32 wide": (transformers.GPT2Model(config).eval(), torch.randint(0, 100, (2, 16))),
        "MLP, 50 layers, 32 wide": (torch.nn.Sequential(*layers), torch.rand(4, 32)),
    }


def nan_check(rounds: int) -> Iterator[Figure]:
    """What checking every op of a training step costs, what profiling it costs; what the check finds."""
    for size in SIZES:
        timings = steps(size, rounds)
        plain = timings["plain"]
        details = {name: timing.as_dict() for name, timing in timings.items()}
        for name, timing in timings.items():
            if name == "plain":
                continue
            bar = 1.10 if size == "mid" and name in ("every op checked", "profiled") else None
            note = (
                f"plain {plain.min_ms:.0f} ms, {len(timing.samples_ms)} rounds, spread {plain.spread:.2f} and "
                f"{timing.spread:.2f}; of medians {timing.median_ms / plain.median_ms:.3f}"
            )
            row = 8 if name == "profiled" else 7
            value = timing.min_ms / plain.min_ms
            yield Figure(row, f"step ÷ plain step, {size} GPT-2", name, value, high=bar, note=note, details=details)
    yield from planted()


def planted() -> Iterator[Figure]:
    """Births planted in small nets: found at the right op of the right module, or missed."""
    missed = []
    for case in CASES:
        torch.manual_seed(0)
        model, x = case.make()
        with tl.InspectorGadgets(model, measure="nan") as inspector:
            model(x).backward()
        alarms = inspector.report.alarms
        first = alarms[0] if alarms else None
        wanted = (case.phase, case.function, case.module, case.kind)
        if first is None or (first.phase, first.function, first.module, first.kind) != wanted:
            missed.append(case.name)
    case = f"{len(CASES)} planted births"
    yield exactly(7, "not found at their op", case, len(missed), 0, unit="", note=", ".join(missed))
    alarms = []
    for name, make in healthy().items():
        torch.manual_seed(0)
        model, args, kwargs = make()
        with tl.InspectorGadgets(model, measure="nan") as inspector:
            out = model(*args, **kwargs)
            (out.loss if hasattr(out, "loss") else out.mean()).backward()
        alarms += [f"{name}: {finding.text}" for finding in inspector.report.alarms]
    yield exactly(7, "false alarms", "healthy models", len(alarms), 0, unit="", note="; ".join(alarms))
