"""What a function is called: the full name a programmer would write, and the short name of its layer."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.private import HigherOrderOperator, OpOverload

_NAMESPACES = (
    (torch._C._nn, "torch.nn.functional"),
    (torch._C._fft, "torch.fft"),
    (torch._C._linalg, "torch.linalg"),
    (torch._C._special, "torch.special"),
)
_C_MODULES = {
    "torch._C._nn": "torch.nn.functional",
    "torch._C._fft": "torch.fft",
    "torch._C._linalg": "torch.linalg",
    "torch._C._special": "torch.special",
    "torch._C._sparse": "torch.sparse",
    "torch._C._nested": "torch.nested",
}


def function_name(func: Any) -> str:
    """``torch.conv2d``, ``torch.Tensor.add_``, ``aten.relu.default``, ``autograd.MyFunction``."""
    if isinstance(func, type):
        return f"autograd.{func.__qualname__.rsplit('.', 1)[-1]}"
    if isinstance(func, (OpOverload, HigherOrderOperator)) or type(func).__name__ == "OpOverloadPacket":
        return str(func)
    name = getattr(func, "__name__", None) or type(func).__name__
    owner = getattr(func, "__self__", None)
    if name in {"__get__", "__set__"} and owner is not None:
        return f"torch.Tensor.{getattr(owner, '__name__', name)}"
    if getattr(func, "__objclass__", None) is not None:
        return f"torch.Tensor.{name}"
    qualified = getattr(func, "__qualname__", name)
    if qualified.startswith(("Tensor.", "TensorBase.", "_TensorBase.")):
        return f"torch.Tensor.{name}"
    module = getattr(func, "__module__", None)
    if module is None:
        # Builtins know their namespace object, not its name.
        for namespace, public in _NAMESPACES:
            if owner is namespace or getattr(namespace, name, None) is func:
                return f"{public}.{name}"
        return f"torch.{name}"
    return f"{_C_MODULES.get(module, module)}.{name}"


def short_name(function: str) -> str:
    """``torch.max_pool2d`` → ``maxpool2d``; ``aten.relu.default`` → ``relu``."""
    parts = function.split(".")
    if parts[0] == "torch":
        name = parts[-1]
    else:
        # namespace.name.overload, namespace.name, or a dotted Python path
        name = parts[1] if len(parts) == 3 else parts[-1]
    return name.replace("_", "").lower() or "op"
