"""What a run may change in a model and around it, so that the same run can be done again.

Tensors are put back in place and only where they differ, so that a run that changed nothing leaves no trace.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import OrderedDict
from typing import Any

import torch

from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.private import is_functional_wrapper
from torcheer.capture.torch.structure import snapshot
from torcheer.capture.torch.tape import named_tensors

Tensor = torch.Tensor
_PLAIN_CONTAINERS = (dict, list, set, OrderedDict)
_LINE_BYTES = 64  # memory is given out at multiples of this; kernels choose their way by where a tensor starts


class RunState:
    """Model, inputs and random numbers as they are before a run."""

    def __init__(self, model: Any, inputs: Inputs, *, with_params: bool = True) -> None:
        """``with_params`` off: for runs that change no params, which may be too large to copy."""
        structure = snapshot(model)
        self.random = random_state()
        self.host_random = host_random_state()
        held = [tensor for _, _, _, tensor in structure.tensors if isinstance(tensor, Tensor)]
        held += [tensor for _, tensor in inputs.tensors()]
        for _, _, module in structure.modules:
            held += [value for value in vars(module).values() if isinstance(value, Tensor)]
        copied = held if with_params else [tensor for tensor in held if not isinstance(tensor, torch.nn.Parameter)]
        self.tensors = [(tensor, copy_of(tensor)) for tensor in copied if is_ordinary(tensor)]
        self.gradients = [(tensor, tensor.grad) for tensor in held if tensor.is_leaf]
        self.attributes = [(module, _Attributes(module)) for _, _, module in structure.modules]

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
            attributes.restore(module)
        set_random_state(self.random)
        set_host_random_state(self.host_random)

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


def host_random_state() -> tuple[Any, Any]:
    """States of the generators of Python and, where it is in use, numpy: models draw from them too."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def set_host_random_state(states: tuple[Any, Any]) -> None:
    """Set what ``host_random_state`` returned."""
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])


def same_host_random(first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    """Are the generators of Python and numpy in the same state?"""
    return first[0] == second[0] and str(_as_plain(first[1])) == str(_as_plain(second[1]))


def _as_plain(state: Any) -> Any:
    """A state of numpy's generator with its array as a list."""
    return None if state is None else [part.tolist() if hasattr(part, "tolist") else part for part in state]


def is_ordinary(tensor: Tensor) -> bool:
    """Can it be copied and compared element by element?"""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not is_functional_wrapper(tensor)
    )


def copy_of(tensor: Tensor, *, differentiable: bool = False) -> Tensor:
    """A copy that kernels treat as they treat the original: same strides, same place within a line of memory.

    It has no history. A differentiable one has autograd follow it, and may be written in place all the same.
    """
    shape, stride = tensor.shape, tensor.stride()
    if _overlaps(shape, stride):
        return _tracked(tensor.detach().clone(), differentiable)
    lead = tensor.storage_offset() % max(1, _LINE_BYTES // tensor.element_size())
    span = 0 if not tensor.numel() else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    memory = _tracked(torch.empty(lead + span, dtype=tensor.dtype, device=tensor.device), differentiable)
    copy = memory.as_strided(shape, stride, lead)
    with torch.no_grad():
        each_once = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
        copy[each_once].copy_(tensor.detach()[each_once])
    return copy


def _tracked(tensor: Tensor, differentiable: bool) -> Tensor:
    # A leaf that requires a gradient may not be written in place; what is computed from one may.
    return tensor.requires_grad_().clone() if differentiable else tensor


def _overlaps(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Do elements share memory in another way than by being expanded?"""
    reach = 0
    for step, size in sorted((s, n) for n, s in zip(shape, stride, strict=True) if n > 1 and s > 0):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


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


class _Attributes:
    """What a module has as attributes: which, and what lies in those that are plain containers."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.values = dict(vars(module))
        # Hooks are among them: a model that installs hooks when it first runs also notes that it has.
        self.contents = {
            name: copy.copy(value) for name, value in self.values.items() if type(value) in _PLAIN_CONTAINERS
        }
        # A run that gives a lazy module its shapes cannot be undone.
        self.is_lazy = isinstance(module, torch.nn.modules.lazy.LazyModuleMixin)

    def restore(self, module: torch.nn.Module) -> None:
        if self.is_lazy:
            return
        attributes = vars(module)
        for name in attributes.keys() - self.values.keys():
            del attributes[name]
        attributes.update(self.values)
        for name, before in self.contents.items():
            held = attributes[name]
            held.clear()
            if isinstance(held, list):
                held.extend(before)
            else:
                held.update(before)
