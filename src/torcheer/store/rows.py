"""Rows of one series: histograms and statistics over steps, packed for disk and merged into coarser ones."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torcheer.store.schema import COLUMN, STATISTICS
from torcheer.store.series import Counts, Floats, StepRows

_STEP_HEAD = struct.Struct("<4sHHIII")  # magic, statistics, bins, rows, series, reserved
_CHUNK_HEAD = struct.Struct("<4sHHI")  # magic, statistics, bins, rows
_STEP_MAGIC = b"TRS1"
_COUNTS = {b"TRC1": "<u4", b"TRC2": "<u2"}  # magic of a chunk → how it keeps counts
SIGNAL = "signal"
_LEVEL = 1  # of zlib: 6 saves 4 % and takes twice the time


@dataclass
class Rows:
    """One series over steps. In merged rows a row covers the steps ``steps[i]`` to ``last_steps[i]``."""

    steps: npt.NDArray[np.int64]
    last_steps: npt.NDArray[np.int64]
    stats: Floats  # [rows, len(STATISTICS)]
    counts: npt.NDArray[np.uint32]  # [rows, bins], in equal parts of the range from low to high

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> Floats:
        """One statistic over the steps: ``rows["mean"]``. ``"signal"``: the mean's size ÷ the deviation, how much of a
        gradient points one way."""
        if name == SIGNAL:
            with np.errstate(divide="ignore", invalid="ignore"):
                return (np.abs(self["mean"]) / self["std"]).astype(np.float32)
        return self.stats[:, COLUMN[name]]

    def between(self, since: int | None, until: int | None) -> Rows:
        """The rows that overlap ``since <= step < until``."""
        keep = np.ones(len(self), bool)
        if since is not None:
            keep &= self.last_steps >= since
        if until is not None:
            keep &= self.steps < until
        return Rows(self.steps[keep], self.last_steps[keep], self.stats[keep], self.counts[keep])


def empty(bins: int) -> Rows:
    none = np.zeros(0, np.int64)
    return Rows(none, none, np.zeros((0, len(STATISTICS)), np.float32), np.zeros((0, bins), np.uint32))


def joined(parts: Sequence[Rows], bins: int) -> Rows:
    """Rows after one another."""
    parts = [part for part in parts if len(part)] or [empty(bins)]
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.last_steps for part in parts]),
        np.concatenate([part.stats for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


# -- one step, all series --------------------------------------------------------------------------


def pack_step(rows: StepRows) -> bytes:
    """The body of a row of the table ``steps``."""
    num_rows, bins = rows.counts.shape
    head = _STEP_HEAD.pack(_STEP_MAGIC, len(STATISTICS), bins, num_rows, len(rows.series), 0)
    return b"".join(
        (
            head,
            rows.series.astype("<u4").tobytes(),
            rows.rows.astype("<u4").tobytes(),
            rows.stats.astype("<f4").tobytes(),
            rows.counts.astype("<u2").tobytes(),
        )
    )


def unpack_step(lane: str, step: int, time: float, body: bytes) -> StepRows:
    """The inverse; the arrays are views of ``body``."""
    magic, num_stats, bins, num_rows, num_series, _ = _STEP_HEAD.unpack_from(body)
    if magic != _STEP_MAGIC:
        raise ValueError("not a packed step")
    place = _STEP_HEAD.size
    series = np.frombuffer(body, "<u4", num_series, place)
    place += 4 * num_series
    index = np.frombuffer(body, "<u4", num_series, place)
    place += 4 * num_series
    stats = np.frombuffer(body, "<f4", num_rows * num_stats, place).reshape(num_rows, num_stats)
    place += 4 * num_rows * num_stats
    counts = np.frombuffer(body, "<u2", num_rows * bins, place).reshape(num_rows, bins)
    return StepRows(lane, step, time, series, index, stats, counts)


# -- one series, many steps ------------------------------------------------------------------------


def pack_chunk(rows: Rows) -> bytes:
    """The body of a row of the table ``chunks``: columns, bytes of equal weight side by side, compressed."""
    num_rows, bins = rows.counts.shape
    steps = np.diff(rows.steps, prepend=0).astype("<i8")
    spans = (rows.last_steps - rows.steps).astype("<i8")
    magic = b"TRC2" if rows.counts.max(initial=0) <= np.iinfo(np.uint16).max else b"TRC1"
    parts = (steps, spans, rows.stats.T.astype("<f4"), rows.counts.T.astype(_COUNTS[magic]))
    return _CHUNK_HEAD.pack(magic, rows.stats.shape[1], bins, num_rows) + zlib.compress(
        b"".join(_by_weight(part) for part in parts), _LEVEL
    )


def unpack_chunk(body: bytes) -> Rows:
    """The inverse."""
    magic, num_stats, bins, num_rows = _CHUNK_HEAD.unpack_from(body)
    if magic not in _COUNTS:
        raise ValueError("not a packed chunk")
    data = zlib.decompress(memoryview(body)[_CHUNK_HEAD.size :])
    place = 0

    def take(dtype: str, count: int) -> npt.NDArray[np.generic]:
        nonlocal place
        width = np.dtype(dtype).itemsize
        planes = np.frombuffer(data, np.uint8, count * width, place).reshape(width, count)
        place += count * width
        return np.ascontiguousarray(planes.T).view(dtype).ravel()

    steps = np.cumsum(take("<i8", num_rows).astype(np.int64))
    last = steps + take("<i8", num_rows).astype(np.int64)
    stats = np.ascontiguousarray(take("<f4", num_rows * num_stats).reshape(num_stats, num_rows).T)
    counts = np.ascontiguousarray(take(_COUNTS[magic], num_rows * bins).reshape(bins, num_rows).T)
    return Rows(steps, last, stats.astype(np.float32), counts.astype(np.uint32))


def _by_weight(array: npt.NDArray[np.generic]) -> bytes:
    """All lowest bytes, then all second bytes, …: those of one weight are alike, and compress."""
    flat = np.ascontiguousarray(array).reshape(-1)
    planes: bytes = flat.view(np.uint8).reshape(len(flat), flat.itemsize).T.tobytes()
    return planes


# -- coarser rows ----------------------------------------------------------------------------------


def merged(rows: Rows, factor: int) -> Rows:
    """Rows that each cover ``factor`` of the given ones."""
    if factor <= 1 or len(rows) == 0:
        return rows
    starts = np.arange(0, len(rows), factor)
    ends = np.minimum(starts + factor, len(rows))
    stats = np.stack([_merged_stats(rows.stats[a:b]) for a, b in zip(starts, ends, strict=True)])
    counts = np.stack(
        [
            _merged_counts(rows.stats[a:b], rows.counts[a:b], into)
            for a, b, into in zip(starts, ends, stats, strict=True)
        ]
    )
    return Rows(rows.steps[starts], rows.last_steps[ends - 1], stats, counts)


_SUMMED = [COLUMN[name] for name in ("count", "nan", "inf", "below", "above")]
_LEAST = [COLUMN[name] for name in ("min", "low")]
_MOST = [COLUMN[name] for name in ("max", "high")]
_AVERAGED = [COLUMN[name] for name in ("mean", "norm", "zeros", "update", "dead", "saturated")]


def _merged_stats(stats: Floats) -> Floats:
    result = np.full(len(STATISTICS), np.nan, np.float32)
    known = np.asarray(~np.isnan(stats))
    any_known = np.any(known, axis=0)
    for columns, neutral, reduce in (
        (_SUMMED, 0.0, np.sum), (_LEAST, np.inf, np.min), (_MOST, -np.inf, np.max),
    ):  # fmt: skip
        found = reduce(np.where(known[:, columns], stats[:, columns], neutral), axis=0)
        result[columns] = np.where(any_known[columns], found, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        # Infinite norms stay infinite: something was, and a mean that leaves it out would hide that.
        total = np.where(known[:, _AVERAGED], stats[:, _AVERAGED], 0).astype(np.float64).sum(axis=0)
        number = known[:, _AVERAGED].sum(axis=0)
        result[_AVERAGED] = np.where(number > 0, total / np.maximum(number, 1), np.nan)
        mean, std = stats[:, COLUMN["mean"]].astype(np.float64), stats[:, COLUMN["std"]].astype(np.float64)
        if known[:, COLUMN["std"]].any():
            weight = np.where(np.isnan(std), 0, stats[:, COLUMN["count"]])
            share = weight / max(weight.sum(), 1)
            middle = np.nansum(share * mean)
            result[COLUMN["std"]] = np.sqrt(np.nansum(share * (std**2 + (mean - middle) ** 2)))
    flags = np.nan_to_num(stats[:, COLUMN["flags"]]).astype(np.uint8)
    result[COLUMN["flags"]] = float(np.bitwise_or.reduce(flags))
    return result


def _merged_counts(stats: Floats, counts: npt.NDArray[np.uint32], into: Floats) -> npt.NDArray[np.uint32]:
    bins = counts.shape[1]
    low, high = float(into[COLUMN["low"]]), float(into[COLUMN["high"]])
    total = np.zeros(bins)
    if np.isfinite(low) and np.isfinite(high):
        for row, own in zip(stats, counts, strict=True):
            total += rebinned(own, float(row[COLUMN["low"]]), float(row[COLUMN["high"]]), low, high, bins)
    return rounded(total)


def rebinned(
    counts: npt.NDArray[np.generic], low: float, high: float, new_low: float, new_high: float, bins: int
) -> npt.NDArray[np.float64]:
    """Counts over [low, high] as counts over [new_low, new_high]; values are taken as even within a bin."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return np.zeros(bins)
    # A range that is too narrow for numbers between its bins is a point.
    if new_high <= new_low or high - low <= len(counts) * np.finfo(np.float64).tiny:
        result = np.zeros(bins)
        place = 0 if new_high <= new_low else int((low - new_low) / (new_high - new_low) * bins)
        result[min(max(place, 0), bins - 1)] = counts.sum()
        return result
    edges = np.linspace(new_low, new_high, bins + 1)
    own_edges = np.linspace(low, high, len(counts) + 1)
    running = np.concatenate(([0.0], np.cumsum(counts, dtype=np.float64)))
    return np.diff(np.interp(edges, own_edges, running))


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Whole numbers with the same sum."""
    whole = np.rint(np.cumsum(values))
    return np.diff(whole, prepend=0).astype(np.uint32)


__all__ = [
    "Counts", "Rows", "empty", "joined", "merged", "pack_chunk", "pack_step", "rebinned", "rounded",
    "unpack_chunk", "unpack_step",
]  # fmt: skip
