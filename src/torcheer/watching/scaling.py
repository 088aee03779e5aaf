"""What a training loop does around the model, seen while a model is watched: scaled losses, optimizer steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_plain_scale: Callable[..., Any] = torch.amp.GradScaler.scale
_lock = threading.Lock()
_listeners: list[LoopListener] = []
_handles: list[Any] = []


class LoopListener:
    """Told of what happens around the model."""

    def scaled(self, scaler: torch.amp.GradScaler) -> None:
        """A loss has been multiplied by the scaler's scale."""

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made its step."""


def listen(listener: LoopListener) -> None:
    """Tell the listener from now on. In place only while somebody listens."""
    with _lock:
        if not _listeners:
            torch.amp.GradScaler.scale = _seen_scale  # type: ignore[method-assign]
            _handles.append(register_optimizer_step_post_hook(_seen_step))
        _listeners.append(listener)


def unlisten(listener: LoopListener) -> None:
    with _lock:
        if listener not in _listeners:
            return
        _listeners.remove(listener)
        if not _listeners:
            torch.amp.GradScaler.scale = _plain_scale  # type: ignore[method-assign]
            _handles.pop().remove()


def _seen_scale(self: torch.amp.GradScaler, outputs: Any) -> Any:
    result = _plain_scale(self, outputs)
    for listener in list(_listeners):
        listener.scaled(self)
    return result


def _seen_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for listener in list(_listeners):
        listener.stepped(optimizer)
