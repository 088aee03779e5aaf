"""How a tensor of one process is spread over several: whole on each, cut along a dimension, or as summands.

A *spread* says this for each axis of a grid of ranks. It is taken from what a DTensor says of itself where there is
one, else it is whichever accounts for what the ranks have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.layout import Close

_MOST_BLOCKS = 24  # numbers of blocks tried for a dimension that is cut block by block
_PLACEMENT = re.compile(r"_?S\((\d+)(?:, (\d+))?\)")


class Cut(NamedTuple):
    """What one axis of the grid does to a tensor."""

    kind: str  # "whole" | "cut" | "sum" | "mean"
    dim: int = -1  # of a cut: the dimension
    blocks: int = 1  # of a cut: each of so many blocks of the dimension is cut (a fused projection, interleaved rows)

    def __str__(self) -> str:
        if self.kind != "cut":
            return {"whole": "whole", "sum": "as summands", "mean": "to be averaged"}[self.kind]
        return f"cut along {self.dim}" + (f" in {self.blocks} blocks" if self.blocks > 1 else "")


Spread = tuple[Cut, ...]
WHOLE = Cut("whole")
Parts = Mapping[int, Array]  # rank → what it has; a rank may lack it


@dataclass(frozen=True)
class Grid:
    """Ranks as a grid; rank ``r`` is at ``np.unravel_index(r, shape)`` as in a DeviceMesh made in one go."""

    shape: tuple[int, ...]

    @cached_property
    def places(self) -> list[tuple[int, ...]]:
        """Place of each rank."""
        return [tuple(place) for place in product(*(range(size) for size in self.shape))]

    def rank_at(self, place: tuple[int, ...]) -> int:
        """The rank at a place."""
        rank = 0
        for size, at in zip(self.shape, place, strict=True):
            rank = rank * size + at
        return rank


class Fit(NamedTuple):
    """How well a spread accounts for what the ranks have."""

    spread: Spread
    wrong: frozenset[int]  # ranks whose part is another
    error: float  # largest error of the others, against the size of the whole


def grids(world: int) -> list[Grid]:
    """The grids that so many ranks may be: one axis, or two."""
    found = [Grid((world,))]
    found += [Grid((a, world // a)) for a in range(2, world // 2 + 1) if world % a == 0]
    return found


def declared(placements: tuple[str, ...]) -> Spread | None:
    """A spread from the placements of a DTensor; None where they are of another kind."""
    found = []
    for placement in placements:
        cut = _PLACEMENT.fullmatch(placement)
        if cut is not None:
            found.append(Cut("cut", int(cut[1]), int(cut[2] or 1)))
        elif placement == "R":
            found.append(WHOLE)
        elif placement in ("P(sum)", "P(avg)"):
            found.append(Cut("sum" if placement == "P(sum)" else "mean"))
        else:
            return None
    return tuple(found)


def spreads(shape: tuple[int, ...], parts: Parts, grid: Grid, *, averages: bool = False) -> Iterator[Spread]:
    """The spreads of a grid that fit the shapes, simple ones first."""
    some = next(iter(parts.values())).shape
    if len(some) != len(shape):
        return
    options = [WHOLE]
    for dim, (whole, part) in enumerate(zip(shape, some, strict=True)):
        if part < whole:
            options += [Cut("cut", dim, blocks) for blocks in _blocks(part)]
    options.append(Cut("sum"))
    options += [Cut("mean")] if averages else []
    for spread in product(options, repeat=len(grid.shape)):
        if all(_extent(parts, grid, spread, (), dim) == size for dim, size in enumerate(shape)):
            yield spread


def _blocks(size: int) -> list[int]:
    return [number for number in range(1, size + 1) if size % number == 0][:_MOST_BLOCKS]


def _extent(parts: Parts, grid: Grid, spread: Spread, prefix: tuple[int, ...], dim: int) -> int:
    """How long a dimension is, of all the ranks whose place begins so, taken together."""
    axis = len(prefix)
    if axis == len(grid.shape):
        part = parts.get(grid.rank_at(prefix))
        return int((next(iter(parts.values())) if part is None else part).shape[dim])
    cut = spread[axis]
    if cut.kind == "cut" and cut.dim == dim:
        return sum(_extent(parts, grid, spread, (*prefix, place), dim) for place in range(grid.shape[axis]))
    return _extent(parts, grid, spread, (*prefix, 0), dim)


def piece(whole: Array, parts: Parts, grid: Grid, spread: Spread, rank: int) -> Array | None:
    """What a rank should have of a tensor; None where the parts' sizes do not say."""
    place = grid.places[rank]
    for axis, cut in enumerate(spread):
        if cut.kind == "cut":
            sizes = [_extent(parts, grid, spread, (*place[:axis], other), cut.dim) for other in range(grid.shape[axis])]
            if sum(sizes) != whole.shape[cut.dim] or any(size % cut.blocks for size in sizes):
                return None
            start, length = sum(sizes[: place[axis]]) // cut.blocks, sizes[place[axis]] // cut.blocks
            blocked = whole.reshape(*whole.shape[: cut.dim], cut.blocks, -1, *whole.shape[cut.dim + 1 :])
            taken = np.take(blocked, range(start, start + length), axis=cut.dim + 1)
            whole = taken.reshape(*whole.shape[: cut.dim], -1, *whole.shape[cut.dim + 1 :])
    return whole


def check(
    whole: Array, parts: Parts, grid: Grid, spread: Spread, close: Close, least_size: float = 0.0, *, told: bool = False
) -> Fit | None:
    """Which ranks do not have what a spread gives them; None where the shapes do not allow it.

    least_size: what errors are measured against at least, for a tensor that is nothing but rounding.
    """
    wrong: set[int] = set()
    worst = 0.0
    size = max(size_of(whole), least_size)
    for ranks in _groups(parts, grid, spread):
        together = [parts[rank] for rank in ranks if rank in parts]
        if not together:
            continue
        expected = piece(whole, parts, grid, spread, ranks[0])
        if expected is None or any(part.shape != expected.shape for part in together):
            return None
        if len(ranks) == 1:
            found, scale = together[0], size
        elif len(together) < len(ranks):
            return None
        else:
            found = np.sum([part.astype(np.float64) for part in together], axis=0)
            found = found / len(ranks) if any(cut.kind == "mean" for cut in spread) else found
            scale = max([size, *map(size_of, together)])
            if not told and all(np.array_equal(part, together[0]) for part in together):
                # The same on each and their sum right: somebody has divided by the number of ranks.
                wrong.update(ranks)
                continue
        rms, peak = _apart(expected, found, scale)
        if rms <= close.rms and peak <= close.peak:
            worst = max(worst, rms)
        else:
            wrong.update(ranks)
    return Fit(spread, frozenset(wrong), worst)


def _groups(parts: Parts, grid: Grid, spread: Spread) -> list[list[int]]:
    """Ranks whose parts are added up; each by itself where nothing is."""
    adds = [axis for axis, cut in enumerate(spread) if cut.kind in ("sum", "mean")]
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(grid.places):
        if rank in parts or adds:
            key = tuple(-1 if axis in adds else at for axis, at in enumerate(place))
            groups.setdefault(key, []).append(rank)
    return list(groups.values())


def size_of(array: Array) -> float:
    """Root mean square."""
    wide = np.abs(array).astype(np.float64)
    return math.sqrt(float(np.mean(np.square(np.where(np.isfinite(wide), wide, 0.0))))) if array.size else 0.0


def _apart(expected: Array, found: Array, scale: float) -> tuple[float, float]:
    """Root mean square and largest of the difference, against a size."""
    if expected.size == 0:
        return 0.0, 0.0
    if expected.dtype.kind in "bui" and found.dtype.kind in "bui":
        return (0.0, 0.0) if np.array_equal(expected, found) else (math.inf, math.inf)
    wide = np.complex128 if "c" in (expected.dtype.kind, found.dtype.kind) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.abs(np.subtract(expected, found, dtype=wide))
        delta = np.where((expected == found) | (np.isnan(expected) & np.isnan(found)), 0.0, delta)
    if not delta.any():
        return 0.0, 0.0
    if scale == 0 or not np.isfinite(delta).all():
        return math.inf, math.inf
    relative = delta / (np.abs(np.where(np.isfinite(expected), expected, 0.0)) + scale)
    return math.sqrt(float(np.mean(np.square(delta)))) / scale, float(relative.max())


def best_fit(
    whole: Array, parts: Parts, all_grids: list[Grid], close: Close, told: Spread | None = None, *,
    averages: bool = False, least_size: float = 0.0,
) -> Fit | None:  # fmt: skip
    """The spread that accounts for most ranks; of those that account for all, the simplest.

    told: what a DTensor says of itself; nothing else is then looked at.
    """
    best: Fit | None = None
    for grid in all_grids:
        if told is not None and len(told) != len(grid.shape):
            continue
        for spread in [told] if told is not None else spreads(whole.shape, parts, grid, averages=averages):
            fit = check(whole, parts, grid, spread, close, least_size, told=told is not None)
            if fit is not None and not fit.wrong:
                return fit
            # What is to be added up tells no rank from another, so it blames none while something else blames some.
            if fit is not None and (best is None or len(fit.wrong) < len(best.wrong)):
                best = fit
    return best
