"""The corner of a tensor; nothing about a tensor may raise."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from torcheer.history.excerpt import excerpt
from torcheer.record.model import Shape, Value


def value_of(shape: Shape, layout: str = "strided") -> Value:
    return Value(0, "activation", 0, shape, "float32", "cpu", layout, None, 0, 0, 0, None)


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((), "array(0.)"),
        ((3,), "array([0., 1., 2.])"),
        ((9,), "array([0., 1., 2., 3., 4.])..."),
        ((2, 2), "array([[0., 1.],\n       [2., 3.]])"),
        ((1, 1, 1, 2), "array([[0., 1.]])"),
        ((2, 1, 1, 2), "array([[0., 1.]])..."),
        ((0, 3), "array([], shape=(0, 3), dtype=float64)"),
        ((0, 2, 3), "array([], shape=(0, 2, 3), dtype=float64)"),
    ],
)
def test_corner(shape: Shape, shown: str) -> None:
    contents = numpy.arange(numpy.prod(shape, dtype=int), dtype=float).reshape(shape)
    assert excerpt(contents, value_of(shape)) == shown


def test_a_tensor_is_detached_first() -> None:
    class Attached:
        def detach(self) -> Any:
            return numpy.zeros(2)

    assert excerpt(Attached(), value_of((2,))) == "array([0., 0.])"


def test_layouts_without_corners() -> None:
    assert excerpt(object(), value_of((3, 3), "sparse_coo")) == "tensor of shape (3, 3) with layout sparse_coo"


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, TypeError, IndexError])
def test_tensors_that_cannot_be_shown(error: type[Exception]) -> None:
    class Odd:
        def __getitem__(self, key: Any) -> Any:
            raise error("no")

    shown = f"tensor of shape (3, 3) that cannot be shown ({error.__name__})"
    assert excerpt(Odd(), value_of((3, 3))) == shown
