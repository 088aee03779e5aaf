"""Modules that the user marked with a name, so that their outputs alone are compared.

A mark lies beside the module, not on it: pickle, deepcopy, ``state_dict`` and attributes are as without one. It goes
away with the module, and a copy of a marked module has none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_MARKS: dict[int, tuple[weakref.ref[Any], str]] = {}  # by id(), as a module's own == and hash() may be the user's


def mark(module: Any, name: str) -> None:
    """Mark a module with a name, in place of the one it had."""
    key = id(module)
    _MARKS[key] = (weakref.ref(module, lambda _: _MARKS.pop(key, None)), name)


def unmark(module: Any) -> bool:
    """Take a module's mark away; whether it had one."""
    return _MARKS.pop(id(module), None) is not None


def mark_of(module: Any) -> str | None:
    """The name a module is marked with."""
    held = _MARKS.get(id(module))
    return held[1] if held is not None and held[0]() is module else None


def marks_in(modules: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Names of the marked ones among modules given with their addresses, by address."""
    return {address: name for address, module in modules if (name := mark_of(module)) is not None}
