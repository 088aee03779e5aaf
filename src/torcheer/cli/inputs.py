"""Inputs by name: shapes, files, or a function that makes them, each for a position or a keyword of the model.

    1x3x224x224             random numbers of that shape, float32      (scalar: a single number)
    1x128:int64:50257       … of a dtype; integers from 0 to below 50257 (below 2 where nothing is said)
    mask=1x128:bool         … for the keyword "mask"
    x.npy  x.pt  x.safetensors  x.safetensors:pixels  batch.npz
                            tensors from a file; a file of several by name gives keywords
    net.py:make_input       a function: what it returns is spread over the arguments like in Python's API

Random inputs come from --seed and are the same in every run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.cli import model_name
from torcheer.errors import CaptureError

SHAPE = re.compile(r"(?P<shape>scalar|\d+(?:x\d+)*)(?::(?P<dtype>[a-z]\w*))?(?::(?P<below>\d+))?")
KEYWORD = re.compile(r"(?P<key>[A-Za-z_]\w*)=(?P<rest>.+)", re.DOTALL)
FILES = (".pt", ".pth", ".npy", ".npz", ".safetensors")


@dataclass(frozen=True)
class Shape:
    """Random numbers."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    below: int | None = None  # for integers


@dataclass(frozen=True)
class File:
    """Tensors from a file."""

    path: Path
    key: str | None = None  # one of several in it


@dataclass(frozen=True)
class Input:
    """One ``--input``."""

    keyword: str | None
    source: Shape | File | model_name.Name


def parse(text: str) -> Input:
    """Take one ``--input`` apart, without opening or importing anything."""
    keyword = None
    named = KEYWORD.fullmatch(text)
    if named is not None:
        keyword, text = named["key"], named["rest"]
    shape = SHAPE.fullmatch(text)
    if shape is not None:
        sizes = () if shape["shape"] == "scalar" else tuple(int(size) for size in shape["shape"].split("x"))
        below = None if shape["below"] is None else int(shape["below"])
        if below == 0:
            raise CaptureError(f"--input {text}: no integer is below 0 and not negative. Give 1 or more.")
        return Input(keyword, Shape(sizes, shape["dtype"] or "float32", below))
    path, colon, key = text, "", ""
    if Path(text).suffix.lower() not in FILES:
        path, colon, key = text.rpartition(":")
    if Path(path).suffix.lower() in FILES:
        if not Path(path).is_file():
            raise CaptureError(f"--input {text}: there is no file {path!r}. Give the path from here.")
        return Input(keyword, File(Path(path), key if colon else None))
    if ":" in text:
        return Input(keyword, model_name.parse(text))
    raise CaptureError(
        f"--input {text!r} is no shape, file or function. Write a shape (1x3x224x224, 1x128:int64:50257), "
        f"a file ({', '.join(FILES)}) or a function (net.py:make_input)."
    )


def make(texts: Sequence[str], model: Any, *, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keyword arguments the inputs make, on the model's device."""
    # It imports torch, or Paddle.
    from torcheer.api import given

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    maker = given.maker(model, seed)
    for text in texts:
        one = parse(text)
        if isinstance(one.source, Shape):
            value = maker.random(one.source.shape, one.source.dtype, one.source.below)
        elif isinstance(one.source, File):
            value = maker.read(one.source.path, one.source.key)
        else:
            value = maker.moved(model_name.find(one.source))
        if one.keyword is not None:
            kwargs[one.keyword] = value
        elif isinstance(value, dict):
            kwargs.update(value)
        elif isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            args.extend(value)
        else:
            args.append(value)
    return tuple(args), kwargs
