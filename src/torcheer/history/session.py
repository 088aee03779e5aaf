"""What only a live history can do: the run's output and its autograd graph are still in memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Session(Protocol):
    """The room that recorded the run, kept by the history for as long as the history lives."""

    @property
    def output(self) -> Any:
        """What the model returned."""

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """Run ``loss.backward(**kwargs)`` and add it to the record."""

    def watching_backward(self) -> AbstractContextManager[Any]:
        """Add to the record the backward pass that runs inside the ``with`` block."""
