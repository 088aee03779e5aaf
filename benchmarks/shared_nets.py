"""Nets whose work is told wrong by what follows modules with backward hooks, and what each module does, by hand."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SIZE = 16
MM = 2 * 4 * SIZE * SIZE  # FLOPs of one linear layer on four rows


def layer() -> nn.Linear:
    return nn.Linear(SIZE, SIZE)


class Towers(nn.Module):
    """The inputs of both need no gradient, which leaves FlopCounterMode in tower ``a`` for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Sequential(layer(), nn.ReLU(), layer()), nn.Sequential(layer(), nn.ReLU(), layer())

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * self.b(x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.before, self.inside, self.reentrant = layer(), nn.Sequential(layer(), nn.ReLU(), layer()), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inside, self.before(x), use_reentrant=self.reentrant)


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.shared = layer(), layer(), layer()

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        y = self.two(y).relu_() + y
        return self.shared(self.shared(y)) + y


# Net → address → linear layers it goes through forward, backward, and again (checkpointing).
WORK: dict[str, tuple[nn.Module, dict[str, tuple[int, int, int]]]] = {
    "two towers": (Towers(), {"": (4, 6, 0), "a": (2, 3, 0), "b": (2, 3, 0)}),
    "skips, a shared module": (Skips(), {"": (4, 7, 0), "one": (1, 1, 0), "two": (1, 2, 0), "shared": (2, 4, 0)}),
    "checkpoint, reentrant": (Checkpointed(True), {"": (3, 5, 2), "inside": (2, 4, 2), "before": (1, 1, 0)}),
    # Without reentry it stops computing again as soon as it has what the backward needs: before the last layer.
    "checkpoint": (Checkpointed(False), {"": (3, 5, 1), "inside": (2, 4, 1), "before": (1, 1, 0)}),
}
