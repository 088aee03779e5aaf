"""Each binding that stands in for an operator calls that operator, with the arguments it was given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torcheer.capture.torch.direct import DIRECT
from torcheer.capture.torch.private import TorchDispatchMode

x, y, square = torch.rand(4, 6), torch.rand(4, 6), torch.rand(6, 6)
image, weight = torch.rand(2, 3, 8, 8), torch.rand(5, 3, 3, 3)
three = torch.rand(3)

ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "unsqueeze": [(x, 1)],
    "mm": [(x, square)],
    "bmm": [(torch.rand(2, 3, 4), torch.rand(2, 4, 5))],
    "addmm": [(torch.rand(6), x, square)],
    "_softmax": [(x, -1, False)],
    "_log_softmax": [(x, -1, False)],
    "native_layer_norm": [(x, [6], None, None, 1e-5), (x, [6], torch.rand(6), torch.rand(6), 1e-5)],
    "native_batch_norm": [
        (image, three, three, torch.rand(3), torch.rand(3), False, 0.1, 1e-5),
        (image, None, None, None, None, True, 0.1, 1e-5),
    ],
    "native_group_norm": [(image, None, None, 2, 3, 64, 1, 1e-5)],
    "convolution": [
        (image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        (image, weight, torch.rand(5), [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
    ],
    "embedding": [(x, torch.tensor([1, 2])), (x, torch.tensor([1, 2]), 0)],
    "cat": [([x, y],), ([x, y], 1)],
    "_adaptive_avg_pool2d": [(image, [2, 2])],
    "native_dropout": [(x, 0.5, True)],
    "_softmax_backward_data": [(x, y, -1, torch.float32)],
    "permute": [(image, [0, 2, 3, 1])],
    "max_pool2d_with_indices": [(image, [2, 2]), (image, [2, 2], [1, 1], [1, 1])],
    "hardtanh": [(x,), (x, 0, 6)],
    "hardtanh_": [(x.clone(),), (x.clone(), 0.0, 6.0)],
    "leaky_relu": [(x,), (x, 0.1)],
    "view": [(x, [24]), (x, [-1, 2])],
    "expand": [(torch.rand(1, 6), [4, 6]), (three, [2, 3])],
    "transpose": [(x, 0, 1)],
    "select": [(x, 0, -1)],
    "pow": [(x, 2), (x, 0.5)],
    "mean": [(x, [0]), (image, [-1, -2], True)],
    "sum": [(x, [0]), (x, [0], True), (x, None)],
    **{name: [(x.clone(), y), (x.clone(), 2), (x.clone(), 2.5)] for name in "add sub mul div add_ mul_".split()},
}


class Seen(TorchDispatchMode):
    """Notes the operators that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls.append((str(func), args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("operator", DIRECT)
def test_a_binding_calls_its_operator(operator: str) -> None:
    with torch.no_grad():
        for arguments in ARGUMENTS.get(operator.split(".")[1], [(x.clone(),)]):
            with Seen() as seen:
                DIRECT[operator](*arguments)
            name, args, kwargs = seen.calls[0]
            assert (name, kwargs, len(seen.calls)) == (operator, {}, 1)
            for given, arrived in zip(arguments, args, strict=False):
                assert arrived is given if isinstance(given, Tensor) else arrived == given
                assert type(arrived) is type(given)


@pytest.mark.parametrize("operator", DIRECT)
def test_its_operator_takes_the_same(operator: str) -> None:
    overload = torch.ops.aten
    for part in operator.split(".")[1:]:
        overload = getattr(overload, part)
    for arguments in ARGUMENTS.get(operator.split(".")[1], [(x.clone(),)]):
        torch.manual_seed(0)
        direct = DIRECT[operator](*arguments)
        torch.manual_seed(0)
        if not operator.split(".")[1].endswith("_"):
            torch.testing.assert_close(overload(*arguments), direct, rtol=0, atol=0, equal_nan=True)
