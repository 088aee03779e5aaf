"""What a model may take and return: nothing, numbers, dicts, dataclasses, generators."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory


class Returns(nn.Module):
    """Computes something and returns what ``make`` makes of it."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        return self.make(self.inner(x))


class Keeps(nn.Module):
    """Returns nothing; its result is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> None:
        self.total += x.sum(0)


class Generates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Iterator[Tensor]:
        for _ in range(3):
            x = self.inner(x)
            yield x


class PassesGenerator(nn.Module):
    """The generator is used up inside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = Generates()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([step * 2 for step in self.steps(x)]).sum()


Pair = namedtuple("Pair", "first second")


@dataclass
class Result:
    """A user's own output class."""

    logits: Tensor
    hidden: list[Tensor]
    name: str = "result"
    none: Any = None


@dataclass
class Batch:
    """A user's own input class."""

    tokens: Tensor
    mask: Tensor


class Opaque:
    """A class nobody can look into."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and torch.equal(self.tensor, other.tensor)

    __hash__ = None  # type: ignore[assignment]


class ReturnsParam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight


class Takes(nn.Module):
    def forward(self, batch: Batch, extra: dict[str, Any], *more: Tensor, scale: float = 1.0, **rest: Tensor) -> Tensor:
        out = batch.tokens * batch.mask + extra["deep"][0] * scale
        return out + sum(more) + sum(rest.values())


def takes() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    batch = Batch(torch.randn(2), torch.ones(2))
    extra = {"deep": [torch.randn(2)], "name": "x"}
    return Takes(), (batch, extra, torch.randn(2)), {"scale": 2.0, "more_of_it": torch.randn(2)}


def check_takes(history: ModelHistory) -> None:
    paths = [op.outputs[0].path for op in history.inputs]
    assert len(paths) == 5
    assert len(set(paths)) == 5
    assert any("tokens" in path for path in paths)
    assert any("deep" in path for path in paths)
    assert all(op.children for op in history.inputs)


def check_paths(*paths: str) -> Any:
    """The outputs are found at these paths."""

    def check(history: ModelHistory) -> None:
        assert tuple(op.outputs[0].path for op in history.outputs) == paths
        assert all(op.parents for op in history.outputs)

    return check


def check_generator(history: ModelHistory) -> None:
    """Nothing has run when a generator is returned: the record must say so, or be filled later."""
    assert any("generator" in note.message.lower() for note in history.diagnostics), history.diagnostics


def check_param(history: ModelHistory) -> None:
    assert [param.address for op in history.outputs for param in op.params] == ["weight"]


def returns(name: str, make: Any, **options: Any) -> Case:
    return Case(name, model_of(lambda: (Returns(make), torch.randn(2, 3))), **{"names": ("linear",), **options})


CASES = [
    returns("returns_none", lambda y: None, check=check_paths()),
    returns("returns_int", lambda y: int(y.sum() > 0), names=("linear", "sum", "gt"), check=check_paths()),
    returns("returns_float", lambda y: y.sum().item(), names=("linear", "sum", "item"), check=check_paths()),
    returns("returns_str", lambda y: "done", check=check_paths()),
    returns("returns_shape", lambda y: y.shape, check=check_paths()),
    returns("returns_dict", lambda y: {"a": y, "b": {"c": y * 2, 3: 4}}, check=check_paths("a", "b.c")),
    returns("returns_ordered_dict", lambda y: OrderedDict(z=y, a=y + 1), check=check_paths("z", "a")),
    returns("returns_user_dict", lambda y: UserDict(z=y, a=y + 1), check=check_paths("z", "a")),
    returns("returns_tuple", lambda y: (y, [y + 1, None], "x", (y,)), check=check_paths("0", "1.0", "3.0")),
    returns("returns_namedtuple", lambda y: Pair(y, y + 1), check=check_paths("first", "second")),
    returns("returns_dataclass", lambda y: Result(y, [y + 1, y]), check=check_paths("logits", "hidden.0", "hidden.1")),
    returns(
        "returns_model_output",
        lambda y: BaseModelOutputWithPooling(last_hidden_state=y, pooler_output=y.mean(0), hidden_states=(y, y * 2)),
        check=check_paths("last_hidden_state", "pooler_output", "hidden_states.0", "hidden_states.1"),
    ),
    returns("returns_numpy", lambda y: float(y.detach().numpy().sum()), check=check_paths()),
    returns("returns_list_of_numbers", lambda y: y.tolist(), check=check_paths()),
    returns("returns_object", Opaque, check=check_paths()),
    Case("returns_input", model_of(lambda: (nn.Identity(), torch.randn(2))), min_ops=0, check=check_paths("")),
    Case("returns_param", model_of(lambda: (ReturnsParam(), torch.randn(2))), min_ops=0, check=check_param),
    Case("returns_nothing_keeps_state", model_of(lambda: (Keeps(), torch.randn(2, 3))), names=("sum",), min_ops=2),
    Case(
        "generator", model_of(lambda: (Generates(), torch.randn(2, 3))), min_ops=0, check=check_generator,
        census=False, diagnostics=("generator-not-run",),
    ),
    Case(
        "generator_inside", model_of(lambda: (PassesGenerator(), torch.randn(2, 3))), names=("linear", "stack"),
        min_ops=8,
    ),
    Case("inputs", takes, names=("mul", "add"), min_ops=5, check=check_takes),
]  # fmt: skip
