"""Inputs by name, without any framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from torcheer.cli.inputs import File, Input, Shape, parse
from torcheer.cli.model_name import Name
from torcheer.errors import CaptureError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x224x224", Input(None, Shape((1, 3, 224, 224)))),
        ("7", Input(None, Shape((7,)))),
        ("scalar:int64:5", Input(None, Shape((), "int64", 5))),
        ("1x8:int64:50257", Input(None, Shape((1, 8), "int64", 50257))),
        ("2x3:9", Input(None, Shape((2, 3), "float32", 9))),
        ("mask=1x8:bool", Input("mask", Shape((1, 8), "bool"))),
        ("net.py:make", Input(None, Name("net.py:make", "net.py", "make"))),
        ("ids=pkg.mod:make(n=3)", Input("ids", Name("pkg.mod:make(n=3)", "pkg.mod", "make", (), {"n": 3}))),
    ],
)
def test_input_is_taken_apart(text: str, expected: Input) -> None:
    assert parse(text) == expected


def test_files_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.touch()
    assert parse(str(path)) == Input(None, File(path))
    assert parse(f"{path}:pixels") == Input(None, File(path, "pixels"))
    assert parse(f"image={path}:pixels") == Input("image", File(path, "pixels"))


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"there is no file '.*x\.npy'"):
        parse(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("text", ["", "1x", "x", "1,3,4", "image.png", "1x3 float32"])
def test_what_is_no_input_is_refused_with_examples(text: str) -> None:
    with pytest.raises(CaptureError, match=r"is no shape, file or function\. Write a shape \(1x3x224x224"):
        parse(text)


def test_integers_below_zero_are_refused() -> None:
    with pytest.raises(CaptureError, match="Give 1 or more"):
        parse("3:int64:0")
