"""Tensors and weights out of shapes and files, for a model that is given by name.

Files are read without running anything in them: ``weights_only`` for torch's, no pickles in numpy's.
"""

from __future__ import annotations

import pickle
import random
import struct
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from torcheer.capture.torch.calls import as_tensors
from torcheer.capture.torch.tape import named_tensors
from torcheer.errors import CaptureError, near_misses
from torcheer.units import bytes_text

DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
# What the parsers of damaged and forged files were seen to raise, or say that they raise.
_UNREADABLE = (
    ValueError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error,
    struct.error, LookupError, TypeError, AttributeError, SyntaxError, tokenize.TokenError, ArithmeticError,
    AssertionError, MemoryError, ImportError,
)  # fmt: skip
_FREE_BYTES, _MOST_TIMES = 2**30, 100  # what a file may always unpack to, and else how many times its own size
WRITERS = {".pt": "torch.save", ".pth": "torch.save", ".npy": "numpy.save", ".npz": "numpy.savez"}


class Maker:
    """Makes the inputs of one model: on its device, out of one stream of random numbers."""

    def __init__(self, model: Any, seed: int) -> None:
        self._params = list(model.parameters()) if hasattr(model, "parameters") else []
        self._random = torch.Generator().manual_seed(seed)

    def random(self, shape: tuple[int, ...], dtype: str, below: int | None) -> Any:
        """Random numbers: integers from 0 to below a bound, truth values, and others from 0 to 1."""
        kind = DTYPES.get(dtype)
        if kind is None:
            raise CaptureError(
                f"{dtype!r} is no dtype of PyTorch.{near_misses(dtype, DTYPES) or ' Take float32, int64, bool, …'}"
            )
        if kind.is_floating_point or kind.is_complex:
            if below is not None:
                raise CaptureError(f"{dtype}:{below}: a bound is for integers. Leave it out, or take int64:{below}.")
            source = kind if kind.is_complex or kind.itemsize > 4 else torch.float32
            return self.moved(torch.rand(shape, dtype=source, generator=self._random).to(kind))
        return self.moved(torch.randint(below or 2, shape, generator=self._random).to(kind))

    def read(self, path: Path, key: str | None) -> Any:
        """What is in a file: a tensor, or several by name."""
        found = read_tensors(path)
        if key is not None:
            if not isinstance(found, Mapping) or key not in found:
                names = list(map(str, found)) if isinstance(found, Mapping) else []
                hint = (
                    near_misses(key, names) or f" It has: {', '.join(names[:20]) or 'a single tensor, without names'}."
                )
                raise CaptureError(f"{path} has no tensor {key!r}.{hint}")
            found = found[key]
        return self.moved(found)

    def moved(self, value: Any) -> Any:
        """The same on the model's device; arrays become tensors."""
        return as_tensors(value, self._params)


def read_tensors(path: Path) -> Any:
    """Read a file of tensors, without running anything in it."""
    suffix = path.suffix.lower()
    try:
        # What is odd about a file is an error or nothing: warnings of its parsers name lines of theirs.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_unpacked(path)
            found = _read(path, suffix)
        _check_size(found, path)
        return found
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror or error}. Check the path.") from None
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0].rstrip(" .")[:200] or type(error).__name__
        writer = WRITERS.get(suffix, "safetensors")
        raise CaptureError(
            f"{path} cannot be read as tensors: {reason}. Only tensors and plain containers of them are read, never "
            f"code. Write it with {writer}, with nothing but tensors in it."
        ) from None


def _read(path: Path, suffix: str) -> Any:
    # It takes a moment, and a room that records must load without it.
    import numpy

    if suffix == ".safetensors":
        return load_file(path)
    if suffix in (".pt", ".pth"):
        return torch.load(path, map_location="cpu", weights_only=True)
    with path.open("rb") as file:
        loaded = numpy.load(file, allow_pickle=False)
        return loaded if isinstance(loaded, numpy.ndarray) else dict(loaded)


def _check_unpacked(path: Path) -> None:
    """Raise ``ValueError`` where an archive says that it unpacks to far more than a file of its size should."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _refuse_bomb(sum(entry.file_size for entry in archive.infolist()), path)


def _check_size(found: Any, path: Path) -> None:
    """The same of tensors that show few bytes many times over, which any copy would write out."""
    for _, tensor in named_tensors(found):
        if tensor.layout is torch.strided:
            _refuse_bomb(tensor.numel() * tensor.element_size(), path)


def _refuse_bomb(num_bytes: int, path: Path) -> None:
    size = path.stat().st_size
    if num_bytes > max(_FREE_BYTES, _MOST_TIMES * size):
        raise ValueError(f"its {bytes_text(size)} stand for {bytes_text(num_bytes)}")


def load_weights(model: Any, path: Path) -> None:
    """Set the weights in a file into a model: a state dict, or a checkpoint that holds one."""
    state = read_tensors(path)
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping):
        raise CaptureError(f"{path} holds a {type(state).__name__}, not weights by name. Save model.state_dict().")
    own = model.state_dict()
    missing, surplus = [one for one in own if one not in state], [one for one in state if one not in own]
    other = [name for name in own if name in state and tuple(own[name].shape) != tuple(state[name].shape)]
    if missing or surplus or other:
        parts = [("not in the file", missing), ("not in the model", surplus), ("of another shape", other)]
        told = "; ".join(f"{len(names)} {what}: {', '.join(names[:3])}" for what, names in parts if names)
        raise CaptureError(f"The weights in {path} are not this model's ({told}). Give the model they were saved from.")
    model.load_state_dict(state)


def seed_all(seed: int) -> None:
    """Seed Python, numpy, torch, and Paddle where it is in use."""
    # As above.
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    paddle = sys.modules.get("paddle")
    if paddle is not None:
        paddle.seed(seed)
