"""Nets whose costs are known: autograd nodes that spin for a known time, and 19 families of vision nets."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def spin(milliseconds: float) -> None:
    """Do nothing for so long, in processor time: others may use the machine too."""
    end = thread_time_ns() + round(milliseconds * 1e6)
    while thread_time_ns() < end:
        pass


class Spin(torch.autograd.Function):
    """The identity, at a known price."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_ms: float, backward_ms: float) -> Tensor:
        ctx.backward_ms = backward_ms
        spin(forward_ms)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        spin(ctx.backward_ms)
        return gradient, None, None


class Price(nn.Module):
    """A module of one spinning node."""

    def __init__(self, forward_ms: float, backward_ms: float) -> None:
        super().__init__()
        self.forward_ms, self.backward_ms = forward_ms, backward_ms
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return Spin.apply(x * self.scale, self.forward_ms, self.backward_ms)


class Residual(nn.Module):
    """In-place ReLU and in-place addition, around two priced modules."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Price(1.0, 3.0), Price(0.5, 2.0)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.b(self.relu(self.a(x)))
        out = out * 1.0
        out += x
        return Spin.apply(out, 0.5, 1.5)


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Price(0.5, 1.0), Price(0.5, 3.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.left(x), self.right(x)


class SpinningNet(nn.Module):
    """Every way in which backward times are told wrong: see ``TRUTH``."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Price(1.0, 4.0)  # its input needs no gradient
        self.res = Residual()
        self.enc = TwoOutputs()  # one of its outputs skips what follows
        self.shared = Price(0.5, 1.0)  # called twice
        self.deep = nn.Sequential(nn.Sequential(Price(1.0, 5.0)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.res(self.first(x))
        left, right = self.enc(x)
        x = self.shared(self.shared(left))
        x = self.deep(x) + right
        return Spin.apply(x, 0.5, 1.0)


# Address → milliseconds forward and backward, children included.
TRUTH = {
    "first": (1.0, 4.0),
    "res": (2.0, 6.5),
    "res.a": (1.0, 3.0),
    "res.b": (0.5, 2.0),
    "enc": (1.0, 4.0),
    "shared": (1.0, 2.0),
    "deep": (1.0, 5.0),
    "": (6.5, 22.5),
}


def block(channels: int, inplace: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU(inplace=inplace))


class Stem(nn.Module):
    """A stem, one stage of a family's own kind, and a head."""

    def __init__(self, stage: nn.Module, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(inplace=True))
        self.stage = stage
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.stage(self.stem(x)), 1).flatten(1))


class Added(nn.Module):
    """``out += identity`` and an in-place activation after it."""

    def __init__(self, body: nn.Module, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.activation = body, activation or nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        out += x
        return self.activation(out)


class Concatenated(nn.Module):
    """Branches side by side (googlenet, inception, squeezenet), or on top of one another (densenet)."""

    def __init__(self, branches: list[nn.Module], dense: bool = False) -> None:
        super().__init__()
        self.branches, self.dense = nn.ModuleList(branches), dense

    def forward(self, x: Tensor) -> Tensor:
        if not self.dense:
            return torch.cat([branch(x) for branch in self.branches], 1)
        for branch in self.branches:
            x = torch.cat([x, branch(x)], 1)
        return x


class Shuffled(nn.Module):
    """Half of the channels pass by, then all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = block(8)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        out = torch.cat([left, self.branch(right)], 1)
        size = out.shape
        return out.view(size[0], 2, 8, *size[2:]).transpose(1, 2).reshape(size)


class Squeezed(nn.Module):
    """Squeeze and excitation with an in-place hard sigmoid."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)
        self.gate = nn.Hardsigmoid(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)), inplace=True)))


class Permuted(nn.Module):
    """ConvNeXt and Swin: channels last for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(16, 16, 7, 1, 3, groups=16), nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
        self.scale = nn.Parameter(torch.full((16, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return x + self.scale * y


class Tokens(nn.Module):
    """ViT, Swin, MaxViT: attention over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.flatten(2).transpose(1, 2))
        y, _ = self.attention(y, y, y, need_weights=False)
        return x + y.transpose(1, 2).reshape(x.shape)


def inverted(activation: nn.Module, *, squeeze: bool = False) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), activation,
        nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), activation,
        nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16),
    ]  # fmt: skip
    return nn.Sequential(*layers, *([Squeezed()] if squeeze else []))


class Skip(nn.Module):
    """U-Net's and FCN's way up: an earlier map is added after interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(16, 16, 3, 2, 1), nn.ConvTranspose2d(16, 16, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.down(x), size=x.shape[2:]) + self.up(F.relu_(self.down(x)))


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "alexnet": lambda: Stem(nn.Sequential(block(16), nn.MaxPool2d(3, 2), nn.Dropout(0.5))),
    "vgg": lambda: Stem(nn.Sequential(*(block(16) for _ in range(3)), nn.MaxPool2d(2))),
    "resnet": lambda: Stem(Added(nn.Sequential(block(16), nn.Conv2d(16, 16, 3, 1, 1), nn.BatchNorm2d(16)))),
    "resnext": lambda: Stem(Added(nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.BatchNorm2d(16)))),
    "wide_resnet": lambda: Stem(
        Added(nn.Sequential(nn.Conv2d(16, 64, 1), nn.ReLU(inplace=True), nn.Conv2d(64, 16, 1)))
    ),
    "densenet": lambda: Stem(Concatenated([block(16), nn.Conv2d(32, 16, 1)], dense=True), 48),
    "mobilenet_v2": lambda: Stem(Added(inverted(nn.ReLU6(inplace=True)), nn.Identity())),
    "mobilenet_v3": lambda: Stem(Added(inverted(nn.Hardswish(inplace=True), squeeze=True), nn.Identity())),
    "efficientnet": lambda: Stem(Added(inverted(nn.SiLU(inplace=True), squeeze=True), nn.Identity())),
    "mnasnet": lambda: Stem(nn.Sequential(inverted(nn.ReLU(inplace=True)), inverted(nn.ReLU(inplace=True)))),
    "shufflenet": lambda: Stem(Shuffled()),
    "squeezenet": lambda: Stem(
        Concatenated([nn.Conv2d(16, 8, 1), nn.Sequential(nn.Conv2d(16, 8, 3, 1, 1), nn.ReLU(True))])
    ),
    "googlenet": lambda: Stem(Concatenated([block(16), nn.Sequential(nn.MaxPool2d(3, 1, 1), block(16))]), 32),
    "regnet": lambda: Stem(Added(nn.Sequential(block(16), Squeezed(), nn.Conv2d(16, 16, 1)))),
    "convnext": lambda: Stem(nn.Sequential(Permuted(), Permuted(), nn.ReLU(inplace=True))),
    "vit": lambda: Stem(nn.Sequential(Tokens(), Tokens())),
    "swin": lambda: Stem(nn.Sequential(Tokens(), Permuted())),
    "maxvit": lambda: Stem(nn.Sequential(inverted(nn.GELU(), squeeze=True), Tokens())),
    "fcn": lambda: Stem(nn.Sequential(Skip(), block(16))),
}
