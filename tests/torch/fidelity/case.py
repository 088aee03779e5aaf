"""One case of fidelity: a model, its inputs, and what its record must show."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torcheer.history import ModelHistory

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A run that a capture must neither change nor fail to see."""

    name: str  # the word for it; the test's id
    build: Callable[[], Built]  # model, positional and keyword arguments; called under a fixed seed
    context: Callable[[], AbstractContextManager[Any]] = nullcontext  # around the run
    min_ops: int = 1  # operations at least, inputs and outputs not counted
    names: tuple[str, ...] = ()  # names of operations that must be there
    aten: tuple[str, ...] = ()  # ATen operations that must be there, such as "aten.mm"
    check: Callable[[ModelHistory], None] | None = None  # what else must hold
    diagnostics: tuple[str, ...] = ()  # codes that must be there; any other is a failure
    census: bool = True  # the ATen calls are those an independent dispatch mode counts
    backward: bool = True  # where the output requires grad, compare gradients too
    keeps_all: bool = True  # every result can be kept; what lives only inside a transform cannot
    same_nodes: bool = True  # the output has the same kind of autograd node; compiled code has one of its own
    marks: tuple[Any, ...] = ()


def model_of(build: Callable[[], Any]) -> Callable[[], Built]:
    """``build`` that returns (model, *args) as a case wants it."""

    def built() -> Built:
        model, *args = build()
        return model, tuple(args), {}

    return built
