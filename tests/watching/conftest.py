"""Watching in a folder of the test's own, silent, every step; whatever a test leaves watched is let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torcheer as tl
from torcheer.watching.watch import all_watches

Start = Callable[..., Any]


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Start]:
    """``tl.watch`` with every step logged into the test's folder."""

    def start(model: Any, **options: Any) -> Any:
        given = {"log_freq": 1, "backend": "store", "dir": tmp_path / "runs", "verbose": False, **options}
        return tl.watch(model, **given)

    yield start
    for one in all_watches():
        one.stop()
