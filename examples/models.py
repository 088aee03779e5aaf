"""The models of the examples: small, self-contained, nothing to download."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AlexNet(nn.Module):
    """The same modules, shapes and forward as ``torchvision.models.alexnet()``; 61,100,840 parameters."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)


class SimpleRecurrent(nn.Module):
    """Feeds a state back through the same layer four times."""

    def __init__(self, size: int = 5, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.fc = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = self.fc(x)
            x = x + 1
            x = torch.tanh(x)
        return x


class ResidualBlock(nn.Module):
    """Two convolutions with normalization, and the input added to what they make."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x
        return self.relu(out)


class ResidualNet(nn.Module):
    """A small ResNet: a stem, residual blocks, and a linear classifier."""

    def __init__(self, channels: int = 8, num_blocks: int = 2, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, kernel_size=3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(channels) for _ in range(num_blocks)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(self.pool(x).flatten(1))


class GPTBlock(nn.Module):
    """Causal self-attention, then a small network on each position."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = (batch, length, self.num_heads, width // self.num_heads)
        query, key, value = self.attention(self.norm1(x)).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(
            query.view(heads).transpose(1, 2),
            key.view(heads).transpose(1, 2),
            value.view(heads).transpose(1, 2),
            is_causal=True,
        )
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    """A GPT of any depth; its output layer shares the weights of the token embedding."""

    def __init__(
        self,
        num_layers: int = 2,
        width: int = 32,
        num_heads: int = 4,
        num_tokens: int = 50,
        context: int = 16,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GPTBlock(width, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_tokens, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[-1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
