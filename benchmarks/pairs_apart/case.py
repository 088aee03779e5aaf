"""What a planted bug declares, how B is made with it, and when a report is right about it."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..pairs_heldout.pairs import fill

NAMES = (
    "wavenet", "gat", "moe", "swin", "vae", "perceiver", "retnet", "clip", "capsule", "fnet", "pointnet", "gemma",
    "nerf", "dlrm", "crf",
)  # fmt: skip
LATER = ("realnvp", "vqvae", "deeplab", "xl", "yolo")  # written when what the others had shown was being mended
FOLDER = Path(tempfile.mkdtemp(prefix="pairs-apart-"))


@dataclass
class Bug:
    """An edit of B's source (``old`` is found once in B), or other training, and where a report should see it."""

    kind: str
    old: str = ""
    new: str = ""
    at: str = ""  # tags of further lines that are as right: where the edit leaves no op of its own, those that show it
    tensors: tuple[str, ...] = ()  # parameters, one of which is named first; B's own names
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None  # B's
    loss: Callable[[Any], torch.Tensor] | None = None  # B's

    @property
    def is_trained(self) -> bool:
        return self.optimizer is not None or self.loss is not None


def pair(name: str) -> ModuleType:
    return import_module(f"benchmarks.pairs_apart.{name}")


def edited(name: str, bug: str) -> tuple[ModuleType, set[int]]:
    """The pair's module with a bug in B, as a file of its own, and the lines that were edited."""
    source, told = pair(name), pair(name).BUGS[bug]
    if not told.old:
        return source, set()
    text = Path(str(source.__file__)).read_text(encoding="utf-8")
    begin, end = text.index("\nclass B("), text.index("\nBUGS = ")
    assert text.count(told.old, begin, end) == 1, f"{name}: {bug}: edits {text.count(told.old, begin, end)} places"
    place = text.index(told.old, begin, end)
    path = FOLDER / f"{name}_{list(source.BUGS).index(bug)}.py"
    path.write_text(text[:place] + told.new + text[place + len(told.old) :], encoding="utf-8")
    first = text.count("\n", 0, place) + 1
    return _load(path), set(range(first, first + told.new.count("\n") + 1))


@cache
def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks.pairs_apart.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(spec.name)] = module
    spec.loader.exec_module(module)
    return module


def tagged(module: ModuleType, tags: str) -> set[int]:
    wanted = {f"@{tag}" for tag in tags.split()}
    lines = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if wanted & set(line.partition("# ")[2].split())}
    missing = wanted - {word for number in marked for word in lines[number - 1].split()}
    assert not missing, f"{module.__file__}: no line is tagged {missing}"
    return marked


def make(name: str, bug: str = "", seed: int = 1) -> tuple[nn.Module, nn.Module]:
    """Both models in evaluation mode, with equal weights; B has the bug."""
    module = pair(name)
    a, b = module.A(), (edited(name, bug)[0] if bug else module).B()
    fill(a, seed)
    with torch.no_grad():
        module.transfer(a, b)
    return a.eval(), b.eval()


def is_right(one: Any, name: str, bug: str) -> bool:
    """Whether a place that a report names is the bug: an edited line of B in its stack, a tagged one as the innermost,
    a tagged one of A where B omits the step, or the tensor."""
    told = pair(name).BUGS[bug]
    module, lines = edited(name, bug)
    if told.tensors or told.is_trained:
        params = [*(one.b.params if one.b is not None else ()), *(one.a.params if one.a is not None else ())]
        if told.is_trained and one.kind == "gradient" and told.loss is None:
            return False
        return any(tensor in one.headline or tensor in params for tensor in told.tensors)
    if one.b is not None:
        file, innermost = str(module.__file__), one.b.frame
        if any(line.file == file and line.line in lines for line in one.b.stack):
            return True
        if innermost is not None and innermost.file == file and innermost.line in tagged(module, told.at):
            return True
    omitted = one.a.stack if one.a is not None and (one.b is None or one.kind == "missing") else []
    return any(line.file == str(pair(name).__file__) and line.line in tagged(pair(name), told.at) for line in omitted)
