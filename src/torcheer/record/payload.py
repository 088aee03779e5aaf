"""The contents of tensors, apart from the record that describes them.

A payload store maps names to tensors. The record says which value's contents have which name
(``Record.saved``, ``Gradient.payload``); two values with the same contents share one. In memory it is a plain
dict; on disk (``file.py``) tensors are read one by one when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Payloads(Protocol):
    """What a reader of contents needs. Tensors are ``Any``: this room knows no framework."""

    def __getitem__(self, name: str) -> Any: ...

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __len__(self) -> int: ...
