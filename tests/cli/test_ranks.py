"""Verbs started by torchrun: every process records, one speaks; then the ranks are compared with one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torcheer as tl
from torcheer.cli import ranks
from torcheer.cli.main import main

SOURCES = str(Path(tl.__file__).resolve().parents[1])
NET = """
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def make():
    dist.init_process_group("gloo")
    net = Net()
    for param in net.parameters():
        dist.broadcast(param.data, 0)
    return nn.parallel.DistributedDataParallel(net)


def part():
    return torch.ones(4, 8).cumsum(1).chunk(2)[dist.get_rank()]


def whole():
    return torch.ones(4, 8).cumsum(1)
"""


def test_trace_under_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    words = ["trace", "net.py:make", "-i", "net.py:part", "--backward", "-o", "ranks"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run(
        [*command, "--no-python", sys.executable, "-m", "torcheer", *words],
        env={**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Log of DistributedDataParallel forward pass") == 1
    assert done.stderr.count("written: ranks") == 1
    assert sorted(path.name for path in Path("ranks").iterdir()) == ["rank0.tch", "rank1.tch"]
    assert main(["compare", "net.py:Net", "ranks", "-i", "net.py:whole"]) == 0
    torch.manual_seed(1)
    assert main(["compare", "net.py:Net", "ranks", "-i", "net.py:whole", "--seed", "1"]) == 1
    assert main(["compare", "net.py:Net", "ranks"]) == 2


def test_which_process_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert ranks.rank() is None
    assert ranks.speaks()
    assert ranks.named("text") == "text"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    assert not ranks.speaks()
    assert ranks.named("text") == "rank 1: text"
    assert ranks.recording_of(Path("folder")) == Path("folder/rank1.tch")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert ranks.speaks(), "one process is none of several"
