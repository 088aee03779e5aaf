"""What stands on the tape: an event for every op, every ATen call and every module call, and a row for every tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torcheer.capture.torch.kinds import AtenKind

# What stands first in an event, and the fields that follow. Events are plain tuples: making a named tuple
# would cost more than the rest of writing one.
# In place of an event: a tensor the model was given, or returned.
INPUT = -1
OUTPUT = -2

ATEN = 0
OP = 1
CALL = 2


class OpEvent(NamedTuple):
    """A call seen at function level. Its children lie between it and ``end`` on the tape."""

    tag: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    out: Any  # the result, tensors as Ref
    nodes: tuple[Any, ...]  # (Ref, type of the autograd node, its sequence number, output number) per output
    owner: int  # event of the function-level op around it, -1 for none
    call: int  # event of the module call around it
    site: int
    start_ns: int
    end_ns: int
    seq: int
    seq_end: int
    end: int
    error: str | None


class AtenEvent(NamedTuple):
    """A call seen at ATen level."""

    tag: int
    kind: AtenKind
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    out: Any
    owner: int
    call: int
    # Forward, where no function-level op tells it: the next autograd sequence number. Backward: the number of
    # the node that ran it, or for a leaf's node -1 - the leaf's Ref.
    seq: int | None = None
    node: str | None = None  # backward: the type of that node


class CallEvent(NamedTuple):
    """A module call. What happened inside lies between it and ``end`` on the tape."""

    tag: int
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    out: Any
    call: int
    site: int
    start_ns: int
    end_ns: int
    end: int
    training: bool
    error: str | None


class ValueRow(NamedTuple):
    """Metadata of a tensor object when it was first seen."""

    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    dtype: torch.dtype
    device: torch.device
    storage: int | None  # the value that was first seen with this storage
    layout: torch.layout = torch.strided
    size_bytes: int | None = None  # given only where it is not elements × element size
