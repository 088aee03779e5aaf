"""Copies of models in single precision, to ask what they compute and not how finely."""

from __future__ import annotations

import copy
from typing import Any

import torch

from torcheer.capture.torch.tape import named_tensors

_LOW = (torch.float16, torch.bfloat16)


def is_low(model: Any) -> bool:
    """Whether a model computes in less than single precision."""
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    return any(tensor.dtype in _LOW for tensor in tensors)


def widened(model: torch.nn.Module, inp: Any, rounded_as: tuple[torch.nn.Module, Any]) -> tuple[torch.nn.Module, Any]:
    """The model and its input in single precision, its weights and its input rounded as the other side's are."""
    low = _low_type(model) or _low_type(rounded_as[0])
    low_input = _low_input(inp) or _low_input(rounded_as[1])
    return copy.deepcopy(model).to(low).float() if low is not None else model, _wide(inp, low_input)


def _low_input(inp: Any) -> torch.dtype | None:
    return next((tensor.dtype for _, tensor in named_tensors(inp) if tensor.dtype in _LOW), None)


def _low_type(model: torch.nn.Module) -> torch.dtype | None:
    tensors = [*model.parameters(), *model.buffers()]
    return next((tensor.dtype for tensor in tensors if tensor.dtype in _LOW), None)


def _wide(inp: Any, low: torch.dtype | None) -> Any:
    if isinstance(inp, torch.Tensor):
        return inp.to(low).float() if low is not None and inp.is_floating_point() else inp
    if isinstance(inp, (tuple, list)) and not hasattr(inp, "_fields"):
        return type(inp)(_wide(item, low) for item in inp)
    return {key: _wide(item, low) for key, item in inp.items()} if isinstance(inp, dict) else inp
