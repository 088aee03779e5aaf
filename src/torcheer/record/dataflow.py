"""Whose result does an op read? Edges from tensors: storage, version and view, not names.

A tensor object is known by a number (its *ref*); the bytes it covers by its storage and region. An op that
reads a tensor has as parents

- the op that returned this tensor object ("argument"), and
- every op that has since written, through whatever view, into bytes the tensor covers ("memory"),

less what a later write has fully covered. Each in-place write makes a new ``Value`` of the written object.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torcheer.record.model import Edge, Value
from torcheer.record.region import Region, region


class Maker(NamedTuple):
    """The op that made or changed a tensor, on both levels."""

    op: int | None  # index into Record.ops
    aten: int | None  # index into Record.aten


class Source(NamedTuple):
    """One tensor that flows into a reading op."""

    maker: Maker
    value: int
    how: str  # "argument" | "memory"


class _Write(NamedTuple):
    maker: Maker
    value: int
    region: Region | None


# Shape, stride, offset and item size: what a region is computed from when a write makes it matter.
Layout = tuple[tuple[int, ...], "tuple[int, ...] | None", int, int]


@dataclass(slots=True)
class _Object:
    """What is known of a tensor object."""

    value: int
    maker: Maker
    layout: Layout | None  # None: unknown
    is_view: bool  # its maker did not fill it: it shows memory that was there
    seen_writes: int  # writes to its storage that it came after


class Dataflow:
    """Follows tensors through a run. Calls must come in order of execution."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._objects: dict[int, _Object] = {}
        self._writes: dict[int, list[_Write]] = {}
        self._first: dict[int, Maker] = {}  # storage → who made the first tensor seen in it
        self._storages: dict[int, int] = {}  # the caller's name of a storage → number within the run

    def knows(self, ref: int) -> bool:
        """Has this tensor object been introduced?"""
        return ref in self._objects

    def value_of(self, ref: int) -> int:
        """The present value of a tensor object."""
        return self._objects[ref].value

    def maker_of(self, ref: int) -> Maker:
        """The op that last returned or wrote a tensor object."""
        return self._objects[ref].maker

    def number_of(self, storage: int) -> int:
        """The number within the run of a storage by the caller's name; below -1 for one that no value is in."""
        return self._storages.get(storage, -2 - abs(storage))

    def introduce(self, ref: int, value: Value, layout: Layout | None, maker: Maker, *, is_view: bool) -> Value:
        """A tensor object comes to be. ``value.storage`` is the caller's name; it is renumbered here."""
        storage = value.storage
        seen = 0
        if storage is not None:
            storage = value.storage = self._storages.setdefault(storage, len(self._storages))
            seen = len(self._writes.get(storage, ()))
            self._first.setdefault(storage, maker)
        self._add(value, maker)
        value.version = seen
        # Writes before now have reached the op that made this object; they are its parents, not its readers'.
        self._objects[ref] = _Object(value.index, maker, layout, is_view, seen)
        return value

    def arrive(self, ref: int, value: Value, layout: Layout | None) -> Value:
        """A tensor object is used that nobody was seen making.

        If its memory is known, it is a view that was made behind the scenes (``nn.Parameter(y)``): it shows what
        the first op put there and everything written since.
        """
        storage = self._storages.get(value.storage) if value.storage is not None else None
        maker = Maker(None, None) if storage is None else self._first[storage]
        value = self.introduce(ref, value, layout, maker, is_view=False)
        self._objects[ref].seen_writes = 0
        return value

    def returned(self, ref: int, maker: Maker) -> Value:
        """An op hands back a tensor object that exists already, unchanged: dropout in eval mode."""
        known = self._objects[ref]
        old = self.values[known.value]
        value = self._add(copy(old), maker)
        if old.storage is not None:
            value.version = known.seen_writes = len(self._writes.get(old.storage, ()))
        known.value, known.maker, known.is_view = value.index, maker, True
        return value

    def wrote(self, ref: int, maker: Maker) -> Value:
        """An op writes in place into a tensor object's memory. Returns the object's new value."""
        known = self._objects[ref]
        old = self.values[known.value]
        value = self._add(copy(old), maker)
        if old.storage is not None:
            writes = self._writes.setdefault(old.storage, [])
            writes.append(_Write(maker, value.index, _region(known.layout)))
            value.version = known.seen_writes = len(writes)
        known.value, known.maker, known.is_view = value.index, maker, False
        return value

    def read(self, ref: int) -> list[Source]:
        """Everything that flows into an op reading this tensor object now."""
        known = self._objects[ref]
        first = Source(known.maker, known.value, "argument")
        storage = self.values[known.value].storage
        if storage is None:
            return [first]
        since = self._writes.get(storage, ())[known.seen_writes :]
        if not since:
            return [first]
        own = _region(known.layout)
        later: list[_Write] = []
        for write in since:
            if own is None or write.region is None:
                later.append(write)
            elif write.region.overlaps(own):
                if write.region.covers(own):
                    later.clear()
                later.append(write)
        sources = [Source(write.maker, write.value, "memory") for write in later]
        covering = later[0].region if later else None
        is_overwritten = own is not None and covering is not None and covering.covers(own)
        return sources if is_overwritten and not known.is_view else [first, *sources]

    def _add(self, value: Value, maker: Maker) -> Value:
        value.index = len(self.values)
        value.producer = maker.op
        self.values.append(value)
        return value


@lru_cache(4096)
def _cached_region(layout: Layout) -> Region | None:
    return region(*layout)


def _region(layout: Layout | None) -> Region | None:
    return None if layout is None else _cached_region(layout)


def edges(sources: list[Source], argument: str, *, aten: bool) -> list[Edge]:
    """Sources as edges of one level; what was made outside the run gives none."""
    result = []
    for source in sources:
        op = source.maker.aten if aten else source.maker.op
        if op is not None:
            result.append(Edge(op, source.value, source.how, argument))
    return result
