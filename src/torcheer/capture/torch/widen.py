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


def widened(model: torch.nn.Module, inp: Any) -> tuple[torch.nn.Module, Any]:
    """The model and its input in single precision; those that are already stay as they are."""
    return copy.deepcopy(model).float() if is_low(model) else model, _wide(inp)


def _wide(inp: Any) -> Any:
    if isinstance(inp, torch.Tensor):
        return inp.float() if inp.dtype in _LOW else inp
    if isinstance(inp, (tuple, list)) and not hasattr(inp, "_fields"):
        return type(inp)(_wide(item) for item in inp)
    return {key: _wide(item) for key, item in inp.items()} if isinstance(inp, dict) else inp
