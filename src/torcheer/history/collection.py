"""Sequences and mappings of views: made one by one when asked for, since a run may have 10,000 operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

from torcheer.errors import LookupKeyError, near_or_all
from torcheer.units import counted_text

SHOWN = 8  # how many names the repr of a mapping lists
View_co = TypeVar("View_co", covariant=True)


class ViewSequence(Sequence[View_co]):
    """Views by position."""

    def __init__(self, count: int, make: Callable[[int], View_co]) -> None:
        self._count = count
        self._make = make

    @overload
    def __getitem__(self, position: int) -> View_co: ...

    @overload
    def __getitem__(self, position: slice) -> list[View_co]: ...

    def __getitem__(self, position: int | slice) -> View_co | list[View_co]:
        if isinstance(position, slice):
            return [self._make(index) for index in range(self._count)[position]]
        return self._make(range(self._count)[position])

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return repr(list(self))


class ViewMapping(Mapping[str, View_co], Generic[View_co]):
    """Views by address. Further addresses of the same thing are found too, but not listed."""

    def __init__(self, noun: str, names: Sequence[tuple[str, tuple[str, ...]]], make: Callable[[int], View_co]) -> None:
        self._noun = noun
        self._make = make
        self._index = {name: index for index, (name, _) in enumerate(names)}
        self._aliases = {alias: index for index, (_, aliases) in enumerate(names) for alias in aliases}

    def at(self, index: int) -> View_co:
        """Return the view of an entry by its number in the record."""
        return self._make(index)

    def __getitem__(self, address: str) -> View_co:
        index = self._index.get(address, self._aliases.get(address))
        if index is None:
            hint = near_or_all(str(address), self._index)
            raise LookupKeyError(f"There is no {self._noun} {address!r} in this model.{hint}")
        return self._make(index)

    def __contains__(self, address: object) -> bool:
        return address in self._index or address in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in list(self._index)[:SHOWN])
        more = f" and {len(self) - SHOWN} more" if len(self) > SHOWN else ""
        return f"<{counted_text(len(self), self._noun)}: {shown}{more}>"

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._index, *self._aliases]
