"""What the numbers in one tensor of a recording are like: statistics, a histogram, and pictures of its planes.

A page asks for one tensor at a time, so that opening a recording reads none.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from torcheer.errors import LookupKeyError, NotSavedError, RecordFileError
from torcheer.history import ModelHistory
from torcheer.views.statistics import array_of, describe

MOST_PLANES = 24
MOST_PIXELS = 96  # on a side; larger planes are shown by every nth row and column
LEAST_PIXELS = 4
Array = np.ndarray[Any, Any]


def build(history: ModelHistory, value: int) -> dict[str, Any]:
    """Return what there is to show of a tensor, or the reason why there is nothing."""
    if not 0 <= value < len(history.record.values):
        raise LookupKeyError(f"There is no tensor {value}. Give a number from 0 to below {len(history.record.values)}.")
    nothing = {"value": value, "statistics": None, "planes": None}
    try:
        array = array_of(history, history.record.values[value])
    except (NotSavedError, RecordFileError) as error:
        return {**nothing, "reason": str(error)}
    if array is None:
        kept = history.contents.has(value)
        reason = "Its contents are not plain real numbers." if kept else history.contents.why_not(value) or "Not saved."
        return {**nothing, "reason": reason}
    return {"value": value, "statistics": describe(array), "planes": planes_of(array), "reason": None}


def planes_of(array: Array) -> dict[str, Any] | None:
    """Return the last two dimensions as pictures, of the first sample; None for what would be no picture."""
    if array.ndim < 2 or min(array.shape[-2:]) < LEAST_PIXELS or array.size == 0:
        return None
    while array.ndim > 3:
        array = array[0]
    planes = array if array.ndim == 3 else array[None]
    what = "plane" if len(planes) == 1 else "channel"
    height, width = planes.shape[-2:]
    if what == "channel" and height == width and planes.shape[0] <= MOST_PLANES and _sums_to_one(planes):
        what = "attention head"
    shown = planes[:MOST_PLANES, :: _stride(height), :: _stride(width)].astype(np.float64)
    finite = shown[np.isfinite(shown)]
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    scaled = (np.nan_to_num(shown, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    pixels = (scaled * 255).round().astype(np.uint8)
    return {
        "what": what,
        "num": int(planes.shape[0]),
        "width": int(pixels.shape[2]),
        "height": int(pixels.shape[1]),
        "low": low,
        "high": high,
        "planes": [base64.b64encode(plane.tobytes()).decode("ascii") for plane in pixels],
    }


def _stride(size: int) -> int:
    return -(-size // MOST_PIXELS)


def _sums_to_one(planes: Array) -> bool:
    """Whether rows are shares, as those of attention are."""
    rows = planes[0].astype(np.float64)
    return bool((rows >= 0).all() and np.allclose(rows.sum(-1), 1, atol=1e-3))
