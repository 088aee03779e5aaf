"""Models in which NaN or Inf is born, each in its own way, and where that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Case:
    name: str
    make: Callable[[], tuple[nn.Module, Tensor]]
    phase: str  # of the first alarm
    function: str  # the ATen op it is born in
    module: str  # address of the module around it
    kind: str = "nan"


class Net(nn.Module):
    """A linear layer, what a case does with it in a module of its own, and another linear layer."""

    def __init__(self, inside: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.sick, self.last = nn.Linear(8, 8), Sick(inside), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.sick(self.first(x))).square().mean()


class Sick(nn.Module):
    def __init__(self, inside: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * float("nan")


def of(inside: Callable[[Tensor], Tensor]) -> Callable[[], tuple[nn.Module, Tensor]]:
    return lambda: (Net(inside), torch.randn(4, 8))


def overflowing_half() -> tuple[nn.Module, Tensor]:
    return Net(lambda x: ((x.half() * 0 + 300) * 300).float()), torch.randn(4, 8)


def masked_row(x: Tensor) -> Tensor:
    return x + x.masked_fill(torch.ones_like(x, dtype=torch.bool), float("-inf")).softmax(-1)


CASES = (
    Case("0/0", of(lambda x: x + x.mul(0) / x.mul(0)), "forward", "aten.div.Tensor", "sick"),
    Case("where and log(0)", of(lambda x: torch.where(x > 9, x.relu().mul(0).log(), x)), "forward", "aten.log.default",
         "sick", "inf"),
    Case("exp overflows", of(lambda x: (x.abs() + 200).exp()), "forward", "aten.exp.default", "sick", "inf"),
    Case("sqrt(0) in the gradient", of(lambda x: x + x.mul(0).sqrt() * 0), "backward", "aten.div.Tensor", "sick"),
    Case("inf - inf", of(lambda x: x + (x.abs() + 200).exp() - (x.abs() + 200).exp()), "forward", "aten.exp.default",
         "sick", "inf"),
    Case("log of a negative", of(lambda x: x + (-x.abs() - 1).log()), "forward", "aten.log.default", "sick"),
    Case("a row that is all masked", of(masked_row), "forward", "aten._softmax.default", "sick"),
    Case("half precision overflows", overflowing_half, "forward", "aten.mul.Tensor", "sick", "inf"),
    Case("a backward of the user's", of(BadBackward.apply), "backward", "aten.mul.Tensor", "sick"),
    Case("in place", of(lambda x: (x * 1).sub_(1).abs_().neg_().sqrt_()), "forward", "aten.sqrt_.default", "sick"),
    Case("division in place", of(lambda x: x.mul(0).div_(x.mul(0))), "forward", "aten.div_.Tensor", "sick"),
)  # fmt: skip


def with_bad_input() -> tuple[nn.Module, Tensor]:
    x = torch.randn(4, 8)
    x[1, 2] = float("nan")
    return Net(lambda y: y), x


def with_bad_param() -> tuple[nn.Module, Tensor]:
    net = Net(lambda y: y)
    with torch.no_grad():
        net.last.weight[0, 0] = float("nan")
    return net, torch.randn(4, 8)
