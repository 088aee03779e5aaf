"""Equal to the last bit: tensors of every kind, nested structures, modules, and the state of torch."""

from __future__ import annotations

import dataclasses
import gc
import math
import random
import signal
import sys
import threading
import types
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.autograd.function import Function
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_CHECKED_MODULES = (
    "torch",
    "torch.nn.functional",
    "torch.functional",
    "torch._tensor",
    "torch.nn.init",
    "torch.overrides",
)
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called",
    "_load_state_dict_pre_hooks", "_state_dict_pre_hooks",
)  # fmt: skip


def torch_globals() -> dict[str, Any]:
    """Everything of torch and the interpreter that a capture may touch while it runs."""
    found: dict[str, Any] = {
        "Module.__call__": torch.nn.Module.__dict__["__call__"],
        "Module._call_impl": torch.nn.Module.__dict__["_call_impl"],
        "Module.__setattr__": torch.nn.Module.__dict__["__setattr__"],
        "Function.apply": Function.__dict__["apply"],
        "engine": torch.autograd._engine_run_backward,
        "higher order": torch._ops.HigherOrderOperator.__dict__["dispatch"],
        "compile": torch.compile,
        "stance": torch._dynamo.eval_frame._stance.stance if "torch._dynamo" in sys.modules else "default",
        "Thread.start": threading.Thread.__dict__["start"],
        "submit": ThreadPoolExecutor.__dict__["submit"],
        "backward": torch.Tensor.__dict__["backward"],
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "threads": torch.get_num_threads(),
        "garbage collection": gc.isenabled(),
        "interrupt": signal.getsignal(signal.SIGINT),
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
        "excepthook": sys.excepthook,
        "global hooks": [
            len(getattr(torch.nn.modules.module, name))
            for name in dir(torch.nn.modules.module)
            if name.startswith("_global_") and isinstance(getattr(torch.nn.modules.module, name), dict)
        ],
    }
    for module in _CHECKED_MODULES:
        for name in _CHECKS:
            found[f"{module}.{name}"] = getattr(sys.modules[module], name, None)
    return found


def random_state() -> tuple[bytes, Any, bytes]:
    """State of the generators of torch, Python and numpy."""
    return bytes(torch.get_rng_state()), random.getstate(), np.random.get_state()[1].tobytes()


def seed_all(seed: int) -> None:
    """Put every generator at a known place."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def module_state(model: Any) -> dict[str, Any]:
    """What a user can find out about a model, as plain data and tensors."""
    if not isinstance(model, torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for address, module in model.named_modules(remove_duplicate=False):
        values = vars(module)
        found[address] = {
            "type": type(module).__qualname__,
            "training": module.training,
            "keys": list(values),
            "forward": "forward" in values,
            "hooks": {name: len(values.get(name) or ()) for name in _HOOKS},
        }
        for kind in ("_parameters", "_buffers"):
            for name, tensor in (values.get(kind) or {}).items():
                found[f"{address}.{name}"] = tensor
                if isinstance(tensor, torch.Tensor):
                    found[f"{address}.{name} facts"] = (
                        type(tensor).__qualname__, tensor.requires_grad, tensor._version,

                        # Dynamo marks the params of what it compiles; under a capture it compiles nothing.
                        sorted(key for key in vars(tensor) if "_dynamo" not in key),
                        len(tensor._backward_hooks or ()),
                    )  # fmt: skip
                    found[f"{address}.{name} grad"] = tensor.grad if tensor.is_leaf else None
    return found


def has_memory(tensor: torch.Tensor) -> bool:
    """Can the elements of a tensor be read? Those of a detached shell of a wrapper subclass cannot."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
        return True
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return tensor.numel() == 0 or tensor.data_ptr() != 0


def content_differences(kept: torch.Tensor, original: torch.Tensor) -> list[str]:
    """Where kept contents differ from the tensor they were kept of: in shape, dtype or any bit."""
    facts = [
        (None if tensor.is_nested else tuple(tensor.shape), tensor.dtype, tensor.layout) for tensor in (kept, original)
    ]
    if facts[0] != facts[1]:
        return [f"{facts[0]} and {facts[1]}"]
    if kept.is_meta and original.is_meta:
        return []
    with torch.no_grad():
        return [] if _bits(kept) == _bits(original) else [f"the values differ: {kept} and {original}"]


def differences(first: Any, second: Any, path: str = "", *, nodes: bool = True) -> list[str]:
    """Where two structures differ; empty when they are equal to the last bit."""
    if type(first).__qualname__ != type(second).__qualname__:
        return [f"{path or 'it'}: {type(first).__qualname__} and {type(second).__qualname__}"]
    if isinstance(first, torch.Tensor):
        return _tensor_differences(first, second, path, nodes)
    if isinstance(first, torch.nn.Module):
        return differences(module_state(first), module_state(second), path, nodes=nodes)
    if isinstance(first, Mapping):
        if list(first) != list(second):
            return [f"{path}: keys {list(first)} and {list(second)}"]
        return [text for key in first for text in differences(first[key], second[key], f"{path}.{key}", nodes=nodes)]
    if isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return [f"{path}: {len(first)} and {len(second)} items"]
        pairs = enumerate(zip(first, second, strict=True))
        return [text for place, pair in pairs for text in differences(*pair, f"{path}.{place}", nodes=nodes)]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        return differences(vars(first), vars(second), path, nodes=nodes)
    if isinstance(first, types.GeneratorType):
        return differences(list(first), list(second), path, nodes=nodes)
    if isinstance(first, float) and math.isnan(first) and math.isnan(second):
        return []
    if callable(first) and callable(second):
        return []
    if type(first).__eq__ is object.__eq__ and hasattr(first, "__dict__"):
        # A container of the model's own: a cache of keys and values.
        return differences(vars(first), vars(second), path, nodes=nodes)
    return [] if bool(first == second) else [f"{path}: {first!r} and {second!r}"]


def _tensor_differences(first: torch.Tensor, second: torch.Tensor, path: str, nodes: bool) -> list[str]:
    facts = (_facts(first, nodes), _facts(second, nodes))
    if facts[0] != facts[1]:
        return [f"{path or 'it'}: {facts[0]} and {facts[1]}"]
    if first.device.type == "meta" or isinstance(first, torch.nn.parameter.UninitializedTensorMixin):
        return []
    with torch.no_grad():
        bits = (_bits(first), _bits(second))
    return [] if bits[0] == bits[1] else [f"{path or 'it'}: the values differ\n{first}\n{second}"]


def _facts(tensor: torch.Tensor, nodes: bool) -> tuple[Any, ...]:
    lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
    strided = tensor.layout is torch.strided and not tensor.is_nested and not lazy
    return (
        type(tensor).__qualname__,
        None if tensor.is_nested or lazy else tuple(tensor.shape),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tuple(tensor.stride()) if strided else None,
        tensor.storage_offset() if strided else None,
        tensor.requires_grad,
        type(tensor.grad_fn).__name__ if nodes else tensor.grad_fn is None,
        tensor.is_inference(),
        tensor.is_conj(),
    )


def _bits(tensor: torch.Tensor) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.distributed.tensor import DTensor

    if isinstance(tensor, FakeTensor):
        return None
    if isinstance(tensor, DTensor):
        return _bits(tensor.to_local())
    if tensor.is_nested:
        return [_bits(part) for part in tensor.unbind()]
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.layout is torch.sparse_coo:
        return tensor.is_coalesced(), _bits(tensor._indices()), _bits(tensor._values())
    if tensor.layout is torch.sparse_csr:
        return _bits(tensor.crow_indices()), _bits(tensor.col_indices()), _bits(tensor.values())
    if tensor.is_quantized:
        return _bits(tensor.int_repr()), tensor.q_scale(), tensor.q_zero_point()
    # A copy: numpy() would make the storage one that cannot be resized any more, and FSDP resizes its own.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return copy.view(-1).view(torch.uint8).numpy().tobytes() if copy.numel() else b""
