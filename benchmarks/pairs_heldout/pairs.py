"""The pairs by name, made with weights that matter everywhere, and the labels read from the sources."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

NAMES = ("t5", "convnext", "mobilenet", "unet", "mixer", "gru_tagger", "ssm", "detr")


def pair(name: str) -> ModuleType:
    return import_module(f"benchmarks.pairs_heldout.{name}")


def fill(model: nn.Module, seed: int) -> None:
    """Every parameter and buffer away from where it begins, so that leaving one out is seen."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=source)
            if tensor.ndim > 1:
                tensor.copy_(noise / tensor[0].numel() ** 0.5)
            elif name.endswith(("weight", "gamma", "D", "running_var")):
                tensor.copy_(1 + 0.4 * torch.rand(tensor.shape, generator=source))
            else:
                tensor.copy_(0.3 * noise)


def make(name: str, bug: str = "", seed: int = 1) -> tuple[nn.Module, nn.Module]:
    """Both models in evaluation mode, with equal weights; B has the bug."""
    module = pair(name)
    a, b = module.A(), module.B(bug)
    fill(a, seed)
    with torch.no_grad():
        module.transfer(a, b)
    return a.eval(), b.eval()


def labels(name: str) -> dict[str, set[int]]:
    """Lines of the pair's file that a report may name, by bug."""
    file = pair(name).__file__
    assert file is not None
    found: dict[str, set[int]] = {}
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
        marked = re.search(r"# label: (.*)$", line)
        for bug in marked[1].split(", ") if marked else ():
            found.setdefault(bug, set()).add(number)
    return found


def tensors(output: object) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    assert isinstance(output, dict)
    return [tensor for key in sorted(output) for tensor in tensors(output[key])]


def distance(a: nn.Module, b: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """The largest difference of any output, over the size of that output."""
    with torch.no_grad():
        both = zip(tensors(a(*inputs)), tensors(b(*inputs)), strict=True)
        both = [(x.double(), y.double()) for x, y in both]
        return max(float((x - y).abs().max() / y.square().mean().sqrt()) for x, y in both)
