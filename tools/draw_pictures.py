"""Draws the pictures in the documentation: ``python tools/draw_pictures.py [--check]``.

They depend on structure alone, not on times or weights, so they are the same on every machine; ``--check`` compares
what is drawn now with the files.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import torcheer as tl

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
MODELS = runpy.run_path(str(ROOT / "examples" / "models.py"))


class Recurrent(nn.Module):
    """The model of docs/how-to/draw-a-model.md."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for _ in range(5):
            state = self.cell(x + state)
        head: Tensor = self.head(state)
        return head


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name of each picture, and its SVG."""
    torch.manual_seed(0)
    loop = tl.log_forward_pass(Recurrent(), torch.rand(2, 8))
    yield "loop-rolled", loop.draw(rolled=True).svg
    yield "loop-unrolled", loop.draw().svg
    loop.log_backward(loop.output.sum())
    yield "loop-gradients", loop.draw(rolled=True, gradients=True).svg
    yield "recurrent", tl.log_forward_pass(MODELS["SimpleRecurrent"](), torch.rand(2, 5)).draw(rolled=True).svg
    alexnet = tl.log_forward_pass(MODELS["AlexNet"](), torch.rand(1, 3, 224, 224), layers_to_save="none")
    yield "alexnet", alexnet.draw().svg
    gpt = tl.log_forward_pass(MODELS["TinyGPT"]().eval(), torch.arange(8)[None], layers_to_save="none")
    yield "gpt", gpt.draw(rolled=True).svg


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = []
    for name, svg in pictures():
        path = IMAGES / f"{name}.svg"
        if not path.exists() or path.read_text(encoding="utf-8") != svg:
            stale.append(name)
            if not check:
                path.write_text(svg, encoding="utf-8")
    print(f"pictures {'out of date' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
