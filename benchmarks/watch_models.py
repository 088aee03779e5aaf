"""The three models whose training is watched: an MLP, a ResNet-18 for small images, a small transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass
class Training:
    """A model, its optimizer and a batch: ``step()`` trains once."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor
    y: Tensor

    def step(self) -> Tensor:
        out = self.model(self.x)
        loss = functional.cross_entropy(out.flatten(0, -2), self.y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Mlp(nn.Sequential):
    """1.2 million parameters."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Linear(784, 512), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(512, 512), nn.ReLU()]
        super().__init__(*layers, nn.Linear(512, 10))


class BasicBlock(nn.Module):
    """As torchvision writes it; ``inplace=False`` for tools that cannot bear in-place operations."""

    def __init__(self, channels: int, width: int, stride: int, inplace: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=inplace)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.inplace = inplace
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.inplace:
            out += identity
        else:
            out = out + identity
        return self.relu(out)


class ResNet18(nn.Module):
    """11.2 million parameters, for images of 32 × 32."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=inplace)
        blocks, channels = [], 64
        for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            blocks.append(BasicBlock(channels, width, stride, inplace))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


class Attention(nn.Module):
    """Causal self-attention of four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a feed-forward part, each with a norm in front."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """1.1 million parameters, four blocks; its input is integers."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)))


def mlp(_inplace: bool = True) -> Training:
    model = Mlp()
    x, y = torch.randn(128, 784), torch.randint(10, (128,))
    return Training("MLP", model, torch.optim.Adam(model.parameters(), 1e-4), x, y)


def resnet18(inplace: bool = True) -> Training:
    model = ResNet18(inplace)
    x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    return Training("ResNet-18-like", model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), x, y)


def transformer(_inplace: bool = True) -> Training:
    model = Transformer()
    x, y = torch.randint(1000, (16, 64)), torch.randint(1000, (16, 64))
    return Training("small transformer", model, torch.optim.AdamW(model.parameters(), 1e-4), x, y)


MODELS: dict[str, Callable[..., Training]] = {"mlp": mlp, "resnet18": resnet18, "transformer": transformer}


def build(name: str, inplace: bool = True) -> Training:
    """A training that begins with the same weights and batch every time."""
    torch.manual_seed(0)
    return MODELS[name](inplace)
