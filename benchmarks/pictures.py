"""How long a picture takes: ``python benchmarks/pictures.py [--check]``.

Each row runs in a fresh process: the model is recorded, then ``history.draw`` is timed, the first call (imports and
the embedded engine's start included) and the fastest of three more. The synthetic models are residual blocks of ten
operations, 2,000 and 10,000 in all, nested in boxes of ten blocks; flat ones have no boxes at all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import models
import torch
from torch import Tensor, nn

import torcheer as tl

BAR_SECONDS = 1.5
# name of the model, ending of the file, rolled, has the bar
ROWS = (
    ("gpt2", "svg", False, True),
    ("gpt2", "svg", True, True),
    ("resnet50", "svg", False, True),
    ("resnet50", "svg", True, True),
    ("gpt2", "pdf", False, False),
    ("gpt2", "png", True, False),
    ("blocks 2000", "svg", False, False),
    ("blocks 10000", "svg", False, False),
    ("flat 2000", "svg", False, False),
    ("flat 10000", "svg", False, False),
)


class Block(nn.Module):
    """Ten operations, with a connection round them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.first(x))
        out = self.second(out * 2 + 1)
        left, right = out.sin(), out.cos()
        return torch.tanh(left * right + x)


class Flat(nn.Module):
    """The same operations, all in one forward."""

    def __init__(self, num_ops: int) -> None:
        super().__init__()
        self.num_blocks = num_ops // 10

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.num_blocks):
            out = torch.relu(x - 1)
            out = (out * 2 + 1).sigmoid()
            left, right = out.sin(), out.cos()
            x = torch.tanh(left * right + x).neg()
        return x


def history_of(name: str) -> tl.ModelHistory:
    """Record the model of a row."""
    kind, _, size = name.partition(" ")
    if kind == "blocks":
        stages = (nn.Sequential(*(Block() for _ in range(10))) for _ in range(int(size) // 100))
        return tl.log_forward_pass(nn.Sequential(*stages), torch.rand(2, 4), layers_to_save=None)
    if kind == "flat":
        return tl.log_forward_pass(Flat(int(size)), torch.rand(2, 4), layers_to_save=None)
    case = models.build(getattr(models, name))
    return tl.log_forward_pass(case.model, case.x, layers_to_save=None)


def measure(name: str, ending: str, rolled: bool) -> dict[str, float]:
    """Draw one picture four times; the first call is timed apart."""
    history = history_of(name)
    num_ops = len(history)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{ending}"
        for _ in range(4):
            start = time.perf_counter()
            history.draw(path, rolled=rolled)
            seconds.append(time.perf_counter() - start)
        size_bytes = path.stat().st_size
    return {"first": seconds[0], "next": min(seconds[1:]), "num_ops": num_ops, "size_bytes": size_bytes}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        name, ending, rolled = json.loads(given.row)
        print(json.dumps(measure(name, ending, rolled)))
        return 0
    missed = []
    print(f"{'model':<14}{'file':<6}{'':<10}{'operations':>10}{'first call':>12}{'next':>9}{'KiB':>8}")
    for name, ending, rolled, has_bar in ROWS:
        row = json.dumps([name, ending, rolled])
        command = [sys.executable, __file__, "--row", row]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        kind = "rolled" if rolled else "unrolled"
        bar = f"   bar {BAR_SECONDS} s" if has_bar else ""
        print(
            f"{name:<14}{ending:<6}{kind:<10}{found['num_ops']:>10}{found['first']:>10.2f} s{found['next']:>7.2f} s"
            f"{found['size_bytes'] / 1024:>8.0f}{bar}",
            flush=True,
        )
        if has_bar and found["first"] > BAR_SECONDS:
            missed.append(f"{name} {kind}")
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
