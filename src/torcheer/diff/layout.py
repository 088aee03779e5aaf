"""Whether two tensors hold the same numbers in some concrete layout, element by element; and if not, whether one is
the other in another order.

Layouts are what rewriting a model changes: axes exchanged, split or merged, one side repeated. Orders are what a
mistake changes: flipped, rolled, rows or channels exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.sketch import MASKED

_MAX_AXES = 6  # 720 orders of axes; beyond, only the order as it is
_NUM_PROBES = 48  # elements looked at before all of them are


class Close(NamedTuple):
    """How far two tensors may be apart, against their root mean square."""

    rms: float
    peak: float  # of a single element, against its own size and the root mean square


class Found(NamedTuple):
    """Two tensors hold the same numbers."""

    layout: str  # "same", "axes (0, 2, 1)", "repeated"
    error: float  # root mean square of the difference against that of the tensor


def apart(a: Array, b: Array) -> tuple[float, float]:
    """How far two tensors of one shape are apart: by root mean square, and the furthest element; both relative."""
    if a.size == 0:
        return 0.0, 0.0
    if a.dtype.kind in "bui" and b.dtype.kind in "bui":
        wrong = float(np.mean(a != b))
        return (0.0, 0.0) if wrong == 0 else (math.inf, math.inf)
    if (a.dtype.kind == "c") != (b.dtype.kind == "c"):
        return math.inf, math.inf
    a, b = _common(a), _common(b)
    with np.errstate(invalid="ignore", over="ignore"):
        delta = (a - b).ravel()
        total = float(np.dot(delta, delta))
    flat = np.ascontiguousarray(a).ravel()
    if not math.isfinite(total):
        return _apart_oddly(flat, np.ascontiguousarray(b).ravel())
    with np.errstate(over="ignore"):
        size = float(np.dot(flat, flat))
    if not math.isfinite(size) or float(flat.min()) <= MASKED:
        return _apart_oddly(flat, np.ascontiguousarray(b).ravel())
    scale = math.sqrt(size / flat.size)
    if total == 0:
        return 0.0, 0.0
    if scale == 0:
        return math.inf, math.inf
    peak = float(max(delta.max(), -delta.min()))
    if peak / scale > 1e-6:
        peak = float(np.max(np.abs(delta) / (np.abs(flat) + scale)))
    else:
        peak /= scale
    return math.sqrt(total / flat.size) / scale, peak


def _common(array: Array) -> Array:
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).view(array.real.dtype)
    return array.astype(np.float64) if array.dtype.kind in "bui" else array


def _apart_oddly(a: Array, b: Array) -> tuple[float, float]:
    """The same where there are NaN, infinities or masks, which must be at the same places."""
    odd_a, odd_b = _oddness(a), _oddness(b)
    if not np.array_equal(odd_a, odd_b):
        return math.inf, math.inf
    ordinary = odd_a == 0
    if not ordinary.any():
        return 0.0, 0.0
    x, y = a[ordinary].astype(np.float64), b[ordinary].astype(np.float64)
    delta, scale = np.abs(x - y), float(np.sqrt(np.mean(np.square(x))))
    if not delta.any():
        return 0.0, 0.0
    if scale == 0:
        return math.inf, math.inf
    return float(np.sqrt(np.mean(np.square(delta)))) / scale, float(np.max(delta / (np.abs(x) + scale)))


def _oddness(array: Array) -> Array:
    return np.select([np.isnan(array), array <= MASKED, array == np.inf], [1, 2, 3], 0)


def is_close(a: Array, b: Array, close: Close) -> float | None:
    """The error of two tensors of one shape, None where it is too large."""
    rms, peak = apart(a, b)
    return rms if rms <= close.rms and peak <= close.peak else None


def find_layout(a: Array, b: Array, close: Close) -> Found | None:
    """Find the layout in which the numbers of ``a`` are those of ``b``; None where there is none."""
    if a.size == b.size:
        for name, turned, target in _arrangements(a, b):
            if _probably(turned, target, close):
                error = is_close(turned.reshape(target.shape), target, close)
                if error is not None:
                    return Found(name, error)
        return None
    large, small = (a, b) if a.size > b.size else (b, a)
    if small.size == 0 or large.size % small.size:
        return None
    return _repeated(large, small, close)


def _arrangements(a: Array, b: Array) -> Iterator[tuple[str, Array, Array]]:
    """Ways to read ``a`` as ``b``, the likely ones first."""
    yield "same", a.reshape(b.shape), b
    a, b = a.squeeze(), b.squeeze()
    for one, other, is_swapped in ((a, b, False), (b, a, True)):
        if other.ndim > _MAX_AXES:
            continue
        for axes in permutations(range(other.ndim)):
            if axes == tuple(range(other.ndim)):
                continue
            turned = other.transpose(axes)
            if not mergeable(turned.shape, one.shape):
                continue
            name = f"axes {axes}"
            yield (name, one, turned) if not is_swapped else (name, turned, one)
    yield from _split_arrangements(a, b)


def mergeable(fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    """Whether axes merge into the other shape: each axis of ``coarse`` is a run of axes of ``fine``."""
    at = 0
    for extent in coarse:
        have = 1
        while at < len(fine) and have < extent:
            have *= fine[at]
            at += 1
        if have != extent:
            return False
    return all(extent == 1 for extent in fine[at:])


def _split_arrangements(a: Array, b: Array) -> Iterator[tuple[str, Array, Array]]:
    """Where both sides merged other axes: split the axes of ``a`` by those of ``b``."""
    fine = _refined(a.shape, b.shape)
    if fine is None or fine == a.shape or len(fine) > 5:
        return
    split = a.reshape(fine)
    for axes in permutations(range(len(fine))):
        turned = split.transpose(axes)
        if axes != tuple(range(len(fine))) and mergeable(turned.shape, b.shape):
            yield f"split to {fine}, axes {axes}", turned, b


def _refined(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape with each axis split by the largest extent of the other that divides it."""
    fine: list[int] = []
    for extent in shape:
        if extent in other:
            fine.append(extent)
            continue
        divisor = max((o for o in other if 1 < o < extent and extent % o == 0), default=0)
        fine += [divisor, extent // divisor] if divisor else [extent]
    return tuple(fine)


def _probably(a: Array, b: Array, close: Close) -> bool:
    """Whether a few elements agree; only then are all compared."""
    if a.size < 4 * _NUM_PROBES:
        return True
    places = (np.arange(1, _NUM_PROBES + 1, dtype=np.int64) * 2654435761) % a.size
    x = _common(np.asarray(a[np.unravel_index(places, a.shape)]))
    y = _common(np.asarray(b[np.unravel_index(places, b.shape)]))
    with np.errstate(invalid="ignore", over="ignore"):
        same = (np.abs(x - y) <= close.peak * (np.abs(x) + np.abs(y))) | (np.isnan(x) & np.isnan(y)) | (x == y)
        same |= (x <= MASKED) & (y <= MASKED)
    # Elements about zero are judged by the whole, later.
    return bool(np.mean(same) > 0.5)


def _repeated(large: Array, small: Array, close: Close) -> Found | None:
    """Whether the large tensor is the small one repeated along axes, in blocks or element by element."""
    times = large.size // small.size
    big, little = large.squeeze(), small.squeeze()
    for axis in range(big.ndim):
        if big.shape[axis] % times:
            continue
        count = big.shape[axis] // times
        for tiled in (True, False):
            fold = (times, count) if tiled else (count, times)
            view = big.reshape(*big.shape[:axis], *fold, *big.shape[axis + 1 :])
            along = axis if tiled else axis + 1
            one = np.take(view, 0, axis=along)
            if not all(is_close(np.take(view, i, axis=along), one, close) is not None for i in range(1, times)):
                continue
            found = find_layout(np.ascontiguousarray(one), little, close)
            if found is not None:
                return Found(f"repeated, {found.layout}", found.error)
    return _broadcast(big, little, close)


def _broadcast(large: Array, small: Array, close: Close) -> Found | None:
    """Whether the large tensor is the small one under broadcasting over several axes."""
    keep = [axis for axis in range(large.ndim) if not _constant_along(large, axis)]
    one = large[tuple(slice(None) if axis in keep else 0 for axis in range(large.ndim))]
    if one.size != small.size:
        return None
    found = find_layout(np.ascontiguousarray(one), small, close)
    return None if found is None else Found(f"broadcast, {found.layout}", found.error)


def _constant_along(array: Array, axis: int) -> bool:
    first = np.take(array, [0], axis=axis)
    with np.errstate(invalid="ignore"):
        return bool(((array == first) | (np.isnan(array) & np.isnan(first))).all())


def name_order(a: Array, b: Array, close: Close) -> str:
    """Say in which other order the numbers of ``b`` are those of ``a``; ``""`` where they are not, or none is known."""
    if a.size != b.size or a.size < 2:
        return ""
    with np.errstate(invalid="ignore"):
        if is_close(np.sort(_common(a).ravel()), np.sort(_common(b).ravel()), close) is None:
            return ""
    if a.shape != b.shape:
        found = find_layout(a, b, close)
        return "the same numbers in another order" if found is None else f"the axes are exchanged: {found.layout}"
    return next((name for name in _orders(a, b, close) if name), "the same numbers in another order")


def _orders(a: Array, b: Array, close: Close) -> Iterator[str]:
    for axis in range(a.ndim):
        if is_close(np.flip(a, axis), b, close) is not None:
            yield f"flipped along axis {axis}"
    if a.ndim > 1 and is_close(np.flip(a).copy(), b, close) is not None:
        yield "flipped along every axis"
    for axis in range(a.ndim):
        yield _exchanged(a, b, axis, close)
    for axes in permutations(range(a.ndim)) if a.ndim <= _MAX_AXES else ():
        turned = a.transpose(axes)
        if turned.shape == b.shape and is_close(np.ascontiguousarray(turned), b, close) is not None:
            yield f"the axes are exchanged: {axes}"


_KINDS = {0: "rows (axis 0)", 1: "channels (axis 1)"}


def _exchanged(a: Array, b: Array, axis: int, close: Close) -> str:
    """Whether whole slices along one axis changed places."""
    count = a.shape[axis]
    if not 1 < count <= 4096:
        return ""
    one = np.moveaxis(_common(a) if a.dtype.kind != "c" else a, axis, 0).reshape(count, -1)
    other = np.moveaxis(_common(b) if b.dtype.kind != "c" else b, axis, 0).reshape(count, -1)
    weights = np.cos(np.arange(1, one.shape[1] + 1) * 1.7)
    with np.errstate(invalid="ignore"):
        keys_a, keys_b = np.nan_to_num(one.real @ weights), np.nan_to_num(other.real @ weights)
    order_a, order_b = np.argsort(keys_a, kind="stable"), np.argsort(keys_b, kind="stable")
    where = np.empty(count, dtype=np.int64)
    where[order_b] = order_a
    if is_close(np.ascontiguousarray(one[where]), np.ascontiguousarray(other), close) is None:
        return ""
    moved = np.flatnonzero(where != np.arange(count))
    shift = int((where[0] - 0) % count)
    place = _KINDS.get(axis, f"axis {axis}")
    if np.array_equal(where, (np.arange(count) + shift) % count):
        return f"rolled by {shift if shift <= count // 2 else shift - count} along {place}"
    if len(moved) == 2:
        return f"{place} {moved[0]} and {moved[1]} are exchanged"
    shown = ", ".join(map(str, where[:8])) + (", …" if count > 8 else "")
    return f"{place} are in another order: {shown}"
