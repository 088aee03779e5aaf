"""What the page is shown in these tests: a small model with all that models have, run forward and backward."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention, self.mlp = nn.LayerNorm(width), Attention(width, 2), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + F.gelu(self.mlp(x))


class Lab(nn.Module):
    """A convolution, four equal blocks, a loop of three passes, and a NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(8) for _ in range(4)))
        self.cell = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.stem(x)).flatten(2).transpose(1, 2)
        x = self.blocks(x).mean(1)
        for _ in range(3):
            x = torch.tanh(self.cell(x))
        return self.head(x), torch.log(x - 2)  # the logarithm of something negative


def lab() -> tuple[Lab, Tensor]:
    torch.manual_seed(0)
    return Lab(), torch.rand(2, 3, 6, 6)


@dataclass(frozen=True)
class Explorer:
    """A server, and what the recording it shows holds."""

    address: str
    data: dict[str, Any]

    def op(self, label: str) -> str:
        """Return the id of an op's box."""
        return f"op{self.data['ops']['label'].index(label)}"

    def call(self, module: str) -> str:
        """Return the id of the box of a module's first call."""
        index = self.data["modules"]["address"].index(module)
        return f"call{self.data['calls']['module'].index(index)}"

    def subject(self, kind: str) -> int:
        """Return the number of the first subject of some kind."""
        return next(one["id"] for one in self.subjects() if one["kind"] == kind)

    def subject_of(self, title: str) -> int:
        """Return the number of the subject with some title."""
        return next(one["id"] for one in self.subjects() if one["title"] == title)

    def subjects(self) -> list[dict[str, Any]]:
        with urlopen(f"{self.address}api", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["subjects"]
        return found


class Head(nn.Module):
    """Two of these differ in how they round: the second gelu of the one is the tanh approximation."""

    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x))
        x = F.gelu(self.second(x), approximate=self.approximate)
        return self.last(x if self.approximate == "none" else x * 1.0)


def heads() -> tuple[Head, Head, Tensor]:
    torch.manual_seed(0)
    a, b = Head("none"), Head("tanh")
    b.load_state_dict(a.state_dict())
    return a, b, torch.rand(4, 8)
