"""The models whose FLOPs are known by hand: 22 that multiply something, and an embedding, which multiplies nothing.

``macs`` is worked out from the architecture, on paper, without looking at any operator. ``first_macs`` is the part of
it whose gradient with respect to the input nobody needs: that of the first layer, where the input is data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models import ResNet50


@dataclass
class Net:
    name: str
    model: nn.Module
    args: tuple[Any, ...]
    macs: int
    first_macs: int = 0
    kwargs: dict[str, Any] | None = None
    has_backward: bool = True


def of_layers(model: nn.Module, *args: Any) -> tuple[int, int]:
    """Multiply-adds of a net of convolutions and linear layers, from the shapes that hooks see; and of the first."""
    found: list[int] = []

    def look(module: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
        per_output = module.weight.numel() // module.weight.shape[0]
        if isinstance(module, nn.ConvTranspose2d):
            found.append(given[0].numel() * per_output)
        else:
            found.append(out.numel() * per_output)

    kinds = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
    handles = [module.register_forward_hook(look) for module in model.modules() if isinstance(module, kinds)]
    with torch.no_grad():
        model(*args)
    for handle in handles:
        handle.remove()
    return sum(found), found[0]


class InvertedResidual(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = channels * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)
        self.is_residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.is_residual else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True))
        ]
        channels = 32
        for expand, out, repeats, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
        ):  # fmt: skip
            for turn in range(repeats):
                layers.append(InvertedResidual(channels, out, stride if turn == 0 else 1, expand))
                channels = out
        layers.append(nn.Sequential(nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class ViTBlock(nn.Module):
    """torchvision's encoder block: MultiheadAttention without weights, and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    """As torchvision writes it."""

    def __init__(self, width: int = 384, depth: int = 4, heads: int = 6, image: int = 64, patch: int = 16) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(ViTBlock(width, heads) for _ in range(depth)))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.pos_embedding
        return self.head(self.ln(self.layers(x))[:, 0])


class Attention(nn.Module):
    """A MultiheadAttention of its own."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.need_weights = need_weights
        self.mha = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.mha(x, x, x, need_weights=self.need_weights)[0]


class Scaled(nn.Module):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16, 32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bhi,hio->bho", x, self.weight)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.randn(32, 64)), nn.Parameter(torch.randn(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) @ self.other


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = self.linear(x).relu()
        return x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def transformer_macs(tokens: int, width: int, depth: int, inner: int) -> int:
    """Of a stack of blocks: four projections, the two products of attention, and the perceptron."""
    return depth * (tokens * (4 * width * width + 2 * width * inner) + 2 * tokens * tokens * width)


def _transformers() -> Any:
    import transformers

    return transformers


def gpt2(attention: str, tokens: int = 32) -> Net:
    made = _transformers()
    config = made.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=512, attn_implementation=attention)
    macs = transformer_macs(tokens, 128, 2, 512) + tokens * 128 * 512
    return Net(f"GPT-2 {attention}", made.GPT2LMHeadModel(config).eval(), (torch.randint(0, 512, (1, tokens)),), macs)


def bert(attention: str, tokens: int = 32) -> Net:
    made = _transformers()
    config = made.BertConfig(
        num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=512, vocab_size=512,
        attn_implementation=attention,
    )  # fmt: skip
    macs = transformer_macs(tokens, 128, 2, 512) + 128 * 128
    return Net(f"BERT {attention}", made.BertModel(config).eval(), (torch.randint(0, 512, (1, tokens)),), macs)


def vit_hf() -> Net:
    made = _transformers()
    config = made.ViTConfig(
        num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=512, image_size=32, patch_size=8,
        attn_implementation="sdpa",
    )  # fmt: skip
    first = 16 * 3 * 64 * 128
    macs = transformer_macs(17, 128, 2, 512) + first + 128 * 128
    return Net("ViT (Hugging Face, sdpa)", made.ViTModel(config).eval(), (torch.randn(1, 3, 32, 32),), macs, first)


def vit() -> Net:
    first = 16 * 3 * 256 * 384
    macs = transformer_macs(17, 384, 4, 1536) + first + 384 * 1000
    return Net("ViT (torchvision)", ViT().eval(), (torch.randn(1, 3, 64, 64),), macs, first)


def attention(need_weights: bool, training: bool) -> Net:
    name = f"MHA {'train' if training else 'eval'}, {'with' if need_weights else 'without'} weights"
    tokens = 2 * 16
    macs = tokens * 4 * 64 * 64 + 2 * 2 * 16 * 16 * 64
    model = Attention(need_weights).train(training)
    return Net(name, model, (torch.randn(2, 16, 64),), macs, tokens * 3 * 64 * 64)


def encoder_layer() -> Net:
    tokens = 2 * 16
    macs = tokens * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 2 * 16 * 16 * 64
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).eval()
    return Net("TransformerEncoderLayer eval", layer, (torch.randn(2, 16, 64),), macs, tokens * 3 * 64 * 64)


def layered(name: str, model: nn.Module, *args: Tensor) -> Net:
    macs, first = of_layers(model, *args)
    return Net(name, model, args, macs, first)


def mlp(*shape: int) -> Net:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    return layered(f"MLP {len(shape) + 1}-D", model, torch.randn(*shape, 64))


def scaled() -> Net:
    query, key, value = (torch.randn(2, 4, 16, 32, requires_grad=True) for _ in range(3))
    return Net("F.scaled_dot_product_attention", Scaled(), (query, key, value), 2 * 2 * 4 * 16 * 16 * 32)


def einsum() -> Net:
    return Net("einsum", Einsum(), (torch.randn(4, 8, 16),), 4 * 8 * 16 * 32, 4 * 8 * 16 * 32)


def functional() -> Net:
    first = 8 * 64 * 32
    return Net("F.linear and @", Functional(), (torch.randn(8, 64),), first + 8 * 32 * 16, first)


def shared() -> Net:
    return Net("a Linear called four times", Shared(), (torch.randn(8, 64),), 4 * 8 * 64 * 64, 8 * 64 * 64)


def recurrent() -> Net:
    steps = 3 * 10
    first = steps * 4 * 64 * 32
    macs = first + steps * 4 * 64 * (64 + 64 + 64)
    return Net("LSTM, 2 layers", Recurrent(), (torch.randn(3, 10, 32),), macs, first)


def embedding() -> Net:
    return Net("Embedding", nn.Embedding(100, 16), (torch.randint(0, 100, (4, 8)),), 0)


NETS: tuple[Callable[[], Net], ...] = (
    lambda: mlp(8),
    lambda: mlp(2, 16),
    lambda: layered("ResNet-50", ResNet50().eval(), torch.randn(1, 3, 64, 64)),
    lambda: layered("MobileNetV2", MobileNetV2().eval(), torch.randn(1, 3, 64, 64)),
    lambda: gpt2("eager"),
    lambda: gpt2("sdpa"),
    lambda: bert("eager"),
    lambda: bert("sdpa"),
    vit,
    vit_hf,
    recurrent,
    lambda: layered("depthwise convolution", nn.Conv2d(64, 64, 3, groups=64), torch.randn(1, 64, 16, 16)),
    lambda: layered(
        "1×1 and depthwise",
        nn.Sequential(nn.Conv2d(16, 64, 1), nn.Conv2d(64, 64, 3, groups=64)),
        torch.randn(1, 16, 16, 16),
    ),
    lambda: layered("ConvTranspose2d", nn.ConvTranspose2d(16, 32, 4, 2, 1), torch.randn(1, 16, 8, 8)),
    lambda: attention(need_weights=True, training=True),
    lambda: attention(need_weights=False, training=True),
    lambda: attention(need_weights=False, training=False),
    encoder_layer,
    scaled,
    einsum,
    functional,
    shared,
    embedding,
)
