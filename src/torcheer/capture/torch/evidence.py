"""What a validation must know of a run beyond its record: real functions, and copies of what was read.

Collected by a function level that copies every argument before the call and every written argument after it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from torcheer.capture.torch.kinds import METADATA_CALLS
from torcheer.capture.torch.modes import FunctionLevel
from torcheer.capture.torch.private import no_dispatch_mode
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.state import copy_of, is_ordinary, random_state
from torcheer.capture.torch.tape import Tape, named_tensors

Tensor = torch.Tensor


@dataclass
class Witnessed:
    """One call, as it can be made again."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: list[tuple[str, Tensor]]
    grad_enabled: bool
    reads: dict[str, Tensor] = field(default_factory=dict)  # argument path → copy of what it held
    result: Any = None


class WitnessLevel(FunctionLevel):
    """The function level, with copies."""

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__(tape, keeper)
        self.calls: dict[int, Witnessed] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA_CALLS:
            return super().__torch_function__(func, types, args, kwargs)
        index = len(self.tape.events)
        with no_dispatch_mode():
            call = witness(func, args, kwargs or {})
            versions = _versions(args, kwargs)
        out = super().__torch_function__(func, types, args, kwargs)
        with no_dispatch_mode():
            call.result = copied(out)
            if index < len(self.tape.events):
                self.calls[index] = call
            for tensor, version in versions:
                # What an op wrote into and does not return is evidence too: batch norm's running statistics.
                if tensor._version != version and self.keeper is not None:
                    self.keeper.keep(index, self.tape.ref(tensor), tensor)
        return out


def witness(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Witnessed:
    """Copy a call's arguments."""
    reads = {
        path: _leaf_like(tensor)
        for path, tensor in [*named_tensors(args), *named_tensors(kwargs)]
        if is_ordinary(tensor)
    }
    return Witnessed(func, copied(args), copied(kwargs), random_state(), torch.is_grad_enabled(), reads)


def _leaf_like(tensor: Tensor) -> Tensor:
    """A copy that requires a gradient if the tensor does: kernels are chosen by that."""
    copy = copy_of(tensor)
    if tensor.requires_grad:
        with suppress(RuntimeError):  # not allowed within a function transform (vmap)
            copy.requires_grad_()
    return copy


def copied(structure: Any, replaced: dict[str, Tensor] | None = None, path: str = "") -> Any:
    """A structure with its tensors copied, or taken from ``replaced`` by path."""
    if isinstance(structure, Tensor):
        if replaced is not None and path in replaced:
            held = replaced[path]
            return copy_of(held, differentiable=held.requires_grad and torch.is_grad_enabled())
        return copy_of(structure) if is_ordinary(structure) else structure
    prefix = f"{path}." if path else ""
    if isinstance(structure, tuple) and not hasattr(structure, "_fields"):
        return tuple(copied(item, replaced, f"{prefix}{place}") for place, item in enumerate(structure))
    if isinstance(structure, list):
        return [copied(item, replaced, f"{prefix}{place}") for place, item in enumerate(structure)]
    if isinstance(structure, dict):
        return {key: copied(item, replaced, f"{prefix}{key}") for key, item in structure.items()}
    return structure


def _versions(args: Any, kwargs: Any) -> list[tuple[Tensor, int]]:
    tensors = [tensor for _, tensor in [*named_tensors(args), *named_tensors(kwargs or {})]]
    return [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]
