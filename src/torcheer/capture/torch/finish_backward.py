"""Adds the ATen calls of a backward pass to a finished record, each under the forward op that caused it."""

from __future__ import annotations

from typing import Any

from torcheer.capture.torch.finish import Finisher
from torcheer.capture.torch.tape import ATEN, CALL, OP, AtenEvent, OpEvent
from torcheer.record.model import Ref


def node_owners(finisher: Finisher) -> dict[int, int]:
    """Autograd sequence number → the innermost function-level op that made the node."""
    return {seq: op.index for op in finisher.record.ops if op.seq is not None for seq in range(*op.seq)}


def add_backward_events(finisher: Finisher, first: int, owners: dict[int, int]) -> None:
    """Add what was recorded from event ``first`` on, during a backward pass."""
    again = _forward_sites(finisher)
    for index in range(first, len(finisher.tape.events)):
        raw = finisher.tape.events[index]
        if type(raw) is not tuple:
            continue
        if raw[0] == CALL:
            finisher.module_of[index] = id(raw[1])
        elif raw[0] == OP:
            event = OpEvent._make(raw)
            key = (finisher.module_of.get(event.call), event.site)
            same = again.get(key, [])
            if same:
                owner = finisher.op_of[index] = same[0]
                same.append(same.pop(0))
                owners.update(dict.fromkeys(range(event.seq, event.seq_end), owner))
        elif raw[0] == ATEN:
            _backward_aten(finisher, AtenEvent(*raw), owners)


def _backward_aten(finisher: Finisher, event: AtenEvent, owners: dict[int, int]) -> None:
    if event.owner >= 0:
        finisher.add_aten(event, finisher.op_of.get(event.owner), "recompute")
        return
    owner = None
    leaf = None
    if event.seq is not None:
        owner = owners.get(event.seq)
        leaf = finisher.values.param_refs.get(Ref(-1 - event.seq)) if event.seq < 0 else None
    op = finisher.add_aten(event._replace(call=-1), owner, "backward")
    if leaf is not None:
        op.params = (leaf, *(param for param in op.params if param != leaf))


def _forward_sites(finisher: Finisher) -> dict[Any, list[int]]:
    """(module, call site) → forward ops there, in order."""
    sites: dict[Any, list[int]] = {}
    for index, op in finisher.op_of.items():
        event = OpEvent._make(finisher.tape.events[index])
        if finisher.record.ops[op].site == event.site:
            sites.setdefault((finisher.module_of.get(event.call), event.site), []).append(op)
    return sites
