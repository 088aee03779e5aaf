"""What a pair is made of, and what counts as naming the right op."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass
class Case:
    """Two models, an input of both, and options of the comparison."""

    a: Any
    b: Any
    x: Any
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Label:
    """What a right answer names."""

    marks: str  # lines of the second model marked "#@kind", one of these kinds (separated by blanks)
    missing_in_a: str = ""  # or the ATen op of the first model that the second leaves out
    tensor: str = ""  # or the gradient, weight or state that differs first


def marked_lines(source_of: Callable[..., Any] | type, kinds: str) -> set[tuple[str, int]]:
    """File and number of every line of a module marked with one of these kinds."""
    file = inspect.getsourcefile(source_of)
    assert file is not None
    wanted = {f"@{kind}" for kind in kinds.split()}
    text = Path(file).read_text(encoding="utf-8")
    marked = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if wanted & {word.lstrip("#") for word in line.partition("#")[2].split()}
    }
    # A statement may go over several lines, of which only one carries the mark.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)):
            lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            marked |= lines if lines & marked else set()
    return {(file, number) for number in marked}


def lively(model: nn.Module, seed: int) -> nn.Module:
    """Weights large enough that every step matters, norms that are not the identity, biases that are not zero."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.is_floating_point() or "inv_freq" in name or "freqs" in name:
                continue
            drawn = torch.randn(tensor.shape, generator=source)
            if "running_var" in name:
                tensor.copy_(0.5 + drawn.abs())
            elif tensor.ndim == 1:
                tensor.copy_(0.2 * drawn + (1 if "weight" in name else 0))
            else:
                tensor.copy_(drawn / max(1, tensor[0].numel()) ** 0.5)
    return model
