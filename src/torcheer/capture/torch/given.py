"""Tensors and weights out of shapes and files, for a model that is given by name.

Files are read without running anything in them: ``weights_only`` for torch's, no pickles in numpy's.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from torcheer.capture.torch.calls import as_tensors
from torcheer.errors import CaptureError, near_misses

DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
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
    # It takes a moment, and a room that records must load without it.
    import numpy

    suffix = path.suffix.lower()
    try:
        if suffix == ".safetensors":
            return load_file(path)
        if suffix in (".pt", ".pth"):
            return torch.load(path, map_location="cpu", weights_only=True)
        loaded = numpy.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, numpy.ndarray) else dict(loaded)
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror or error}. Check the path.") from None
    except (ValueError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        writer = WRITERS.get(suffix, "safetensors")
        raise CaptureError(
            f"{path} cannot be read as tensors: {reason} Only tensors and plain containers of them are read, never "
            f"code. Write it with {writer}, with nothing but tensors in it."
        ) from None


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
