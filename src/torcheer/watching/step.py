"""What one logged step collects on the training thread, and how it becomes rows on the writer's thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torcheer.store.schema import COLUMN, FLAG_AT_LEAST, FLAG_SAMPLED, FLAG_SCALED
from torcheer.store.series import StepRows
from torcheer.store.summary import BOUNDS, Samples, summarise
from torcheer.watching.sampling import IN_SAMPLE, Row

GRADIENT, VALUE = 1, 0


@dataclass(frozen=True)
class Binning:
    """How values become histograms."""

    bins: int
    reject_outlier_proportion: float


class LoggedStep:
    """Rows of one step, while it lasts. After ``close`` nothing is added any more."""

    __slots__ = ("after", "before", "is_open", "lane", "optimized", "rows", "scale", "series", "step", "time", "which")

    def __init__(self, lane: str, step: int) -> None:
        self.lane, self.step, self.time = lane, step, time.time()
        self.is_open = True
        self.rows: list[Row] = []
        self.which: list[int] = []  # GRADIENT or VALUE, of each row
        self.series: list[tuple[int, int]] = []  # (series, its row)
        self.before: dict[int, int] = {}  # id of a parameter → its row
        self.after: dict[int, torch.Tensor] = {}  # row of a parameter → the same sample after the optimizer's step
        self.scale: float | None = 1.0  # of the gradients, under a GradScaler; None: not known
        self.optimized = False  # whether after is the work of an optimizer, or of other code that changed parameters

    def add(self, row: Row, which: int = VALUE) -> int:
        self.rows.append(row)
        self.which.append(which)
        return len(self.rows) - 1

    def close(self) -> None:
        self.is_open = False


@dataclass
class Collected:
    """The same, handed over: it is no longer shared with the training thread."""

    lane: str
    step: int
    time: float
    rows: list[Row]
    which: list[int]
    series: list[tuple[int, int]]
    after: dict[int, torch.Tensor]
    optimized: bool
    scale: float | None
    ready: Callable[[], Any] | None = field(default=None)  # waits until another device has finished the samples

    @classmethod
    def of(cls, step: LoggedStep) -> Collected:
        series = list(step.series)  # first: it points into the others, which may be growing
        rows, after = list(step.rows), dict(step.after)
        return cls(
            step.lane, step.step, step.time, rows, list(step.which), series, after, step.optimized, step.scale,
            _event(rows),
        )  # fmt: skip

    def to_rows(self, binning: Binning) -> StepRows | None:
        """Statistics and histograms. Runs on the writer's thread."""
        if self.ready is not None:
            self.ready()
        self._join_repeated()
        if not self.series:
            return None
        used = sorted({row for _, row in self.series})
        place = {row: number for number, row in enumerate(used)}
        rows = [self.rows[number] for number in used]
        is_gradient = np.array([self.which[number] == GRADIENT for number in used])
        samples = self._samples(rows, is_gradient)
        bounds = {number: BOUNDS[row.saturating] for number, row in enumerate(rows) if row.saturating is not None}
        stats, counts = summarise(samples, binning.bins, binning.reject_outlier_proportion, bounds)
        self._add_exact(stats, rows, is_gradient)
        self._add_updates(stats, place)
        ids = np.array([number for number, _ in self.series], np.uint32)
        return StepRows(
            self.lane, self.step, self.time, ids, np.array([place[row] for _, row in self.series], np.uint32),
            stats, counts,
        )  # fmt: skip

    def _join_repeated(self) -> None:
        """Several forwards before a backward: a series has several rows, shown as one."""
        of_series: dict[int, list[int]] = {}
        for number, row in self.series:
            of_series.setdefault(number, []).append(row)
        if len(of_series) == len(self.series):
            return
        joined: dict[tuple[int, ...], int] = {}
        for number, rows in of_series.items():
            key = tuple(dict.fromkeys(rows))
            if len(key) > 1 and key not in joined:
                joined[key] = len(self.rows)
                self.rows.append(_joined([self.rows[row] for row in key]))
                self.which.append(self.which[key[0]])
            of_series[number] = [joined.get(key, key[0])]
        self.series = [(number, rows[0]) for number, rows in of_series.items()]

    def _samples(self, rows: list[Row], is_gradient: np.ndarray[Any, Any]) -> Samples:
        lengths = np.array([row.values.numel() for row in rows], np.int64)
        devices = {row.values.device for row in rows}
        if len(devices) == 1:
            flat = torch.cat([row.values for row in rows]).cpu()
        else:
            flat = torch.cat([row.values.cpu() for row in rows])
        values = flat.numpy()
        if self.scale not in (1.0, None):
            values = np.where(np.repeat(is_gradient, lengths), values / np.float32(self.scale), values)
        return Samples(values, lengths)

    def _add_exact(self, stats: Any, rows: list[Row], is_gradient: np.ndarray[Any, Any]) -> None:
        squares = [row.squares for row in rows]
        in_sample = np.array([one is IN_SAMPLE for one in squares])
        late = np.array([isinstance(one, torch.Tensor) for one in squares])
        known = np.array([one is not None for one in squares]) & ~in_sample
        norms = np.sqrt([math.nan if one is None or one is IN_SAMPLE else float(one) for one in squares])
        sampled = np.array([row.num_elements for row in rows]) > stats[:, COLUMN["count"]]
        flags = np.where(sampled, FLAG_SAMPLED, 0)
        only_sample = late & ~np.isfinite(norms)
        flags[only_sample] |= FLAG_AT_LEAST
        exact = known & ~only_sample
        stats[exact, COLUMN["nan"]] = np.array([row.nan for row in rows])[exact]
        stats[exact, COLUMN["inf"]] = np.array([row.inf for row in rows])[exact]
        for number, row in enumerate(rows):
            if row.dead is not None:
                stats[number, COLUMN["dead"]] = float(row.dead)
        if self.scale is None:
            flags[is_gradient] |= FLAG_SCALED
        else:
            norms[is_gradient] /= self.scale
        norms[in_sample] = _norms(stats[in_sample])  # of values that were divided
        stats[:, COLUMN["norm"]] = norms
        stats[:, COLUMN["flags"]] = flags

    def _add_updates(self, stats: Any, place: dict[int, int]) -> None:
        used = [row for row in self.after if row in place]
        if not used:
            return
        before, after = (torch.cat(parts).cpu().numpy() for parts in (
            [self.rows[row].values for row in used], [self.after[row] for row in used]
        ))  # fmt: skip
        lengths = np.array([self.after[row].numel() for row in used])
        starts = np.cumsum(lengths) - lengths
        with np.errstate(all="ignore"):  # parameters may be anything
            change = np.sqrt(np.add.reduceat((after - before).astype(np.float64) ** 2, starts))
            size = np.sqrt(np.add.reduceat(before.astype(np.float64) ** 2, starts))
            ratio = np.where(size > 0, change / size, np.nan)
        if self.optimized or change.any():  # else nothing has stepped yet
            stats[[place[row] for row in used], COLUMN["update"]] = ratio


def _norms(stats: Any) -> Any:
    """Norms of tensors whose samples have all their values."""
    count, mean, std, nan, inf = (
        stats[:, COLUMN[name]].astype(np.float64) for name in ("count", "mean", "std", "nan", "inf")
    )
    return np.where(nan > 0, np.nan, np.where(inf > 0, np.inf, np.sqrt(count * (mean**2 + std**2))))


def _joined(rows: list[Row]) -> Row:
    values = torch.cat([row.values for row in rows])
    squares = [row.squares for row in rows]
    if all(one is IN_SAMPLE for one in squares):
        total: Any = IN_SAMPLE
    elif any(one is None for one in squares):
        total = None
    else:
        total = sum(_square(row) for row in rows)
    result = Row(values, total, sum(row.num_elements for row in rows))
    result.nan, result.inf = sum(row.nan for row in rows), sum(row.inf for row in rows)
    result.saturating = rows[0].saturating
    known = [float(row.dead) for row in rows if row.dead is not None]
    result.dead = sum(known) / len(known) if known else None
    return result


def _square(row: Row) -> Any:
    return torch.dot(row.values, row.values) if row.squares is IN_SAMPLE else row.squares


def _event(rows: list[Row]) -> Callable[[], Any] | None:
    """The samples are computed in the order of the training thread's stream; another thread has its own."""
    if not any(row.values.is_cuda for row in rows):
        return None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize
