"""Which bytes of a storage a tensor covers, and whether two tensors share any.

Two views of one storage may interleave without sharing a byte (``y[:, 0]`` and ``y[:, 1]``), so comparing
ranges is not enough: an element is shared where ``offset_a + Σ stride·i = offset_b + Σ stride·j`` has a
solution within the shapes. Strides nest in practice, so a search from the largest stride down, cut off by
the range that the remaining strides can still reach, decides in a few steps.
"""

from __future__ import annotations

from typing import NamedTuple

_MAX_STEPS = 20_000  # past this the regions count as overlapping


class Region(NamedTuple):
    """Bytes of a storage covered by a strided tensor."""

    first: int  # first byte of the lowest element
    last: int  # last byte of the highest element
    dims: tuple[tuple[int, int], ...]  # (stride in bytes, size) of each dimension with size > 1; strides ≥ 0
    item_bytes: int

    @property
    def is_dense(self) -> bool:
        """Does it cover every byte from first to last?"""
        reach = self.item_bytes
        for stride, size in sorted(self.dims):
            if stride > reach:
                return False
            reach += stride * (size - 1)
        return reach == self.last - self.first + 1

    def covers(self, other: Region) -> bool:
        """Is every byte of ``other`` surely covered?"""
        if self == other:
            return True
        return self.first <= other.first and other.last <= self.last and self.is_dense

    def overlaps(self, other: Region) -> bool:
        """Is some byte covered by both?"""
        if self.last < other.first or other.last < self.first:
            return False
        if self == other or (self.is_dense and other.is_dense):
            return True
        terms = [(stride, size - 1, 1) for stride, size in (*self.dims, (1, self.item_bytes)) if size > 1]
        terms += [(stride, size - 1, -1) for stride, size in (*other.dims, (1, other.item_bytes)) if size > 1]
        terms = sorted((term for term in terms if term[0]), reverse=True)
        return _solvable(terms, other.first - self.first)


def region(shape: tuple[int, ...], stride: tuple[int, ...] | None, offset: int, item_bytes: int) -> Region | None:
    """The region of a tensor; None when it is empty or its layout is unknown."""
    if stride is None or any(size <= 0 for size in shape):
        return None
    first = offset * item_bytes
    last = first + item_bytes - 1
    dims = []
    for size, step in zip(shape, stride, strict=True):
        if size == 1 or step == 0:
            continue
        span = step * item_bytes
        if span < 0:
            first += span * (size - 1)
            span = -span
        else:
            last += span * (size - 1)
        dims.append((span, size))
    return Region(first, last, tuple(dims), item_bytes)


def _solvable(terms: list[tuple[int, int, int]], target: int) -> bool:
    """Is there ``Σ sign·stride·i = target`` with ``0 ≤ i ≤ limit`` for each (stride, limit, sign)?"""
    reach: list[tuple[int, int]] = [(0, 0)]
    for stride, limit, sign in reversed(terms):
        low, high = reach[-1]
        reach.append((low - stride * limit, high) if sign < 0 else (low, high + stride * limit))
    reach.reverse()
    steps = 0
    stack = [(0, target)]
    while stack:
        depth, rest = stack.pop()
        low, high = reach[depth]
        if not low <= rest <= high:
            continue
        if depth == len(terms):
            return True
        steps += 1
        if steps > _MAX_STEPS:
            return True
        stride, limit, sign = terms[depth]
        low, high = reach[depth + 1]
        # rest - sign·stride·i must stay within [low, high].
        if sign > 0:
            start, end = -((high - rest) // stride), (rest - low) // stride
        else:
            start, end = -((rest - low) // stride), (high - rest) // stride
        stack.extend((depth + 1, rest - sign * stride * i) for i in range(max(start, 0), min(end, limit) + 1))
    return False
