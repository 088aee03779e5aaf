"""What the numbers in saved tensors are like: mean, extremes, counts of NaN, Inf and zero, a histogram.

Contents may be tensors of any framework; they are read as NumPy arrays through the methods tensors share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torcheer.history import ModelHistory
from torcheer.record.model import Value

NUM_BINS = 32
COLUMNS = ("mean", "std", "min", "max", "num_elements", "num_nan", "num_inf", "num_zero", "histogram")


def array_of(history: ModelHistory, value: Value) -> np.ndarray[Any, Any] | None:
    """Return a value's contents as real numbers; None where they are not kept or are something else."""
    if value.layout != "strided" or value.device == "meta" or value.dtype.startswith(("complex", "q")):
        return None
    if not history.contents.has(value.index):
        return None
    return numbers_of(history.contents.read(value.index), value.dtype)


def numbers_of(contents: Any, dtype: str) -> np.ndarray[Any, Any] | None:
    """Return a tensor's contents as an array of real numbers; None where they are something else."""
    if dtype.startswith(("complex", "q")):
        return None
    if isinstance(contents, np.ndarray):
        return contents
    contents = contents.detach().cpu()
    # NumPy has no bfloat16 and no 8-bit floats.
    is_plain = dtype in ("float16", "float32", "float64", "bool") or "int" in dtype
    array: np.ndarray[Any, Any] = (contents if is_plain else contents.float()).numpy()
    return array


def describe(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the statistics of an array. Those of finite numbers leave NaN and Inf out; None where there is none."""
    numbers = array.reshape(-1)
    if numbers.dtype == np.float16 or numbers.dtype.kind not in "fiu":
        numbers = numbers.astype(np.float32)
    num_nan = num_inf = 0
    finite = numbers
    # A sum is finite only if all terms are, bar overflow: then they are looked at one by one, as if they were not.
    with np.errstate(over="ignore", invalid="ignore"):
        all_finite = numbers.dtype.kind != "f" or np.isfinite(numbers.sum())
    if not all_finite:
        num_nan = int(np.isnan(numbers).sum())
        num_inf = int(np.isinf(numbers).sum())
        finite = numbers[np.isfinite(numbers)]
    found: dict[str, Any] = dict.fromkeys(COLUMNS)
    found |= {"num_elements": numbers.size, "num_nan": num_nan, "num_inf": num_inf}
    found["num_zero"] = int(numbers.size - np.count_nonzero(numbers))
    if finite.size:
        low, high = finite.min(), finite.max()
        found |= {"min": low.item(), "max": high.item()}
        with np.errstate(over="ignore"):
            found["mean"] = _finite(finite.mean(dtype=np.float64))
            found["std"] = _finite(finite.std(dtype=np.float64))
        found["histogram"] = _counts(finite, float(low), float(high))
    return found


def _finite(number: np.floating[Any]) -> float | None:
    """A number, or None where it is beyond what a float64 holds."""
    return float(number) if np.isfinite(number) else None


def _counts(finite: np.ndarray[Any, Any], low: float, high: float) -> list[int]:
    """Counts in bins of equal width from the smallest to the largest number."""
    width = (high - low) / NUM_BINS
    if not 0 < width < np.inf:  # all equal, or so far apart that their difference overflows
        return [finite.size] + [0] * (NUM_BINS - 1)
    bins = ((finite.astype(np.float64) - low) / width).astype(np.int64)
    counts: list[int] = np.bincount(np.minimum(bins, NUM_BINS - 1), minlength=NUM_BINS).tolist()
    return counts
