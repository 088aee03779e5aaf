"""What a function is called: the full name a programmer would write, and the short name of its layer."""

from __future__ import annotations

from typing import Any

from torcheer.capture.torch.private import C_NAMESPACES, HigherOrderOperator, OpOverload

_PUBLIC_NAMES = {space.__name__: public for public, space in C_NAMESPACES.items()}


# Builtins that public functions hand their work to, by the name people know.
_SPOKEN = {
    "cross_entropy_loss": "cross_entropy",
    "split_with_sizes": "split",
    "_unique2": "unique",
    **{
        f"upsample_{kind}": "interpolate"
        for kind in "nearest1d nearest2d nearest3d linear1d bilinear2d bicubic2d trilinear3d".split()
    },
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
        for public, namespace in C_NAMESPACES.items():
            if owner is namespace or getattr(namespace, name, None) is func:
                return f"{public}.{_public_name(namespace.__name__, name)}"
        return f"torch.{name}"
    return f"{_PUBLIC_NAMES.get(module, module)}.{_public_name(module, name)}"


def _public_name(namespace: str, name: str) -> str:
    """``linalg_vector_norm`` in its namespace is ``torch.linalg.vector_norm`` to its users."""
    prefix = namespace.rsplit("_", 1)[-1] + "_"
    return _SPOKEN.get(name, name).removeprefix(prefix)


def short_name(function: str) -> str:
    """``torch.max_pool2d`` → ``maxpool2d``; ``aten.relu.default`` → ``relu``."""
    parts = function.split(".")
    # namespace.name.overload is an operator; anything else is a dotted path.
    is_operator = len(parts) == 3 and parts[0] != "torch"
    name = parts[1] if is_operator else parts[-1]
    return _SPOKEN.get(name, name).replace("_", "").lower() or "op"
