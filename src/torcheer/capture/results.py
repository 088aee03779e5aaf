"""What a run gives back, whichever framework ran: its output as plain data, and the contents that were kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torcheer.record.payload import is_kept


class Storing(Protocol):
    """A session, of which only the place of its contents matters here."""

    store: Any


class Current:
    """The session's store of contents. It moves from memory to a file, or to a longer one, during the session."""

    def __init__(self, session: Storing) -> None:
        self._session = session

    def __getitem__(self, name: str) -> Any:
        return self._session.store[name]

    def __contains__(self, name: object) -> bool:
        return name in self._session.store

    def __iter__(self) -> Iterator[str]:
        return iter(self._session.store)

    def __len__(self) -> int:
        return len(self._session.store)

    def is_current(self, name: str) -> bool:
        """Are these contents still what they were at the end of the run?"""
        return is_kept(self._session.store, name)

    @property
    def unsaved(self) -> dict[str, str]:
        """Contents that could not be stored, and why."""
        return dict(getattr(self._session.store, "unsaved", {}))


def plain_output(output: Any) -> Any:
    """What the model returned, where it is not tensors."""
    if isinstance(output, (bool, int, float, str)):
        return output
    if isinstance(output, (tuple, list)):
        return tuple(plain_output(item) for item in output)
    if isinstance(output, dict):
        return {str(key): plain_output(item) for key, item in output.items()}
    fields = getattr(output, "__dataclass_fields__", None)
    if fields is not None and not isinstance(output, type):
        return {name: plain_output(getattr(output, name, None)) for name in fields}
    return None
