"""Models in a file, as a user has them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.first = nn.Linear(size, 3)
        self.norm = nn.BatchNorm1d(3)
        self.second = nn.Linear(3, 2)

    def forward(self, x, *, scale=None):
        print("the model prints")
        x = torch.relu(self.norm(self.first(x)))
        return self.second(x if scale is None else x * scale)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 4)

    def forward(self, ids, mask):
        return self.embed(ids)[mask]


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        raise ValueError(f"broken here: {self.fc(x).shape}")


class MakesNaN(nn.Module):
    def forward(self, x):
        return torch.log(x - 10)


def make_input():
    return torch.ones(2, 4)


def make_keywords():
    return {"x": torch.ones(2, 4), "scale": torch.tensor(2.0)}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with ``nets_of_a_user.py`` in it."""
    (tmp_path / "nets_of_a_user.py").write_text(NETS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("nets_of_a_user", None)
