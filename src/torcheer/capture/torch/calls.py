"""The input of a comparison as a call of a PyTorch model: numpy arrays become tensors on the model's device."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.inputs import Inputs, arrange
from torcheer.diff.arrays import as_array
from torcheer.errors import ComparisonError

Tensor = torch.Tensor


def torch_call(model: Any, given: Any) -> Inputs:
    """The call of ``model`` that this input makes; None: it is not to be called."""
    if not isinstance(model, torch.nn.Module):
        raise ComparisonError(
            f"A {type(model).__name__} was given where a model is expected. Pass a torch.nn.Module on each side."
        )
    if given is None:
        return Inputs((), {})
    anchor = next(iter(model.parameters()), None)
    device = anchor.device if anchor is not None else torch.device("cpu")
    return arrange(model, (as_tensors(given, device),), {})


def as_tensors(given: Any, device: torch.device) -> Any:
    """The same structure with arrays as tensors, and everything on one device."""
    if isinstance(given, Tensor):
        return given.to(device)
    if hasattr(given, "__array_interface__"):
        return torch.tensor(given, device=device)
    if hasattr(given, "__array__"):  # another framework's
        return torch.tensor(as_array(given), device=device)
    if isinstance(given, (tuple, list)) and not hasattr(given, "_fields"):
        return type(given)(as_tensors(item, device) for item in given)
    if isinstance(given, dict):
        return {key: as_tensors(item, device) for key, item in given.items()}
    return given
