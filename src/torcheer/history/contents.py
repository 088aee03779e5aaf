"""The tensors behind a record: which of them are kept, under which name, and why one is not."""

from __future__ import annotations

from typing import Any

from torcheer.record.model import Gradient, Record
from torcheer.record.payload import Payloads


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
        """Return a value's contents, which must be kept."""
        return self.payloads[self.record.saved[value]]

    def why_not(self, value: int) -> str | None:
        """Return why contents that were to be kept are not, None where they were not to be kept."""
        name = self.record.saved.get(value)
        if name is None:
            return None
        return str(getattr(self.payloads, "unsaved", {}).get(name, "the recording does not have them"))

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

    def _is_kept(self, name: str | None) -> bool:
        return name is not None and name in self.payloads

    def _read_gradients(self) -> None:
        # A backward pass adds to the record while the history is in use.
        for gradient in self.record.gradients[self._num_read :]:
            if gradient.value is not None:
                self._gradients[gradient.value] = gradient
            if gradient.param is not None:
                self._param_gradients[gradient.param] = gradient
        self._num_read = len(self.record.gradients)
