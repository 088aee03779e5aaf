"""Operators that PyTorch's Python bindings call just as well as ``OpOverload`` does, in half the time.

An ``OpOverload`` matches its arguments against a schema and boxes them, which for a small operator takes longer than
its kernel. A binding parses them and calls the same operator through the same dispatcher. An operator is listed only
where its binding, given the schema's arguments by position, can choose no other overload;
``tests/torch/test_direct.py`` sees each of them arrive unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torcheer.capture.torch.private import C_NAMESPACES

_TORCH = (
    "unsqueeze t detach mm bmm addmm relu relu_ sigmoid tanh exp neg sqrt rsqrt cos sin abs erf"
    " _softmax _log_softmax native_layer_norm native_batch_norm native_group_norm convolution embedding cat"
    " _adaptive_avg_pool2d native_dropout _softmax_backward_data permute"
).split()
_NN = "gelu silu silu_ max_pool2d_with_indices hardtanh hardtanh_ hardswish hardswish_ leaky_relu".split()
_OVERLOADS: dict[str, Callable[..., Any]] = {
    "aten.view.default": torch.Tensor.view,
    "aten.expand.default": torch.Tensor.expand,
    "aten.transpose.int": torch.transpose,
    "aten.select.int": torch.select,
    "aten.add.Tensor": torch.add,
    "aten.add_.Tensor": torch.Tensor.add_,
    "aten.sub.Tensor": torch.sub,
    "aten.mul.Tensor": torch.mul,
    "aten.mul_.Tensor": torch.Tensor.mul_,
    "aten.div.Tensor": torch.div,
    "aten.pow.Tensor_Scalar": torch.pow,
    "aten.mean.dim": torch.mean,
    "aten.sum.dim_IntList": torch.sum,
}

# Operator → the binding. It raises TypeError for arguments it does not take, such as a number for the first tensor.
DIRECT: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}.default": getattr(torch, name) for name in _TORCH},
    **{f"aten.{name}.default": getattr(C_NAMESPACES["torch.nn.functional"], name) for name in _NN},
    **_OVERLOADS,
}
