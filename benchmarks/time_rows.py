"""Rows 1 to 5: how much slower a model runs while it is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import models
import rival
import torch
from measure import Task, Timing, measure
from report import Line
from torch.overrides import TorchFunctionMode

import torcheer as tl

CAPTURE = "capture"
RECORD = "capture + record"


@dataclass
class Effort:
    """How long to measure."""

    clock: str
    rounds: int  # of models that take long
    rounds_small: int  # of models that take less than a millisecond, ten calls each
    rival_samples: int  # 0: leave the rival out

    def rival_every(self, rounds: int) -> int:
        return max(1, rounds // max(1, self.rival_samples))


class KeepReferences(TorchFunctionMode):
    """The least that keeping all activations can cost: a list of references, no names, no copies."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, (torch.Tensor, tuple, list)):
            self.kept.append(out)
        return out


class KeepContents(KeepReferences):
    """The least that keeping the contents can cost: what is about to be overwritten in place is copied first."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], torch.Tensor):
            for place, kept in enumerate(self.kept):
                if kept is args[0]:
                    self.kept[place] = args[0].clone()
        return super().__torch_function__(func, types, args, kwargs)


def structure(
    row: int, case: models.Case, bar: float, effort: Effort, *, grad: bool = False, small: bool = False
) -> list[Line]:
    """Structure and metadata of everything, no contents: rows 1 to 3."""
    model, x = case.model, case.x

    def capture() -> Any:
        return tl.log_forward_pass(model, x, layers_to_save=None)

    def capture_and_record() -> Any:
        history = capture()
        _ = history.record
        return history

    rounds, calls = (effort.rounds_small, 10) if small else (effort.rounds, 1)
    tasks = {
        "plain": Task(lambda: model(x), calls=calls),
        CAPTURE: Task(capture, calls=calls),
        RECORD: Task(capture_and_record, calls=calls),
    }
    if rival.is_installed() and effort.rival_samples:
        tasks[rival.NAME] = rival.task(lambda: rival.trace(model, x), effort.rival_every(rounds))
    with torch.set_grad_enabled(grad):
        timings = measure(tasks, rounds, effort.clock)
    name = f"{case.name}, {'grad' if grad else 'no_grad'}" if small else case.name
    return [_line(row, name, task, timings, "plain", bar) for task in (CAPTURE, RECORD)]


def contents(row: int, case: models.Case, bar: float, effort: Effort) -> list[Line]:
    """All activations kept: row 4."""
    model, x = case.model, case.x

    def keep(mode: type[KeepReferences]) -> Any:
        with mode() as references:
            model(x)
        return references

    tasks = {
        "plain": Task(lambda: model(x)),
        "references": Task(lambda: keep(KeepReferences)),
        "contents": Task(lambda: keep(KeepContents)),
        "all kept": Task(lambda: tl.log_forward_pass(model, x, layers_to_save="all")),
    }
    if rival.is_installed() and effort.rival_samples:
        run = lambda: rival.trace(model, x, "all")  # noqa: E731
        tasks[rival.NAME] = rival.task(run, effort.rival_every(effort.rounds))
    with torch.no_grad():
        timings = measure(tasks, effort.rounds, effort.clock)
    return [
        _line(row, case.name, "all kept", timings, "references", bar, shown="all kept ÷ kept references"),
        _line(row, case.name, "all kept", timings, "contents", None, shown="all kept ÷ references, overwritten copied"),
        _line(row, case.name, "contents", timings, "references", None, shown="such references ÷ kept references"),
        _line(row, case.name, "all kept", timings, "plain", None, shown="all kept ÷ plain"),
    ]


def backward(row: int, case: models.Case, bar: float, effort: Effort) -> list[Line]:
    """Forward and backward, all activations and gradients kept: row 5."""
    model, x = models.ScalarLoss(case.model).train(), case.x

    def clear() -> None:
        model.zero_grad(set_to_none=True)

    def plain() -> Any:
        loss = model(x)
        loss.backward()
        return loss

    def recorded() -> Any:
        history = tl.log_forward_pass(model, x, layers_to_save="all")
        history.log_backward(history.output)
        return history

    what = "forward + backward, all kept"
    tasks = {"plain": Task(plain, clear), what: Task(recorded, clear)}
    if rival.is_installed() and effort.rival_samples:
        every = effort.rival_every(effort.rounds)
        tasks[rival.NAME] = rival.task(lambda: rival.trace_backward(model, x), every, clear)
    timings = measure(tasks, effort.rounds, effort.clock)
    clear()
    return [_line(row, case.name, what, timings, "plain", bar)]


def _line(
    row: int,
    model: str,
    what: str,
    timings: dict[str, Timing],
    baseline: str,
    bar: float | None,
    shown: str = "",
) -> Line:
    base, ours, theirs = timings[baseline], timings[what], timings.get(rival.NAME)
    missing = "not measured" if rival.is_installed() else rival.MISSING
    return Line(
        row,
        model,
        shown or what,
        ours.min_ms / base.min_ms,
        bar=bar,
        rival=missing if theirs is None else theirs.min_ms / base.min_ms,
        baseline_ms=base.min_ms,
        torcheer_ms=ours.min_ms,
        spread=(base.spread, ours.spread),
        timings={name: timing.as_dict() for name, timing in timings.items()},
    )


def row_1(effort: Effort) -> list[Line]:
    """Structure of transformers."""
    makers = (models.gpt2, models.bert)
    return [line for maker in makers for line in structure(1, models.build(maker), 1.10, effort)]


def row_2(effort: Effort) -> list[Line]:
    """Structure of a convolutional network."""
    return structure(2, models.build(models.resnet50), 1.20, effort)


def row_3(effort: Effort) -> list[Line]:
    """Structure where operations are so small that only overhead counts."""
    case = models.build(models.mlp)
    modes = (False, True)
    return [line for grad in modes for line in structure(3, case, 4.0, effort, grad=grad, small=True)]


def row_4(effort: Effort) -> list[Line]:
    """Contents of everything."""
    makers = (models.gpt2, models.resnet50, models.resnet50_not_in_place)
    return [line for maker in makers for line in contents(4, models.build(maker), 1.15, effort)]


def row_5(effort: Effort) -> list[Line]:
    """Forward and backward with all gradients."""
    makers = (models.gpt2, models.resnet50)
    return [line for maker in makers for line in backward(5, models.build(maker), 1.35, effort)]
