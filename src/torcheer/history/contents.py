"""The tensors behind a record: which of them are kept, under which name, and why one is not."""

from __future__ import annotations

from typing import Any

from torcheer.record.model import Gradient, Record
from torcheer.record.payload import Payloads, is_kept, reason_missing


class Contents:
    """Finds the contents of values and gradients in the payload store."""

    def __init__(self, record: Record, payloads: Payloads) -> None:
        self.record = record
        self.payloads = payloads
        self._gradients: dict[int, Gradient] = {}
        self._param_gradients: dict[int, Gradient] = {}
        self._num_read = 0

    def has(self, value: int) -> bool:
        """Whether a value's contents can be had."""
        return self._is_kept(self.record.saved.get(value))

    def read(self, value: int) -> Any:
        """Return a value's contents, which must be kept. ``NotSavedError`` where they were overwritten since."""
        return self.payloads[self.record.saved[value]]

    def why_not(self, value: int) -> str | None:
        """Return why contents that were to be kept cannot be had, None where they were not to be kept."""
        return self._why_not(self.record.saved.get(value))

    def gradient_of(self, value: int) -> Gradient | None:
        """Return a value's gradient in the last backward pass that reached it."""
        self._read_gradients()
        return self._gradients.get(value)

    def gradient_of_param(self, param: int) -> Gradient | None:
        """Return a param's gradient in the last backward pass that reached it."""
        self._read_gradients()
        return self._param_gradients.get(param)

    def has_gradient(self, gradient: Gradient | None) -> bool:
        """Whether a gradient's contents can be had."""
        return gradient is not None and self._is_kept(gradient.payload)

    def read_gradient(self, gradient: Gradient | None) -> Any:
        """Return a gradient's contents, None where they are not kept."""
        if gradient is None or gradient.payload is None or not self._is_kept(gradient.payload):
            return None
        return self.payloads[gradient.payload]

    def why_no_gradient(self, gradient: Gradient | None) -> str | None:
        """Return why a gradient that was to be kept cannot be had, None where none was to be kept."""
        return None if gradient is None else self._why_not(gradient.payload)

    def _is_kept(self, name: str | None) -> bool:
        return name is not None and is_kept(self.payloads, name)

    def _why_not(self, name: str | None) -> str | None:
        if name is None:
            return None
        return reason_missing(self.payloads, name) or "the recording does not have it"

    def _read_gradients(self) -> None:
        # A backward pass adds to the record while the history is in use.
        for gradient in self.record.gradients[self._num_read :]:
            if gradient.value is not None:
                self._gradients[gradient.value] = gradient
            if gradient.param is not None:
                self._param_gradients[gradient.param] = gradient
        self._num_read = len(self.record.gradients)
