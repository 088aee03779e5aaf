"""What a run may change in a model and around it, so that the same run can be done again.

Tensors are put back in place and only where they differ, so that a run that changed nothing leaves no trace.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.structure import snapshot
from torcheer.capture.torch.tape import named_tensors

Tensor = torch.Tensor
_PLAIN = (bool, int, float, str, complex, type(None))


class RunState:
    """Model, inputs and random numbers as they are before a run."""

    def __init__(self, model: Any, inputs: Inputs) -> None:
        structure = snapshot(model)
        self.random = random_state()
        held = [tensor for _, _, _, tensor in structure.tensors if isinstance(tensor, Tensor)] + [
            tensor for _, tensor in inputs.tensors()
        ]
        self.tensors = [(tensor, copy_of(tensor)) for tensor in held if is_ordinary(tensor)]
        self.gradients = [(tensor, tensor.grad) for tensor in held if tensor.is_leaf]
        self.attributes = [(module, _plain_attributes(module)) for _, _, module in structure.modules]

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for tensor, before in self.tensors:
                if not same(tensor.detach(), before):
                    tensor.detach().copy_(before)
        for tensor, gradient in self.gradients:
            if tensor.grad is not gradient:
                tensor.grad = gradient
        for module, attributes in self.attributes:
            vars(module).update(copy.copy(attributes))
        set_random_state(self.random)

    def changed(self) -> list[Tensor]:
        """Copies of all tensors as they are now, for comparing the effects of two runs."""
        return [copy_of(tensor) for tensor, _ in self.tensors]


def random_state() -> list[tuple[str, Tensor]]:
    """States of the random number generators of every device in use."""
    states = [("cpu", torch.get_rng_state())]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        device = getattr(torch, accelerator.type)
        states.append((accelerator.type, device.get_rng_state()))
    return states


def set_random_state(states: list[tuple[str, Tensor]]) -> None:
    """Set what ``random_state`` returned."""
    for device, state in states:
        (torch if device == "cpu" else getattr(torch, device)).set_rng_state(state)


def is_ordinary(tensor: Tensor) -> bool:
    """Can it be copied and compared element by element?"""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def copy_of(tensor: Tensor) -> Tensor:
    """A copy with the same strides, without history."""
    with torch.no_grad():
        plain = tensor.detach()
        return plain.clone(memory_format=torch.preserve_format)


def same(first: Tensor, second: Tensor) -> bool:
    """Bit for bit the same shape, dtype and values; NaN equals NaN."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.is_floating_point() or first.is_complex():
        return bool(((first == second) | (first.isnan() & second.isnan())).all())
    return torch.equal(first, second)


def same_structure(first: Any, second: Any) -> bool:
    """Do two outputs hold the same tensors at the same places?"""
    left, right = named_tensors(first), named_tensors(second)
    if [path for path, _ in left] != [path for path, _ in right]:
        return False
    for (_, one), (_, other) in zip(left, right, strict=True):
        if is_ordinary(one) != is_ordinary(other):
            return False
        if is_ordinary(one) and not same(one.detach(), other.detach()):
            return False
    return True


def _plain_attributes(module: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(module).items() if isinstance(value, _PLAIN) and key != "training"}
