"""Sketches of tensors: a few numbers that do not depend on the layout, to find candidates quickly.

Mean, size and extremes stay the same under transposes, splits of axes and uniform repetition. Two tensors whose
sketches differ hold different numbers; two whose sketches agree may, and are then compared element by element
(``layout.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array

MASKED = -9e3  # added to a score, anything below leaves nothing of it: -1e4, -1e9 and -inf are the same mask


class Sketch(NamedTuple):
    """What is known of a tensor's numbers, whatever their order."""

    rms: float
    mean: float
    low: float
    high: float
    num: int
    num_odd: int  # NaN, infinite, or masked out


def sketch(array: Array) -> Sketch:
    """Sketch a tensor."""
    flat = array.ravel() if array.flags.c_contiguous else np.ascontiguousarray(array).ravel()
    if flat.dtype.kind == "c":
        flat = np.ascontiguousarray(flat).view(flat.real.dtype)
    if flat.dtype.kind in "bui":
        flat = flat.astype(np.float64)
    if flat.size == 0:
        return Sketch(0.0, 0.0, 0.0, 0.0, 0, 0)
    low, high = float(flat.min()), float(flat.max())
    num_odd = 0
    if not (low > MASKED and high < np.inf):
        ordinary = flat[(flat > MASKED) & (flat < np.inf)]
        num_odd = flat.size - ordinary.size
        if ordinary.size == 0:
            return Sketch(0.0, 0.0, 0.0, 0.0, int(flat.size), num_odd)
        flat, low, high = ordinary, float(ordinary.min()), float(ordinary.max())
    with np.errstate(over="ignore"):
        square = float(np.dot(flat, flat))
        total = float(flat.sum())
    if not np.isfinite(square):
        square = float(np.square(flat, dtype=np.float64).sum())
    return Sketch((square / flat.size) ** 0.5, total / flat.size, low, high, int(array.size), num_odd)


def proportional(one: Sketch, other: Sketch) -> float | None:
    """The factor between two tensors that seem to be the same but for one; None where they do not, or it is 1."""
    if one.rms == 0 or other.rms == 0 or one.num != other.num or one.num_odd != other.num_odd:
        return None
    factor = other.rms / one.rms
    slack = 1e-4 * other.rms
    flipped = abs(factor * one.mean - other.mean) > slack
    sign = -1 if flipped else 1
    ends = (one.low, one.high) if not flipped else (-one.high, -one.low)
    same = abs(sign * factor * one.mean - other.mean) <= slack
    same = same and all(abs(factor * a - b) <= 10 * slack for a, b in zip(ends, (other.low, other.high), strict=True))
    return sign * factor if same and abs(sign * factor - 1) > 1e-3 else None


class Sketches:
    """The sketches of one side's classes, to be searched."""

    def __init__(self, sketches: dict[int, Sketch]) -> None:
        self.keys = np.array(list(sketches), dtype=np.int64)
        self.table = np.array([list(one) for one in sketches.values()], dtype=np.float64).reshape(-1, 6)

    def like(self, wanted: Sketch, tolerance: float) -> list[int]:
        """Classes whose numbers may be the wanted ones, to this relative tolerance; best first."""
        if not len(self.keys):
            return []
        rms, mean, low, high, num, odd = self.table.T
        slack = tolerance * max(wanted.rms, 1e-30) + 1e-37
        peak = 10 * slack + tolerance * max(abs(wanted.low), abs(wanted.high))
        share = np.abs(odd / np.maximum(num, 1) - wanted.num_odd / max(wanted.num, 1)) < 1e-9
        near = share & (np.abs(rms - wanted.rms) <= slack) & (np.abs(mean - wanted.mean) <= slack)
        near &= (np.abs(low - wanted.low) <= peak) & (np.abs(high - wanted.high) <= peak)
        near &= (np.maximum(num, wanted.num) % np.maximum(np.minimum(num, wanted.num), 1)) == 0
        found = np.flatnonzero(near)
        apart = np.abs(rms[found] - wanted.rms) + np.abs(mean[found] - wanted.mean)
        order = np.lexsort((apart, num[found] != wanted.num))
        return [int(self.keys[found[place]]) for place in order]
