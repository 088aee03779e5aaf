"""Models made at random, by hypothesis: steps of every awkward kind, nested, one after the other.

A program is plain data (a list of steps, some with programs inside), so that hypothesis can shrink one that fails.
Every step takes a tensor of shape (batch, ``SIZE``) and returns one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SIZE = 6
BATCH = 4


class Doubled(torch.autograd.Function):
    """A function of the user's own, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2 + x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (2 + x.cos())


class Counting(nn.Module):
    """Writes a buffer and an attribute in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(SIZE))
        self.num_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class Hooked(nn.Module):
    """A linear layer with hooks that change what goes in and what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(SIZE, SIZE)
        self.inner.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))
        self.inner.register_forward_hook(lambda module, given, out: out + given[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Heads(nn.Module):
    """Takes and returns structures."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 3)

    def forward(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"both": (self.left(given["x"]), [self.right(given["x"])]), "none": None}


def _in_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, ::2].mul_(2)
    y.t()[1].add_(1)
    y[0] = 0.5
    return y


def _of_views(x: Tensor) -> Tensor:
    first, second = x.chunk(2, 1)
    turned = x.view(-1).view(SIZE, -1).t().reshape(x.shape)
    return torch.cat([second, first], 1) + turned


def _by_value(x: Tensor) -> Tensor:
    return x.exp().clamp(max=3) if float(x.detach().sum()) > 0 else x.abs().sqrt()


def _in_part_without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().amax(1, keepdim=True) + 1
    return x / scale


def _out_argument(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.cumsum(x.detach(), 1, out=out)
    return x + out


def _in_structures(heads: Heads) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        left, (right,) = heads({"x": x})["both"]
        return left + right.repeat(1, 2)

    return run


# Steps without parameters.
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x * 1.5, inplace=True),
    "add in place": lambda x: (x + 0).add_(1).mul_(x.detach()),
    "write in views": _in_view,
    "views": _of_views,
    "random": lambda x: x + 0.1 * torch.rand_like(x),
    "drop": lambda x: F.dropout(x, 0.3, training=True),
    "function": Doubled.apply,
    "by value": _by_value,
    "partly without grad": _in_part_without_grad,
    "out argument": _out_argument,
    "matrix": lambda x: torch.einsum("bi,bj->ij", x, x).softmax(-1).mm(x.t()).t().contiguous(),
    "sorted": lambda x: x.sort(1)[0] + x.gather(1, x.argsort(1)),
    "detached": lambda x: x - x.detach() * 0.5,
    "the same again": lambda x: x,
}  # fmt: skip

# Steps with modules.
MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(SIZE, SIZE),
    "norm": lambda: nn.LayerNorm(SIZE),
    "batch norm": lambda: nn.BatchNorm1d(SIZE),
    "block": lambda: nn.Sequential(nn.Linear(SIZE, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, SIZE)),
    "counting": Counting,
    "hooked": Hooked,
    "heads": Heads,
    "recurrent": lambda: nn.GRUCell(SIZE, SIZE),
}

Step = Any  # ("relu",) | ("shared", n) | ("loop", n, program) | ("residual", program) | ("checkpoint", program)


def _around(programs: st.SearchStrategy[list[Step]]) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.one_of(
            _simple,
            st.tuples(st.just("loop"), st.integers(1, 3), programs),
            st.tuples(st.just("residual"), programs),
            st.tuples(st.just("checkpoint"), programs),
        ),
        min_size=1,
        max_size=4,
    )


_simple: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from([*PLAIN, *MODULES])), st.tuples(st.just("shared"), st.integers(0, 1))
)
programs = st.recursive(st.lists(_simple, min_size=1, max_size=4), _around, max_leaves=4)


class Program(nn.Module):
    """Runs a program. ``shared``: modules that several steps may use."""

    def __init__(self, steps: list[Step], shared: list[nn.Module] | None = None) -> None:
        super().__init__()
        self.steps = steps
        own = [nn.Linear(SIZE, SIZE), nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh())]
        self.shared = nn.ModuleList(own if shared is None else shared)
        made = {}
        for place, (kind, *rest) in enumerate(steps):
            if kind in MODULES:
                made[f"step{place}"] = MODULES[kind]()
            elif kind in {"loop", "residual", "checkpoint"}:
                made[f"step{place}"] = Program(rest[-1], list(self.shared))
        self.made = nn.ModuleDict(made)

    def forward(self, x: Tensor) -> Tensor:
        for place, (kind, *rest) in enumerate(self.steps):
            name = f"step{place}"
            if kind in PLAIN:
                x = PLAIN[kind](x)
            elif kind == "shared":
                x = self.shared[rest[0]](x)
            elif kind == "heads":
                x = _in_structures(self.made[name])(x)
            elif kind == "loop":
                for _ in range(rest[0]):
                    x = self.made[name](x)
            elif kind == "residual":
                x = x + self.made[name](x)
            elif kind == "checkpoint":
                x = checkpoint(self.made[name], x, use_reentrant=False)
            else:
                x = self.made[name](x)
        return x


class Whole(nn.Module):
    """A program with a parameter before it, so that it can always be trained."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.first, self.program = nn.Linear(SIZE, SIZE), Program(steps)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        before = self.first(x)
        return {"out": self.program(before), "before": before}
