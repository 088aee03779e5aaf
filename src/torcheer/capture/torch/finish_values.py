"""Tensors and plain data on their way from the tape into the record."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from torcheer.capture.torch.events import ValueRow
from torcheer.capture.torch.tape import Tape, shared_ref
from torcheer.record.dataflow import Dataflow, Layout, Maker
from torcheer.record.model import Item, Opaque, Part, Record, Ref, Value

_PLACES = tuple(map(str, range(16)))
_SHARED_TYPES = frozenset({int, Ref, bool, float, str, type(None)})
_PLAIN_TYPES = frozenset({bool, int, float, str, type(None)})
_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))


class Values:
    """Gives every tensor on the tape its values, as the replay goes on."""

    def __init__(self, tape: Tape, record: Record) -> None:
        self.tape = tape
        self.record = record
        self.flow = Dataflow()
        self.param_refs: dict[int, int] = {}  # tensor object → index into record.params
        self.parts: list[tuple[Value, Part]] = []  # tensors spread over processes
        self._facts: dict[Any, Any] = {}  # metadata of a tensor → the same as plain data
        self._refs: list[Ref] = []
        self._items: dict[tuple[str, int], Item] = {}
        self._item_tuples: dict[tuple[Item, ...], tuple[Item, ...]] = {}
        self._kwargs: dict[str, dict[str, Any]] = {}
        self._tuples: dict[Any, tuple[Any, ...]] = {}
        self.kept: dict[tuple[int, int], str] = {}  # (event, ref) → name of the contents

    def saved(self, event: int, ref: int, value: int) -> None:
        """If the contents of this tensor were kept at this event, they are this value's."""
        name = self.kept.get((event, ref))
        if name is not None:
            self.record.saved.setdefault(value, name)

    def introduce(self, ref: Ref, kind: str, maker: Maker, *, is_view: bool) -> Value:
        """The first value of a tensor object."""
        value, layout = self._described(ref, kind)
        self._note_part(ref, value)
        return self.flow.introduce(ref, value, layout, maker, is_view=is_view)

    def ensure(self, ref: Ref) -> None:
        """Introduce a tensor that the run uses and nobody was seen making."""
        if not self.flow.knows(ref):
            value, layout = self._described(ref, "constant")
            self._note_part(ref, value)
            self.flow.arrive(ref, value, layout)

    def _note_part(self, ref: Ref, value: Value) -> None:
        part = self.tape.parts.get(ref)
        if part is not None:
            self.parts.append((value, part))

    def _described(self, ref: Ref, kind: str) -> tuple[Value, Layout | None]:
        raw = self.tape.values[ref]
        row = raw if isinstance(raw, ValueRow) else ValueRow(*raw)
        key = (row.shape, row.stride, row.dtype, row.device, row.layout)
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = _facts(row)
        shape, stride, dtype, device, layout, num_bytes = facts
        param = self.param_refs.get(ref)
        if param is not None and kind == "constant":
            kind = self.record.params[param].kind
        size = num_bytes if row.size_bytes is None else row.size_bytes
        offset = _size(row.offset)
        value = Value(-1, kind, None, shape, dtype, device, layout, stride, offset, row.storage, 0, size, param=param)
        return value, None if row.storage is None else (shape, stride, offset, row.dtype.itemsize)

    def arguments(self, args: tuple[Any, ...], refs: list[tuple[str, Ref]]) -> tuple[Any, ...]:
        """Positional arguments as the record keeps them; the tensors in them are added to ``refs``."""
        out = []
        for place, argument in enumerate(args):
            kind = type(argument)
            if kind is Ref:
                self.ensure(argument)
                refs.append((_PLACES[place] if place < len(_PLACES) else str(place), argument))
                out.append(self.ref(self.flow.value_of(argument)))
            elif kind in _PLAIN_TYPES:
                out.append(argument)
            else:
                out.append(self.plain(argument, str(place), refs))
        return self.shared(tuple(out))

    def ref(self, value: int) -> Ref:
        """The one Ref of a value."""
        refs = self._refs
        while len(refs) <= value:
            refs.append(shared_ref(len(refs)))
        return refs[value]

    def item(self, path: str, value: int) -> Item:
        """The one Item of a path and value."""
        return self._items.setdefault((path, value), Item(path, value))

    def shared(self, numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        """The first of all equal tuples, so that a record holds each once."""
        if len(numbers) > 8 or not all(type(number) in _SHARED_TYPES for number in numbers):
            return numbers
        # 1, 1.0 and True are equal and not the same; a Ref is an int and not one.
        key = (numbers, *map(type, numbers))
        return self._tuples.setdefault(key, numbers)

    def keywords(self, kwargs: dict[str, Any], refs: list[tuple[str, Ref]]) -> dict[str, Any]:
        """Keyword arguments as the record keeps them; equal ones are held once."""
        plain = {key: self.plain(argument, key, refs) for key, argument in kwargs.items()}
        return self._kwargs.setdefault(repr(plain), plain)

    def same_items(self, items: list[Item]) -> tuple[Item, ...]:
        """Items as a tuple; an op, its last ATen op and its module often return the same."""
        return self._item_tuples.setdefault(tuple(items), tuple(items))

    def plain(self, argument: Any, path: str, refs: list[tuple[str, Ref]]) -> Any:
        """An argument as the record keeps it; the tensors in it are added to ``refs``."""
        if isinstance(argument, Ref):
            self.ensure(argument)
            refs.append((path, argument))
            return self.ref(self.flow.value_of(argument))
        if isinstance(argument, Opaque):
            return argument
        if isinstance(argument, (tuple, list)):
            # A list too: equal tuples are held once, and PyTorch takes either.
            return self.shared(tuple(self.plain(item, f"{path}.{place}", refs) for place, item in enumerate(argument)))
        if isinstance(argument, dict):
            return {key: self.plain(item, f"{path}.{key}", refs) for key, item in argument.items()}
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return slice(*(self.plain(part, path, refs) for part in parts))
        if isinstance(argument, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return sys.intern(str(argument))
        return argument if isinstance(argument, _PLAIN) else Opaque(type(argument).__name__)

    def items(self, structure: Any) -> list[Item]:
        """The tensors of a structure as they are now."""
        items = []
        for path, ref in refs_in(structure):
            self.ensure(ref)
            items.append(self.item(path, self.flow.value_of(ref)))
        return items

    def params_of(self, values: Sequence[int]) -> tuple[int, ...]:
        """The params among values, each once."""
        found = (self.flow.values[value].param for value in values)
        return self.shared(tuple(dict.fromkeys(param for param in found if param is not None)))


def _facts(row: ValueRow) -> tuple[Any, ...]:
    shape = tuple(_size(size) for size in row.shape)
    stride = None if row.stride is None else tuple(_size(step) for step in row.stride)
    num_bytes = None
    if row.layout is torch.strided and all(extent >= 0 for extent in shape):
        num_bytes = math.prod(shape) * row.dtype.itemsize
    names = (str(row.dtype).removeprefix("torch."), str(row.device), str(row.layout).removeprefix("torch."))
    return (shape, stride, *map(sys.intern, names), num_bytes)


def _size(size: Any) -> int:
    """A size or stride; -1 where it differs from row to row (nested tensors) or is symbolic."""
    if type(size) is int:
        return size
    try:
        return int(size)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return -1


def refs_in(structure: Any, path: str = "") -> list[tuple[str, Ref]]:
    """The tensors of a structure on the tape, with their paths."""
    if isinstance(structure, Ref):
        return [(path, structure)]
    prefix = f"{path}." if path else ""
    if isinstance(structure, (tuple, list)):
        return [pair for place, item in enumerate(structure) for pair in refs_in(item, f"{prefix}{place}")]
    if isinstance(structure, dict):
        return [pair for key, item in structure.items() for pair in refs_in(item, f"{prefix}{key}")]
    if isinstance(structure, slice):
        parts = (structure.start, structure.stop, structure.step)
        return [pair for part in parts for pair in refs_in(part, path)]
    return []
