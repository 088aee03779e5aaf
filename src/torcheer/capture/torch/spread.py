"""Tensors that are spread over the processes of a run: which part this process has, and how it was cut.

PyTorch's own ``DTensor`` says so; everything else is an ordinary tensor of this process.
"""

from __future__ import annotations

from typing import Any

import torch

from torcheer.record.model import Part

_NAMES = frozenset({"DTensor"})


def is_spread(tensor: Any) -> bool:
    """Is this a DTensor? Told by its class's name, so that torch.distributed is not imported for the question."""
    return any(kind.__name__ in _NAMES for kind in type(tensor).__mro__[:-1]) and hasattr(tensor, "placements")


def part_of(tensor: Any, *, value: int | None = None, param: int | None = None) -> Part:
    """What a DTensor says of itself. No operation runs, and no process is asked."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    return Part(
        value,
        param,
        tuple(int(size) for size in mesh.shape),
        tuple(int(place) for place in coordinate or ()),
        tuple(str(placement) for placement in tensor.placements),
        tuple(int(size) for size in local_of(tensor).shape),
    )


def local_of(tensor: Any) -> torch.Tensor:
    """The tensor of this process behind a DTensor, as it is."""
    with torch.no_grad():
        local: torch.Tensor = tensor.to_local()
    return local


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """What has the memory: of a tensor that is spread over processes this one's part, else the tensor itself."""
    return local_of(tensor) if type(tensor) is not torch.Tensor and is_spread(tensor) else tensor
