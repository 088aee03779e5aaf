"""Small models and the loop that trains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import torcheer as tl


class Net(nn.Module):
    """The seed's example: two layers, a tensor attached between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        x = tl.attach(x, self, "intermediate")
        return self.fc2(x)


class Residual(nn.Module):
    """In-place activations and an in-place addition, as torchvision writes its residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.bn(self.relu(self.conv(x)))
        out += identity
        return self.fc(self.relu(out).mean((2, 3)))


class Dropped(nn.Module):
    """Draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(10, 32), nn.Dropout(0.5), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(torch.relu(self.fc1(x))))


@dataclass
class Output:
    """What a model returns."""

    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: Tensor | None = None


def train(
    model: nn.Module,
    batch: Callable[[], Any],
    steps: int = 3,
    loss: Callable[[Any], Tensor] = lambda out: out.square().mean(),
    lr: float = 0.01,
) -> list[float]:
    """Train with plain SGD; ``batch()`` is the input of a step. Returns the losses."""
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(trained, lr) if trained else None
    losses = []
    for _ in range(steps):
        value = loss(model(batch()))
        if optimizer is not None:
            optimizer.zero_grad()
        value.backward()
        if optimizer is not None:
            optimizer.step()
        losses.append(value.item())
    return losses


def rows(watching: Any, name: str, lane: str | None = None) -> Any:
    """What the run has of one series."""
    with watching.open() as run:
        return run.rows(run.find(name, lane))


def names(watching: Any, lane: str = "train") -> set[str]:
    """Of all series that have rows in a lane."""
    with watching.open() as run:
        return {one.name for one in run.series if one.lane == lane and len(run.rows(one))}
