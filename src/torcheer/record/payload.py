"""The contents of tensors, apart from the record that describes them.

A payload store maps names to tensors. The record says which value's contents have which name
(``Record.saved``, ``Gradient.payload``); two values with the same contents share one. In memory it may be a
plain dict; on disk (``file.py``) tensors are read one by one when asked for.

Names mean nothing to a user: whoever shows an error puts the label of the op in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torcheer.errors import NotSavedError

OVERWRITTEN = "they were overwritten after the run"


class Payloads(Protocol):
    """What a reader of contents needs. Tensors are ``Any``: this room knows no framework.

    A store may have two more members; a plain dict has neither, so ask ``is_kept`` and ``reason_missing``:

    ``unsaved: Mapping[str, str]``
        Names of contents that were to be kept and could not be, with a reason that completes "not saved: ".
        The store does not contain these names.
    ``is_current(name) -> bool``
        Whether contents in the store are still those that were kept. One kept without a copy can be
        overwritten later; reading it then raises ``NotSavedError`` with a reason of the same form.
    """

    def __getitem__(self, name: str) -> Any: ...

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __len__(self) -> int: ...


def is_kept(payloads: Payloads, name: str) -> bool:
    """Whether a store has contents of this name, as they were when they were kept."""
    if name not in payloads:
        return False
    is_current = getattr(payloads, "is_current", None)
    return is_current is None or bool(is_current(name))


def unsaved_of(payloads: Payloads) -> dict[str, str]:
    """Names a store was to keep and could not, and why."""
    return dict(getattr(payloads, "unsaved", {}))


def reason_missing(payloads: Payloads, name: str) -> str | None:
    """Why contents that were kept or to be kept cannot be had; None where a store never heard of them."""
    if name not in payloads:
        return unsaved_of(payloads).get(name)
    try:
        payloads[name]
    except NotSavedError as error:
        return str(error)
    return OVERWRITTEN
