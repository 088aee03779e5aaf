"""Trains a model of 10,000 operations under ``torcheer.watch``: ``python benchmarks/train_large.py FOLDER STEPS``.

Prints the folder of its run when the first step is written.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pictures
import torch
from torch import nn

import torcheer as tl
from torcheer.store import Run


def main() -> None:
    folder, num_steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(*(pictures.Block() for _ in range(10))) for _ in range(100)))
    watching = tl.watch(model, log_freq=1, backend="store", dir=folder, name="large", verbose=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(num_steps + 2):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            path = Path(watching.folder)
            while _last_step(path) is None:
                time.sleep(0.05)
            print(path, flush=True)
            time.sleep(3)  # the page is opened
        time.sleep(0.3)
    watching.stop()


def _last_step(path: Path) -> int | None:
    with Run.open(path) as run:
        return run.last_step


if __name__ == "__main__":
    main()
