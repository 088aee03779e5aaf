"""The models whose peak memory is predicted, at the sizes people run them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.flops_nets import ViT
from benchmarks.models import ResNet50
from benchmarks.profile_nets import Squeezed

Case = tuple[nn.Module, Tensor]


class DenseLayer(nn.Module):
    """torchvision's layer of DenseNet."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, channels: int, growth: int, num: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + place * growth, growth) for place in range(num))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet121() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 64
    for num in (6, 12, 24, 16):
        layers.append(DenseBlock(channels, 32, num))
        channels += 32 * num
        if num != 16:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, 1000))


class MobileBlock(nn.Module):
    """torchvision's block of MobileNetV3: expansion, depthwise, squeeze and excitation, projection."""

    def __init__(self, channels: int, hidden: int, out: int, stride: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden),
                                    nn.Hardswish(inplace=True))  # fmt: skip
        self.depthwise = nn.Sequential(nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
                                       nn.BatchNorm2d(hidden), nn.Hardswish(inplace=True))  # fmt: skip
        self.squeeze = Squeezed(hidden)
        self.project = nn.Sequential(nn.Conv2d(hidden, out, 1, bias=False), nn.BatchNorm2d(out))
        self.is_residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.squeeze(self.depthwise(self.expand(x))))
        return x + y if self.is_residual else y


class MobileNetV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(inplace=True))
        blocks, channels = [], 16
        for hidden, out, stride in ((16, 16, 2), (72, 24, 2), (88, 24, 1), (96, 40, 2), (240, 40, 1), (240, 40, 1),
                                    (120, 48, 1), (144, 48, 1), (288, 96, 2), (576, 96, 1), (576, 96, 1)):  # fmt: skip
            blocks.append(MobileBlock(channels, hidden, out, stride))
            channels = out
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Linear(96, 1024), nn.Hardswish(inplace=True), nn.Linear(1024, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 256, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Logits(nn.Module):
    """A language model that returns its logits, and keeps no cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def _transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers  # only these models need it, and it takes seconds

    transformers.logging.set_verbosity_error()
    return transformers


def gpt2(attention: str) -> nn.Module:
    made = _transformers()
    config = made.GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=8000, attn_implementation=attention)
    return Logits(made.GPT2LMHeadModel(config))


def llama() -> nn.Module:
    made = _transformers()
    config = made.LlamaConfig(
        hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=3,
        vocab_size=8000,
    )  # fmt: skip
    return Logits(made.LlamaForCausalLM(config))


def mlp() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())))


def _ids() -> Tensor:
    return torch.randint(0, 8000, (2, 256))


CASES: dict[str, Callable[[], Case]] = {
    "mlp": lambda: (mlp(), torch.rand(64, 512)),
    "resnet50": lambda: (ResNet50(), torch.rand(2, 3, 224, 224)),
    "densenet121": lambda: (densenet121(), torch.rand(2, 3, 224, 224)),
    "mobilenet_v3_small": lambda: (MobileNetV3(), torch.rand(4, 3, 224, 224)),
    "ViT-S/16": lambda: (ViT(384, 12, 6, 224, 16), torch.rand(2, 3, 224, 224)),
    "ViT-Ti/16, 64 px": lambda: (ViT(192, 12, 3, 64, 16), torch.rand(1, 3, 64, 64)),
    "GPT-2, eager": lambda: (gpt2("eager"), _ids()),
    "GPT-2, sdpa": lambda: (gpt2("sdpa"), _ids()),
    "Llama-small": lambda: (llama(), _ids()),
    "LSTM": lambda: (Recurrent(), torch.rand(64, 8, 128)),
}
