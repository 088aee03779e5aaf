"""One architecture of the zoo: how to build it, and how to call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Built = tuple[torch.nn.Module, dict[str, Any]]


@dataclass(frozen=True)
class Specimen:
    """An architecture with small sizes and random weights."""

    name: str  # the test's id
    family: str  # "text", "vision", "audio", …
    build: Callable[[], Built]  # model and keyword arguments of its call; called under a fixed seed
    quick: bool = False  # in the tier that runs with every `make test`
    trains: bool = True  # False: its training mode needs more than a forward call
    backward: bool = True  # False: nothing it returns leads back to its params
    why: str = ""  # the reason of each False above


def quick(family: str, **builds: Callable[[], Built]) -> list[Specimen]:
    """Specimens of one family that are small enough to run with every ``make test``."""
    return [Specimen(name, family, build, quick=True) for name, build in builds.items()]
