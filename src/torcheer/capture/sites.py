"""Call sites: from code objects and instruction offsets to lines of source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any

from torcheer.record.model import Frame, Site


class Sites:
    """The call sites of a run. Instructions of one place in the source are one site.

    Python compiles the condition of a ``while`` loop twice, before the loop and at its end; both are the same call.
    """

    def __init__(self, chains: Iterable[tuple[int, ...]], codes: Mapping[int, CodeType]) -> None:
        self.sites: list[Site] = []
        self.number: list[int] = []  # place of a chain among those given → index into ``sites``
        self._places: dict[int, list[Any]] = {}  # id() of a code object → where its instructions are
        known: dict[tuple[Any, ...], int] = {}
        # A chain is (id() of a code object, offset of an instruction) pairs in one flat tuple, innermost first.
        for chain in chains:
            pairs = list(zip(chain[::2], chain[1::2], strict=True))[::-1]
            key = tuple((code, self._place(codes[code], offset)) for code, offset in pairs)
            index = known.get(key)
            if index is None:
                index = known[key] = len(self.sites)
                frames = (_frame(codes[code], self._place(codes[code], offset)) for code, offset in pairs)
                self.sites.append(Site(tuple(frames)))
            self.number.append(index)

    def _place(self, code: CodeType, offset: int) -> tuple[Any, ...]:
        """Line and columns of an instruction; before Python 3.11 its line and offset."""
        places = self._places.get(id(code))
        if places is None:
            places = self._places[id(code)] = list(code.co_positions()) if hasattr(code, "co_positions") else []
        if offset // 2 < len(places) and None not in places[offset // 2]:
            return tuple(places[offset // 2])
        line = next((line for start, end, line in code.co_lines() if start <= offset < end), None)
        return (line, offset)


def _frame(code: CodeType, place: tuple[Any, ...]) -> Frame:
    return Frame(code.co_filename, place[0] or code.co_firstlineno, getattr(code, "co_qualname", code.co_name))
