"""The models that are measured. All are built from code with random weights; nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Case:
    """A model and its input."""

    name: str
    model: nn.Module
    x: Tensor


class Bottleneck(nn.Module):
    """The block of torchvision's ResNet-50."""

    def __init__(self, channels: int, width: int, stride: int, inplace: bool) -> None:
        super().__init__()
        out = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=inplace)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet50(nn.Module):
    """torchvision's ResNet-50, in-place ReLU and in-place addition included."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=inplace)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], 64
        for width, num_blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            blocks = []
            for place in range(num_blocks):
                blocks.append(Bottleneck(channels, width, stride if place == 0 else 1, inplace))
                channels = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ScalarLoss(nn.Module):
    """A model that returns one number, to run backward from."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        out = self.model(x)
        if not isinstance(out, Tensor):
            out = out.last_hidden_state
        return out.square().mean()


def gpt2() -> Case:
    """GPT-2, 124 million parameters, 128 tokens."""
    transformers = _transformers()
    model = transformers.GPT2Model(transformers.GPT2Config()).eval()
    return Case("GPT-2", model, torch.randint(0, 50_000, (1, 128)))


def bert() -> Case:
    """BERT-base, 128 tokens."""
    transformers = _transformers()
    model = transformers.BertModel(transformers.BertConfig()).eval()
    return Case("BERT-base", model, torch.randint(0, 30_000, (1, 128)))


def resnet50() -> Case:
    """ResNet-50 as torchvision writes it, one image."""
    return Case("ResNet-50", ResNet50().eval(), torch.randn(1, 3, 224, 224))


def resnet50_not_in_place() -> Case:
    """The same with a ReLU that leaves its input alone, as Hugging Face and timm write it."""
    return Case("ResNet-50, no in-place ReLU", ResNet50(inplace=False).eval(), torch.randn(1, 3, 224, 224))


def mlp() -> Case:
    """100 operations that take microseconds."""
    layers = [layer for _ in range(50) for layer in (nn.Linear(32, 32), nn.ReLU())]
    return Case("MLP", nn.Sequential(*layers).eval(), torch.randn(4, 32))


def build(maker: Callable[[], Case]) -> Case:
    """Build a case; the same weights and input every time."""
    torch.manual_seed(0)
    return maker()


def _transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Only these models need it, and it takes seconds to import.
    import transformers

    return transformers
