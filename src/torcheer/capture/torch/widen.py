"""Copies of models in single precision, to ask what they compute and not how finely."""

from __future__ import annotations

import copy
from typing import Any

import torch

_LOW = (torch.float16, torch.bfloat16)


def is_low(model: Any) -> bool:
    """Whether a model computes in less than single precision."""
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    return any(tensor.dtype in _LOW for tensor in tensors)


def widened(model: torch.nn.Module, inp: Any, rounded_as: torch.nn.Module) -> tuple[torch.nn.Module, Any]:
    """The model and its input in single precision, its weights rounded as the other model's are."""
    low = _low_type(model) or _low_type(rounded_as)
    return copy.deepcopy(model).to(low).float() if low is not None else model, _wide(inp)


def _low_type(model: torch.nn.Module) -> torch.dtype | None:
    tensors = [*model.parameters(), *model.buffers()]
    return next((tensor.dtype for tensor in tensors if tensor.dtype in _LOW), None)


def _wide(inp: Any) -> Any:
    if isinstance(inp, torch.Tensor):
        return inp.float() if inp.dtype in _LOW else inp
    if isinstance(inp, (tuple, list)) and not hasattr(inp, "_fields"):
        return type(inp)(_wide(item) for item in inp)
    return {key: _wide(item) for key, item in inp.items()} if isinstance(inp, dict) else inp
