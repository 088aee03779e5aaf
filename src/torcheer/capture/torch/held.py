"""What an autograd graph holds for the backward pass: tensors by node, read without unpacking them.

Unpacking would run the user's hooks, which for a checkpoint compute a part of the model again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from torcheer.capture.torch.private import packed_tensors, storage_id
from torcheer.capture.torch.spread import own_part
from torcheer.capture.torch.tape import Tape

Tensor = torch.Tensor
LEAF_SEQ = 1 << 63  # nodes that add to a leaf's gradient have a sequence number above it; nobody else does


class Held(NamedTuple):
    """A tensor that a node holds."""

    seq: int  # sequence number of the node
    storage: int  # number of its storage on the tape; below -1 for one the tape has not seen
    size_bytes: int  # of its storage


def nodes_below(roots: Iterable[Any]) -> Iterator[Any]:
    """Every autograd node that leads to these tensors, each once."""
    seen: set[Any] = set()
    stack = [root.grad_fn for root in roots if root.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(following for following, _ in node.next_functions if following is not None)


def held_by(roots: Iterable[Tensor], tape: Tape) -> list[Held]:
    """What the graph below these tensors holds, right after the forward pass."""
    found: list[Held] = []
    unseen: dict[int, int] = {}
    for node in nodes_below(roots):
        seq = node._sequence_nr()
        if seq >= LEAF_SEQ:
            continue
        for tensor in map(own_part, packed_tensors(node)):
            try:
                address = storage_id(tensor)
                number = tape.storages.get(address)
                storage = unseen.setdefault(address, -2 - len(unseen)) if number is None else int(number)
                found.append(Held(seq, storage, tensor.untyped_storage().nbytes()))
            except (RuntimeError, NotImplementedError):
                continue  # sparse: it has no storage to see
    return found
