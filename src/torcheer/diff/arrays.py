"""Contents of tensors as numpy arrays, whichever framework made them.

numpy has no bfloat16 and computes slowly in float16, so low precision is widened to float32: that changes no number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.record.file_shard import own_part

Array = NDArray[Any]


def as_array(contents: Any) -> Array:
    """Return the elements of a tensor of torch or Paddle, of a numpy array or of a number."""
    if isinstance(contents, np.ndarray):
        array = contents
    elif type(contents).__module__.split(".")[0] == "paddle":
        array = _from_paddle(contents)
    else:
        contents = own_part(contents)
        for step in ("detach", "cpu"):
            if hasattr(contents, step):
                contents = getattr(contents, step)()
        if getattr(contents, "is_quantized", False):
            contents = contents.dequantize()
        if getattr(contents, "is_sparse", False) or str(getattr(contents, "layout", "strided")) != "torch.strided":
            contents = contents.to_dense() if hasattr(contents, "to_dense") else contents
        if "bfloat16" in str(getattr(contents, "dtype", "")) or "float8" in str(getattr(contents, "dtype", "")):
            contents = contents.float() if hasattr(contents, "float") else contents.astype("float32")
        for step in ("resolve_conj", "resolve_neg"):
            if hasattr(contents, step):
                contents = getattr(contents, step)()
        array = contents.numpy() if hasattr(contents, "numpy") else np.asarray(contents)
    return array.astype(np.float32) if array.dtype == np.float16 else np.asarray(array)


def _from_paddle(contents: Any) -> Array:
    """Paddle asks by method what torch has as attributes."""
    contents = contents.detach()
    if not contents.is_dense():
        contents = contents.to_dense()
    if "bfloat16" in str(contents.dtype) or "float8" in str(contents.dtype):
        contents = contents.astype("float32")
    return np.asarray(contents.cpu().numpy())


def for_model(given: Any, param_dtypes: Iterable[object]) -> Array:
    """An array or tensor as an array for a model: numpy's float64 becomes float32 for a float32 model."""
    array = np.asarray(given) if hasattr(given, "__array_interface__") else as_array(given)
    names = {str(dtype).rpartition(".")[2] for dtype in param_dtypes}
    is_single = {name for name in names if "float" in name} == {"float32"}
    return array.astype(np.float32) if is_single and array.dtype == np.float64 else array


def is_float(array: Array) -> bool:
    """Whether two of these may differ by rounding."""
    return array.dtype.kind in "fc"


def precision_of(dtype: str) -> float:
    """Distance of 1 to the next number of a dtype, 0 for what is not rounded."""
    return _PRECISIONS.get(dtype.removeprefix("torch."), 0.0)


_PRECISIONS = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
