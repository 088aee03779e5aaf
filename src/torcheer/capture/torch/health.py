"""What ``torcheer doctor`` asks of PyTorch: its version, its devices, and whether the private names in use are there.

The names are read out of the text of ``private.py``, which may fail to import in a PyTorch that lacks one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from torcheer.units import counted_text

PRIVATE = Path(__file__).with_name("private.py")


def version() -> str:
    """Of PyTorch."""
    return str(torch.__version__)


def devices() -> list[str]:
    """The devices models can run on, in words."""
    found = [f"CPU, {counted_text(torch.get_num_threads(), 'thread')}"]
    found += [f"cuda:{number}, {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def missing_private_names(source: str | None = None) -> list[str]:
    """Private names of PyTorch that ``private.py`` uses and this PyTorch lacks."""
    names = sorted(set(_private_names(ast.parse(source or PRIVATE.read_text(encoding="utf-8")))))
    return [name for name in names if not _is_there(name)]


def _private_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.startswith("torch.") and "._" in name and all(part.isidentifier() for part in name.split(".")):
                yield name


def _is_there(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[length:])
    return False


def tiny_model() -> tuple[torch.nn.Module, torch.Tensor]:
    """A model to try everything on, and its input."""
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.ones(2, 4)
