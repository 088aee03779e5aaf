"""How the user's arguments become a call of a PyTorch model: ``capture/arguments.py`` has the rules."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.arguments import Arguments
from torcheer.capture.arguments import arrange as arrange_call
from torcheer.errors import CaptureError


class Inputs(Arguments):
    """One call of a PyTorch model."""

    __slots__ = ()

    def tensors(self, is_tensor: Any = None) -> list[tuple[str, torch.Tensor]]:
        """Every tensor handed in, once, with its path: ``x``, ``batch.mask``."""
        return super().tensors(is_tensor or _is_tensor)


def arrange(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Decide how the given arguments call the model, and refuse what cannot be a call."""
    if not callable(model) or isinstance(model, torch.Tensor):
        raise CaptureError(
            f"The first argument is the model, and a {type(model).__name__} is none. "
            "Call log_forward_pass(model, x), with the model first and its inputs after it."
        )
    if isinstance(model, torch.nn.Module):
        return Inputs(*arrange_call(getattr(model, "forward", model), type(model).__name__, args, kwargs))
    return Inputs(*arrange_call(model, getattr(model, "__name__", str(model)), args, kwargs))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
