"""From samples of many tensors to their statistics and histograms, a few array operations for all of them.

Semantics of TorchExplorer: a share of the values, those farthest from the median, is rejected as outliers; the
others lie in equal bins between the least and the greatest of them. Nothing here loops over values, so an
infinity or a NaN is counted and costs nothing. Samples are sorted, and then looked at only where something begins
or ends. Which places these are depends on the lengths alone, so they are worked out once for many steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from torcheer.store.schema import COLUMN, STATISTICS
from torcheer.store.series import Counts, Floats

Whole = npt.NDArray[np.int64]

_SMALL = 20_000  # values: a table of its own costs more than so many more in another
_REMEMBERED = 500_000  # values: for larger tables the places are worked out each time, not kept
_EDGE = 0.03  # a value within this share of a bound counts as saturated
_ZERO = np.zeros(1, np.float32)
BOUNDS = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0)}


@dataclass
class Samples:
    """Values of several tensors, one after the other."""

    values: Floats  # of all of them
    lengths: Whole  # how many values each has

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
    _moments(stats, samples)
    for places, lengths, parts in _groups(samples.lengths.tobytes()):
        table = np.full((len(places), int(lengths.max())), np.inf, np.float32)
        for row, (start, end) in zip(table, parts, strict=True):
            row[: end - start] = samples.values[start:end]
        counts[places] = _sorted(stats, places, table, lengths, bins, reject)
    for place, (low, high) in (bounds or {}).items():
        start = int(samples.lengths[:place].sum())
        own = samples.values[start : start + samples.lengths[place]]
        if len(own):
            margin = _EDGE * (high - low)
            share = np.count_nonzero((own <= low + margin) | (own >= high - margin)) / len(own)
            stats[place, COLUMN["saturated"]] = share
    return stats, counts


def _moments(stats: Floats, samples: Samples) -> None:
    """Mean and deviation of what is finite; in float64, where squares of float32 are neither infinite nor 0."""
    some = np.flatnonzero(samples.lengths)
    if not len(some):
        return
    starts = (np.cumsum(samples.lengths) - samples.lengths)[some]
    num = samples.lengths[some]
    values = samples.values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        total = np.add.reduceat(values, starts)
    if not np.isfinite(total).all():
        finite = np.isfinite(values)
        values[~finite] = 0
        num = np.maximum(np.add.reduceat(finite, starts, dtype=np.int64), 1)
        total = np.add.reduceat(values, starts)
    mean = total / num
    np.multiply(values, values, out=values)
    stats[some, COLUMN["mean"]] = mean
    stats[some, COLUMN["std"]] = np.sqrt(np.maximum(np.add.reduceat(values, starts) / num - mean * mean, 0))


Group = tuple[Whole, Whole, list[tuple[int, int]]]  # places, their lengths, where their values begin and end


@lru_cache(maxsize=32)
def _groups(of: bytes) -> list[Group]:
    """Tensors whose samples fit into one table without much waste."""
    lengths = np.frombuffer(of, np.int64)
    ends = np.cumsum(lengths)
    classes = np.ceil(np.log2(np.maximum(lengths, 16)) / 2)
    groups: list[Whole] = []
    for one in np.unique(classes)[::-1]:
        places = np.flatnonzero((classes == one) & (lengths > 0))
        if groups and len(places) * int(lengths[groups[-1]].max()) < _SMALL:
            groups[-1] = np.concatenate([groups[-1], places])
        elif len(places):
            groups.append(places)
    return [
        (
            group,
            lengths[group],
            [(int(end - size), int(end)) for end, size in zip(ends[group], lengths[group], strict=True)],
        )
        for group in groups
    ]


@dataclass
class _Places:
    """Where in a table of sorted samples, read as one row, something begins or ends."""

    num: Whole  # values of each sample
    first: Whole  # the first of each sample
    last: Whole  # the last of each
    middle: tuple[Whole, Whole]  # the two whose mean is the median
    kept: Whole  # how many are not rejected
    begins: Whole  # [samples, …] first of each run of so many
    ends: Whole  # [samples, …] and the last of it
    impossible: npt.NDArray[np.bool_] | None  # runs that would end beyond the sample


def _places(num: Whole, width: int, reject: float) -> _Places:
    find = _find_places if len(num) * width > _REMEMBERED else _known_places
    return find(num.tobytes(), width, reject)


def _find_places(of: bytes, width: int, reject: float) -> _Places:
    num = np.frombuffer(of, np.int64)
    first = np.arange(len(num)) * width
    kept = np.maximum(num - np.floor(reject * num).astype(np.int64), 1)
    spare = (num - kept)[:, None]
    shift = np.arange(int(spare.max(initial=0)) + 1)
    begins = first[:, None] + np.minimum(shift, spare)
    impossible = shift > spare
    return _Places(
        num, first, first + num - 1, (first + (num - 1) // 2, first + num // 2), kept,
        begins, begins + kept[:, None] - 1, impossible if impossible.any() else None,
    )  # fmt: skip


_known_places = lru_cache(maxsize=32)(_find_places)


def _sorted(stats: Floats, of: Whole, table: Floats, lengths: Whole, bins: int, reject: float) -> Counts:
    """What the sorted samples tell of the tensors at the places ``of``."""
    stats[of, COLUMN["count"]] = lengths
    stats[of, COLUMN["nan"]] = stats[of, COLUMN["inf"]] = 0
    table.sort(axis=1)  # NaN to the end, with the padding
    places, none = _places(lengths, table.shape[1], reject), None
    # Sorted, so what is not finite is at an end.
    if not (np.isfinite(table.ravel()[places.last]).all() and np.isfinite(table[:, 0]).all()):
        num_finite = _put_aside(stats, of, table, lengths)
        none = num_finite == 0
        table[none] = 0
        places = _places(np.maximum(num_finite, 1), table.shape[1], reject)
    found, counts = _histogram(table, places, bins)
    if none is not None and none.any():
        for name in found:
            found[name] = np.where(none, 0 if name in {"below", "above"} else np.nan, found[name])
        stats[of[none], COLUMN["mean"]] = stats[of[none], COLUMN["std"]] = np.nan
        counts[none] = 0
    for name, values in found.items():
        stats[of, COLUMN[name]] = values
    point = of[found["min"] == found["max"]]
    stats[point, COLUMN["mean"]], stats[point, COLUMN["std"]] = stats[point, COLUMN["min"]], 0
    return counts


def _put_aside(stats: Floats, of: Whole, table: Floats, lengths: Whole) -> Whole:
    """Count what is not finite, and leave the finite values sorted at the beginning of their rows."""
    finite = np.isfinite(table)
    num_finite: Whole = np.count_nonzero(finite, axis=1)
    num_nan = np.count_nonzero(np.isnan(table), axis=1)
    stats[of, COLUMN["nan"]], stats[of, COLUMN["inf"]] = num_nan, lengths - num_finite - num_nan
    table[~finite] = np.inf
    table.sort(axis=1)
    return num_finite


def _bounds(flat: Floats, places: _Places) -> tuple[Whole, Whole]:
    """Places of the least and greatest of the values that are kept: those nearest to the median, a run of the
    sorted ones."""
    half = np.float32(0.5)
    middle = flat.take(places.middle[0]) * half + flat.take(places.middle[1]) * half
    with np.errstate(over="ignore"):
        reach = middle[:, None] - flat.take(places.begins)
        np.maximum(reach, flat.take(places.ends) - middle[:, None], out=reach)
    if places.impossible is not None:
        reach[places.impossible] = np.inf
    start = places.first + np.argmin(reach, axis=1)
    return start, start + places.kept - 1


def _histogram(table: Floats, places: _Places, bins: int) -> tuple[dict[str, npt.NDArray[Any]], Counts]:
    """Counts between edges, which are found in the sorted values; and what else can be found there."""
    flat = table.ravel()
    least, greatest = _bounds(flat, places)
    low, high = flat.take(least), flat.take(greatest)
    sought = np.zeros((len(table), bins + 2), np.float32)  # the last is 0
    span = high.astype(np.float64) - low
    sought[:, :bins] = low[:, None] + span[:, None] * (np.arange(bins) / bins)
    with np.errstate(over="ignore"):  # above the largest number is infinity
        sought[:, bins] = np.nextafter(high, np.float32(np.inf))
    at = np.array([row.searchsorted(values) for row, values in zip(table, sought, strict=True)])
    at[:, bins] = np.maximum(at[:, bins], greatest - places.first + 1)
    counts = np.minimum(np.diff(at[:, : bins + 1]), np.iinfo(np.uint16).max).astype(np.uint16)
    point = low == high
    if point.any():
        counts[point, 0] = counts[point, bins - 1]
        counts[point, 1:] = 0
    zeros = np.zeros(len(table))
    for place in np.flatnonzero(flat.take(np.minimum(places.first + at[:, -1], places.last)) == 0).tolist():
        zeros[place] = table[place].searchsorted(_ZERO, "right")[0] - at[place, -1]
    return {
        "min": table[:, 0], "max": flat.take(places.last), "low": low, "high": high, "zeros": zeros / places.num,
        "below": at[:, 0], "above": places.num - at[:, bins],
    }, counts  # fmt: skip
