"""PyTorch's own checks for tensors that override functions, answered as if no function mode were active."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torcheer.capture.torch.private import disabled_torch_function

# With a function mode active, ``has_torch_function`` answers True for every call. Python composites
# (multi_head_attention_forward, einsum, …) would then be seen only as a whole, and nn.TransformerEncoderLayer
# would leave its fused path and change its output. These modules look the checks up as globals.
_CHECKING_MODULES = (
    "torch.nn.functional",
    "torch.functional",
    "torch._tensor",
    "torch.nn.init",
    "torch.overrides",
    "torch.autograd",
    "torch._lowrank",
)
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_PLAIN_TYPES = {torch.Tensor, torch.nn.Parameter, type(None), int, float, bool, str, tuple, list, torch.Size}


def _overrides(value: object) -> bool:
    kind = type(value)
    if kind in _PLAIN_TYPES:
        return False
    hook = getattr(kind, "__torch_function__", None)
    return hook is not None and hook is not disabled_torch_function


def _gated(name: str, original: Callable[..., bool], is_recording: Callable[[], bool]) -> Callable[..., bool]:
    """A check that ignores modes on threads that are recording. Written for few calls: it is asked before every op."""

    def of_one(value: object) -> bool:
        if is_recording():
            return type(value) not in _PLAIN_TYPES and _overrides(value)
        return original(value)

    def of_sequence(values: Any) -> bool:
        if is_recording():
            # Nearly always all of them are plain, and found so without a line of Python for each.
            return not _PLAIN_TYPES.issuperset(map(type, values)) and any(map(_overrides, values))
        return original(values)

    def of_arguments(*values: Any) -> bool:
        if is_recording():
            return not _PLAIN_TYPES.issuperset(map(type, values)) and any(map(_overrides, values))
        return original(*values)

    return dict(zip(_CHECKS, (of_sequence, of_one, of_arguments), strict=True))[name]


@contextmanager
def plain_override_checks(is_recording: Callable[[], bool]) -> Iterator[None]:
    """Make the override checks ignore modes and honour real subclasses, on threads that are recording."""
    gates: dict[Any, Callable[..., bool]] = {}
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for module_name in _CHECKING_MODULES:
        module = sys.modules.get(module_name)
        names = {} if module is None else vars(module)
        for name in _CHECKS:
            original = names.get(name)
            if original is not None:
                replaced.append((names, name, original))
                gate = gates.get(original)
                if gate is None:
                    gate = gates[original] = _gated(name, original, is_recording)
                names[name] = gate
    try:
        yield
    finally:
        for names, name, original in replaced:
            names[name] = original
