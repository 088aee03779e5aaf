"""A corner of a tensor, as text. Tensors of any framework; nothing odd about one may raise here."""

from __future__ import annotations

from typing import Any

from torcheer.record.model import Value
from torcheer.units import shape_text

CORNER = 5
# What indexing or printing an unusual tensor raises: quantized, sparse, fake, or on a device that is gone.
UNPRINTABLE = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)


def excerpt(contents: Any, value: Value) -> str:
    """Return the first 5 rows and columns of the last two dimensions, with ``...`` where there is more."""
    if value.layout != "strided":
        return f"tensor of shape {shape_text(value.shape)} with layout {value.layout}"
    try:
        return _corner(contents, value.shape)
    except UNPRINTABLE as error:
        return f"tensor of shape {shape_text(value.shape)} that cannot be shown ({type(error).__name__})"


def _corner(contents: Any, shape: tuple[int, ...]) -> str:
    corner = contents.detach() if hasattr(contents, "detach") else contents
    if shape and 0 not in shape:
        leading = max(len(shape) - 2, 0)
        window = (slice(0, CORNER),) * (len(shape) - leading)
        corner = corner[(0,) * leading + window]
    shortened = any(size > 1 for size in shape[:-2]) or any(size > CORNER for size in shape[-2:])
    return repr(corner) + ("..." if shortened and 0 not in shape else "")
