"""The same as ``capture/torch/given.py`` for a Paddle layer: made by torch, handed over as arrays."""

from __future__ import annotations

from typing import Any

from torcheer.capture.paddle.side import as_tensors
from torcheer.capture.torch.given import Maker


class PaddleMaker(Maker):
    """Makes the inputs of a Paddle layer."""

    def moved(self, value: Any) -> Any:
        """As Paddle's tensors."""
        return as_tensors(value, self._params)
