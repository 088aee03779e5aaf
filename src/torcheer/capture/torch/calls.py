"""The input of a comparison as a call of a PyTorch model: numpy arrays become tensors on the model's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torcheer.capture.torch.inputs import Inputs, arrange
from torcheer.capture.torch.tape import named_tensors
from torcheer.diff.arrays import for_model
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
    _check_has_numbers(model, given)
    return arrange(model, (as_tensors(given, list(model.parameters())),), {})


def _check_has_numbers(model: torch.nn.Module, given: Any) -> None:
    """Refuse what is on the meta device, which has shapes and no numbers, before anything runs."""
    own = [address for address, tensor in [*model.named_parameters(), *model.named_buffers()] if tensor.is_meta]
    name = type(model).__name__
    if own:
        shown = ", ".join(own[:3]) + (", …" if own[3:] else "")
        raise ComparisonError(
            f"{name} is on the meta device ({shown}): its tensors have shapes and no numbers. "
            "Give it memory and weights first: model.to_empty(device='cpu'), then model.load_state_dict(…)."
        )
    if any(tensor.is_meta for _, tensor in named_tensors(given)):
        raise ComparisonError(
            f"The input of {name} is on the meta device: it has a shape and no numbers. Pass a tensor that holds some."
        )


def as_tensors(given: Any, params: Sequence[Tensor]) -> Any:
    """The same structure with arrays as tensors, such as a model with these parameters takes, on its device."""
    device = params[0].device if params else torch.device("cpu")
    if isinstance(given, Tensor):
        return given.to(device)
    if hasattr(given, "__array_interface__") or hasattr(given, "__array__"):  # numpy's, or another framework's
        return torch.tensor(for_model(given, [param.dtype for param in params]), device=device)
    if isinstance(given, (tuple, list)) and not hasattr(given, "_fields"):
        return type(given)(as_tensors(item, params) for item in given)
    if isinstance(given, dict):
        return {key: as_tensors(item, params) for key, item in given.items()}
    return given
