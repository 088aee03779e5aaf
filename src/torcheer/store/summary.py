"""From samples of many tensors to their statistics and histograms, a few array operations for all of them.

Semantics of TorchExplorer: a share of the values, those farthest from the median, is rejected as outliers; the
others lie in equal bins between the least and the greatest of them. Nothing here loops over values, so an
infinity or a NaN is counted and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torcheer.store.schema import COLUMN, STATISTICS
from torcheer.store.series import Counts, Floats

_SQUARED = np.float32(1e15)  # between this and its inverse squares are neither infinite nor 0
_SMALL = 10_000  # values: a table of its own costs more than so many more in another
_EDGE = 0.03  # a value within this share of a bound counts as saturated
BOUNDS = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0)}


@dataclass
class Samples:
    """Values of several tensors, one after the other."""

    values: Floats  # of all of them
    lengths: npt.NDArray[np.int64]  # how many values each has

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, arrays: Sequence[npt.ArrayLike]) -> Samples:
        parts = [np.asarray(array, np.float32).ravel() for array in arrays]
        values = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return cls(values, np.array([len(part) for part in parts], np.int64))


def summarise(
    samples: Samples, bins: int, reject: float, bounds: dict[int, tuple[float, float]] | None = None
) -> tuple[Floats, Counts]:
    """Statistics [tensors, len(STATISTICS)] and counts [tensors, bins] of samples.

    What only the whole tensor tells (``norm``, ``update``, ``dead``) is left NaN; ``nan`` and ``inf`` are those of
    the sample. ``bounds``: of a tensor with saturating values, by its place.
    """
    num = len(samples)
    stats = np.full((num, len(STATISTICS)), np.nan, np.float32)
    counts = np.zeros((num, bins), np.uint16)
    stats[:, COLUMN["flags"]] = 0
    ends = np.cumsum(samples.lengths)
    starts = ends - samples.lengths
    for places in _of_like_length(samples.lengths):
        lengths = samples.lengths[places]
        table = np.full((len(places), int(lengths.max(initial=1))), np.inf, np.float32)
        for row, place in zip(table, places.tolist(), strict=True):
            row[: samples.lengths[place]] = samples.values[starts[place] : ends[place]]
        stats[places], counts[places] = _summarise(table, lengths, bins, reject)
    for place, (low, high) in (bounds or {}).items():
        own = samples.values[starts[place] : ends[place]]
        if len(own):
            margin = _EDGE * (high - low)
            share = np.count_nonzero((own <= low + margin) | (own >= high - margin)) / len(own)
            stats[place, COLUMN["saturated"]] = share
    return stats, counts


def _of_like_length(lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Places of tensors whose samples fit into one table without much waste."""
    classes = np.ceil(np.log2(np.maximum(lengths, 16)) / 2)
    groups: list[npt.NDArray[np.int64]] = []
    for one in np.unique(classes)[::-1]:
        places = np.flatnonzero((classes == one) & (lengths > 0))
        if groups and len(places) * int(lengths[groups[-1]].max()) < _SMALL:
            groups[-1] = np.concatenate([groups[-1], places])
        elif len(places):
            groups.append(places)
    return groups


def _summarise(table: Floats, lengths: npt.NDArray[np.int64], bins: int, reject: float) -> tuple[Floats, Counts]:
    num = len(table)
    stats = np.full((num, len(STATISTICS)), np.nan, np.float32)
    stats[:, COLUMN["flags"]] = 0
    stats[:, COLUMN["count"]] = lengths
    stats[:, COLUMN["nan"]] = stats[:, COLUMN["inf"]] = 0
    table.sort(axis=1)  # NaN to the end, with the padding
    num_finite = lengths
    # Sorted, so what is not finite is at an end.
    if not np.isfinite(table[np.arange(num), np.maximum(lengths, 1) - 1]).all() or not np.isfinite(table[:, 0]).all():
        num_finite = _put_aside(stats, table, lengths)
    some = num_finite > 0
    if not some.all():
        table[~some] = 0
    num_shown = np.maximum(num_finite, 1)
    _moments(stats, table, num_shown)
    counts = _histogram(stats, table, num_shown, _bounds(table, num_shown, reject), bins)
    for name in ("mean", "std", "min", "max", "zeros", "low", "high"):
        stats[~some, COLUMN[name]] = np.nan
    stats[~some, COLUMN["below"]] = stats[~some, COLUMN["above"]] = 0
    counts[~some] = 0
    return stats, counts


def _put_aside(stats: Floats, table: Floats, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count what is not finite, and leave the finite values sorted at the beginning of their rows."""
    finite = np.isfinite(table)
    num_finite: npt.NDArray[np.int64] = np.count_nonzero(finite, axis=1)
    stats[:, COLUMN["nan"]] = np.count_nonzero(np.isnan(table), axis=1)
    stats[:, COLUMN["inf"]] = lengths - num_finite - stats[:, COLUMN["nan"]]
    table[~finite] = np.inf
    table.sort(axis=1)
    return num_finite


def _moments(stats: Floats, table: Floats, num: npt.NDArray[np.int64]) -> None:
    width = table.shape[1]
    last = _pick(table, num - 1)
    stats[:, COLUMN["min"]], stats[:, COLUMN["max"]] = table[:, 0], last
    # Scaled, so that squares of huge values stay finite.
    scale = np.maximum(np.abs(table[:, 0]), np.abs(last))
    huge, tiny = bool((scale > _SQUARED).any()), bool((scale < 1 / _SQUARED).any())
    scale = np.where(scale > 0, scale, 1).astype(np.float32) if huge or tiny else np.ones(len(table), np.float32)
    values = table / scale[:, None] if huge or tiny else table
    is_padding = np.arange(width) >= num[:, None] if (num < width).any() else None
    if is_padding is not None:
        values = np.where(is_padding, np.float32(0), values)
    mean = values.sum(axis=1, dtype=np.float64) / num
    off = values - mean[:, None].astype(np.float32)
    if is_padding is not None:
        off[is_padding] = 0
    stats[:, COLUMN["mean"]] = mean * scale
    stats[:, COLUMN["std"]] = np.sqrt(np.einsum("ij,ij->i", off, off) / num) * scale
    stats[:, COLUMN["zeros"]] = np.count_nonzero(table == 0, axis=1) / num


def _bounds(table: Floats, num: npt.NDArray[np.int64], reject: float) -> tuple[Floats, Floats]:
    """Least and greatest of the values that are kept: those nearest to the median, a run of the sorted ones."""
    kept = np.maximum(num - np.floor(reject * num).astype(np.int64), 1)
    middle = _pick(table, (num - 1) // 2) * np.float32(0.5) + _pick(table, num // 2) * np.float32(0.5)
    first = np.arange(int((num - kept).max(initial=0)) + 1)[None, :]
    possible = first <= (num - kept)[:, None]
    at = np.minimum(first, table.shape[1] - 1)
    end = np.minimum(first + kept[:, None] - 1, table.shape[1] - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        below = middle[:, None] - np.take_along_axis(table, np.broadcast_to(at, possible.shape), axis=1)
        above = np.take_along_axis(table, end, axis=1) - middle[:, None]
    reach = np.where(possible, np.maximum(below, above), np.inf)
    start = np.argmin(reach, axis=1)
    return _pick(table, start), _pick(table, start + kept - 1)


def _pick(table: Floats, at: npt.NDArray[np.int64]) -> Floats:
    picked: Floats = np.take_along_axis(table, at[:, None], axis=1)[:, 0]
    return picked


def _histogram(
    stats: Floats, table: Floats, num: npt.NDArray[np.int64], bounds: tuple[Floats, Floats], bins: int
) -> Counts:
    low, high = bounds
    stats[:, COLUMN["low"]], stats[:, COLUMN["high"]] = low, high
    width = table.shape[1]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Halved, since the distance of two floats may be no float.
        span = high * np.float32(0.5) - low * np.float32(0.5)
        scale = np.where(span > 0, bins / (2 * span.astype(np.float64)), 0)
        place = table - low[:, None]
        place *= scale.astype(np.float32)[:, None]
        odd = (scale > np.finfo(np.float32).max) | ~np.isfinite(span * 2)
        if odd.any():
            place[odd] = (table[odd].astype(np.float64) - low[odd, None]) * scale[odd, None]
        one = scale == 0  # value only
        if one.any():
            place[one] = np.where(table[one] > high[one, None], bins, np.where(table[one] < low[one, None], -1, 0))
    # One bin more at either end, for what was rejected; the highest value itself falls into the upper one.
    place += 1
    np.clip(place, 0, bins + 1, out=place)
    index = place.astype(np.int32)
    index += (np.arange(len(table), dtype=np.int32) * (bins + 2))[:, None]
    found = np.bincount(index.ravel(), minlength=len(table) * (bins + 2)).reshape(len(table), bins + 2)
    above = np.count_nonzero(table > high[:, None], axis=1)  # with the padding
    found[:, bins] += found[:, bins + 1] - above
    stats[:, COLUMN["below"]] = found[:, 0]
    stats[:, COLUMN["above"]] = above - (width - num)
    return np.minimum(found[:, 1 : bins + 1], np.iinfo(np.uint16).max).astype(np.uint16)
