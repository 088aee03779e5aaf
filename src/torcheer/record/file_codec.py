"""Turns the dataclasses of ``model.py`` into columns of JSON, and back.

Everything follows from their fields and annotations, so that a field added there needs nothing here; a field
with a default may be missing in a file, which is then older than the field. Unknown columns are skipped.

    table      {"count": n, "columns": {field: column}}
    column     [cell, …]                          one cell per row
               {"all": column}                    the one cell of that column in every row
               {"pool": column, "rows": [i, …]}   distinct cells, and which one each row has
               {"null": [i, …], "rest": column}   the rows that are None, and the others
               {"len": column, "item": column}    tuples: their lengths, and their items in one row
               {"len": …, "key": …, "item": …}    dicts, likewise
               {"fields": {field: column}}        named tuples, field by field

A cell is a number, a string, a boolean, null, or plain data (``file_plain.py``). Which of the forms a column
takes is the writer's choice: it takes the short one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, Union, get_args, get_origin, get_type_hints

from torcheer.record.file_plain import (
    MalformedError,
    checked,
    checked_int,
    decode_plain,
    encode_plain,
    shortened,
)

NUM_FREE_CELLS = 10_000_000  # a budget every file has
CELLS_PER_BYTE = 100  # and what it may have on top, by its size


class Budget:
    """Bounds how much a file can grow in memory: ``all`` and ``pool`` would let a few bytes fill it."""

    def __init__(self, size_bytes: int) -> None:
        self._left = NUM_FREE_CELLS + CELLS_PER_BYTE * size_bytes

    def spend(self, num_cells: int) -> None:
        self._left -= num_cells
        if self._left < 0:
            raise MalformedError("it describes far more data than its size allows")


class Kind:
    """How the cells of one annotation are written."""

    shares = True  # cells cannot change and equal ones are interchangeable: rows may share one
    pools = True  # worth sharing: written at length, and often the same

    def encode(self, cells: list[Any]) -> Any:
        """Return the cells as a column without ``all`` and ``pool``."""
        raise NotImplementedError

    def decode(self, data: Any, count: int, budget: Budget, /) -> list[Any]:
        """The inverse of ``encode``. The cells are paid for, their contents are not."""
        raise NotImplementedError


class Scalar(Kind):
    """int, str, bool, float."""

    def __init__(self, scalar: type) -> None:
        self.scalar = scalar
        self.shares = scalar is not float  # 0.0 == -0.0
        self.pools = scalar in (str, bool)

    def encode(self, cells: list[Any]) -> Any:
        self._check(cells)
        return [encode_plain(cell) for cell in cells] if self.scalar is float else list(cells)

    def decode(self, data: Any, count: int, _budget: Budget) -> list[Any]:
        cells: list[Any] = checked(data, list, count)
        if self.scalar is float:
            cells = [decode_plain(cell) for cell in cells]
        self._check(cells)
        return cells

    def _check(self, cells: list[Any]) -> None:
        for found in set(map(type, cells)):
            if found is not self.scalar:
                wrong = next(cell for cell in cells if type(cell) is found)
                raise MalformedError(f"{shortened(wrong)} is not of type {self.scalar.__name__}")
        if self.scalar is int and cells:
            checked_int(min(cells))
            checked_int(max(cells))


class Plain(Kind):
    """``Any``: plain data."""

    shares = pools = False  # a dict must not be shared; 1, 1.0 and True are equal and not the same

    def encode(self, cells: list[Any]) -> Any:
        return [encode_plain(cell) for cell in cells]

    def decode(self, data: Any, count: int, _budget: Budget) -> list[Any]:
        return [decode_plain(cell) for cell in checked(data, list, count)]


class Maybe(Kind):
    """``X | None``."""

    def __init__(self, inner: Kind) -> None:
        self.inner = inner
        self.shares, self.pools = inner.shares, inner.pools

    def encode(self, cells: list[Any]) -> Any:
        rest = [cell for cell in cells if cell is not None]
        if isinstance(self.inner, Scalar):
            present = iter(self.inner.encode(rest))
            return [None if cell is None else next(present) for cell in cells]
        null = [row for row, cell in enumerate(cells) if cell is None]
        return {"null": null, "rest": encode_column(self.inner, rest)} if null else self.inner.encode(rest)

    def decode(self, data: Any, count: int, budget: Budget) -> list[Any]:
        if isinstance(self.inner, Scalar):
            present = iter(self.inner.decode(*_without_none(data, count), budget))
            return [None if cell is None else next(present) for cell in data]
        if not isinstance(data, dict) or "null" not in data:
            return self.inner.decode(data, count, budget)
        null, rest = data["null"], _member(data, "rest")
        missing = set(_places(null, len(null) if isinstance(null, list) else 0, count))
        present = iter(decode_column(self.inner, rest, count - len(missing), budget))
        return [None if row in missing else next(present) for row in range(count)]


class Many(Kind):
    """``tuple[X, ...]``, or of a fixed length."""

    def __init__(self, inner: Kind, length: int | None = None) -> None:
        self.inner, self.length = inner, length
        self.shares = self.pools = inner.shares

    def encode(self, cells: list[Any]) -> Any:
        items = encode_column(self.inner, [item for cell in _checked_cells(cells, tuple) for item in cell])
        return {"len": self._encode_lengths(cells), "item": items}

    def decode(self, data: Any, count: int, budget: Budget) -> list[Any]:
        lengths = self._decode_lengths(data, count, budget)
        items = iter(decode_column(self.inner, _member(data, "item"), sum(lengths), budget))
        return [tuple(islice(items, length)) for length in lengths]

    def _encode_lengths(self, cells: list[Any]) -> Any:
        lengths = [len(cell) for cell in cells]
        self._check(lengths)
        return encode_column(Scalar(int), lengths)

    def _decode_lengths(self, data: Any, count: int, budget: Budget) -> list[int]:
        lengths = decode_column(Scalar(int), _member(data, "len"), count, budget)
        self._check(lengths)
        return lengths

    def _check(self, lengths: list[int]) -> None:
        if lengths and min(lengths) < 0:
            raise MalformedError("a length is negative")
        if self.length is not None and set(lengths) - {self.length}:
            raise MalformedError(f"a tuple is not {self.length} long")


class Pairs(Many):
    """``dict[K, V]``, in its order."""

    def __init__(self, key: Kind, item: Kind) -> None:
        super().__init__(item)
        self.key = key
        self.shares = self.pools = False

    def encode(self, cells: list[Any]) -> Any:
        keys = encode_column(self.key, [key for cell in _checked_cells(cells, dict) for key in cell])
        items = encode_column(self.inner, [item for cell in cells for item in cell.values()])
        return {"len": self._encode_lengths(cells), "key": keys, "item": items}

    def decode(self, data: Any, count: int, budget: Budget) -> list[Any]:
        lengths = self._decode_lengths(data, count, budget)
        keys = iter(decode_column(self.key, _member(data, "key"), sum(lengths), budget))
        items = iter(decode_column(self.inner, _member(data, "item"), sum(lengths), budget))
        cells = [dict(zip(islice(keys, n), islice(items, n), strict=True)) for n in lengths]
        if [len(cell) for cell in cells] != lengths:
            raise MalformedError("a key stands twice in a dict")
        return cells


class Row(Kind):
    """A named tuple or a dataclass, field by field."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.kinds = {name: kind_of(hint) for name, hint in get_type_hints(cls).items()}
        self.defaults: dict[str, Callable[[], Any]] = {}
        if is_dataclass(cls):
            self.pools = self.shares = False  # it can be changed: each row has its own
            for field in fields(cls):
                if field.default_factory is not MISSING:
                    self.defaults[field.name] = field.default_factory
                elif field.default is not MISSING:
                    self.defaults[field.name] = partial(_same, field.default)
        else:
            self.pools = self.shares = all(kind.shares for kind in self.kinds.values())
            for name, default in getattr(cls, "_field_defaults", {}).items():
                self.defaults[name] = partial(_same, default)

    def encode(self, cells: list[Any]) -> Any:
        _checked_cells(cells, self.cls)
        columns = {}
        for name, kind in self.kinds.items():
            column = [getattr(cell, name) for cell in cells]
            if name in self.defaults and self.defaults[name]() is None and not any(one is not None for one in column):
                continue  # as if the file were older than the field
            try:
                columns[name] = encode_column(kind, column)
            except MalformedError as error:
                raise MalformedError(f"{self.cls.__name__}.{name}: {error}") from None
        return {"fields": columns}

    def decode(self, data: Any, count: int, budget: Budget) -> list[Any]:
        columns = checked(_member(data, "fields"), dict)
        cells = []
        for name, kind in self.kinds.items():
            try:
                cells.append(self._decode_field(name, kind, columns, count, budget))
            except MalformedError as error:
                raise MalformedError(f"{self.cls.__name__}.{name}: {error}") from None
        return list(map(self.cls, *cells))

    def _decode_field(self, name: str, kind: Kind, columns: dict[str, Any], count: int, budget: Budget) -> list[Any]:
        if name in columns:
            return decode_column(kind, columns[name], count, budget)
        if name not in self.defaults:
            raise MalformedError("the column is missing")
        budget.spend(count)
        return [self.defaults[name]() for _ in range(count)]


class Table(Kind):
    """``list[X]``. A record has one of each, so the column has one cell."""

    shares = pools = False

    def __init__(self, row: Row) -> None:
        self.row = row

    def encode(self, cells: list[Any]) -> Any:
        (table,) = cells
        checked(table, list)
        return {"count": len(table), "columns": self.row.encode(table)["fields"] if table else {}}

    def decode(self, data: Any, _count: int, budget: Budget) -> list[Any]:
        num_rows, columns = _member(data, "count"), _member(data, "columns")
        if checked_int(num_rows) < 0:
            raise MalformedError("the number of rows is negative")
        budget.spend(num_rows)
        if not num_rows and not checked(columns, dict):
            return [[]]  # most runs leave some table empty, and need no columns for it
        return [self.row.decode({"fields": columns}, num_rows, budget)]


def encode_column(kind: Kind, cells: list[Any]) -> Any:
    """Return the cells as a column, in the short one of its forms."""
    if len(cells) < 2:
        return kind.encode(cells)
    if not kind.shares:
        return {"all": kind.encode(cells[:1])} if all(cell is None for cell in cells) else kind.encode(cells)
    if isinstance(kind, Scalar) or (isinstance(kind, Maybe) and isinstance(kind.inner, Scalar)):
        kind.encode(cells)  # looks at every cell: among distinct ones, True would pass for 1
    try:
        places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    except TypeError:  # unhashable, so of a wrong type: encode says which
        return kind.encode(cells)
    if len(places) == 1:
        return {"all": kind.encode(cells[:1])}
    if kind.pools and 2 * len(places) <= len(cells):
        return {"pool": kind.encode(list(places)), "rows": [places[cell] for cell in cells]}
    return kind.encode(cells)


def decode_column(kind: Kind, data: Any, count: int, budget: Budget) -> list[Any]:
    """Return the ``count`` cells of a column."""
    budget.spend(count)
    if isinstance(data, dict) and "all" in data:
        cells = kind.decode(data["all"], 1, budget) * count
        if cells and cells[0] is not None and not kind.shares:
            raise MalformedError("its rows share one cell, which only constants may")
    elif isinstance(data, dict) and "pool" in data:
        pool, rows = data["pool"], _member(data, "rows")
        if not kind.shares:
            raise MalformedError("its rows share cells, which only constants may")
        places = _places(rows, count, count)
        num_distinct = max(places, default=-1) + 1
        budget.spend(num_distinct)
        distinct = kind.decode(pool, num_distinct, budget)
        cells = [distinct[place] for place in places]
    else:
        return kind.decode(data, count, budget)
    if isinstance(kind.inner if isinstance(kind, Maybe) else kind, Scalar):
        return cells
    # Sharing is cheap here and not for whoever walks over the cells.
    budget.spend(sum(len(cell) for cell in cells if isinstance(cell, tuple)))
    return cells


def _places(data: Any, count: int, limit: int) -> list[int]:
    """``data`` if it is a list of ``count`` integers, each at least 0 and below ``limit``."""
    places: list[int] = checked(data, list, count)
    if places and not (set(map(type, places)) == {int} and min(places) >= 0 and max(places) < limit):
        raise MalformedError("the number of a row is out of range")
    return places


def _member(data: Any, name: str) -> Any:
    if name not in checked(data, dict):
        raise MalformedError(f"{name!r} is missing")
    return data[name]


def _checked_cells(cells: list[Any], cls: type) -> list[Any]:
    for cell in cells:
        if not isinstance(cell, cls):
            raise MalformedError(f"{shortened(cell)} is not of type {cls.__name__}")
    return cells


def _without_none(data: Any, count: int) -> tuple[list[Any], int]:
    rest = [cell for cell in checked(data, list, count) if cell is not None]
    return rest, len(rest)


def _same(value: Any) -> Any:
    return value


@cache
def kind_of(hint: Any) -> Kind:
    """How a field of that annotation is written."""
    if hint is Any:
        return Plain()
    if hint in (int, str, bool, float):
        return Scalar(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        inner = kind_of(next(argument for argument in arguments if argument is not type(None)))
        return inner if isinstance(inner, Plain) else Maybe(inner)
    if origin is dict:
        return Pairs(*map(kind_of, arguments))
    if origin is list:
        return Table(Row(arguments[0]))
    if origin is tuple and arguments[1:] == (...,):
        return Many(kind_of(arguments[0]))
    if origin is tuple and len(set(arguments)) == 1:
        return Many(kind_of(arguments[0]), len(arguments))
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return Row(hint)
    raise TypeError(f"the recording's format has no form for a field annotated {hint!r}")
