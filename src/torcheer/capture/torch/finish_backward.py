"""Adds the ATen calls of a backward pass to a finished record, each under the forward op that caused it."""

from __future__ import annotations

from typing import Any

from torcheer.capture.torch.finish import Finisher
from torcheer.capture.torch.tape import ATEN, CALL, OP, AtenEvent, OpEvent
from torcheer.record.model import Ref


class Owners:
    """Which forward op an autograd node belongs to, also a node made when something was computed again."""

    def __init__(self, finisher: Finisher) -> None:
        self.finisher = finisher
        # Sequence number → the innermost function-level op that made the node.
        ops = finisher.record.ops
        self.of_node = {seq: op.index for op in ops if op.seq is not None for seq in range(*op.seq)}
        self.targets: dict[tuple[int, int], list[int]] = {}  # (number, output of the node) → values
        for value in finisher.record.values:
            if value.node_seq is not None:
                self.targets.setdefault((value.node_seq, value.node_output), []).append(value.index)
        self._turn: dict[Any, list[int]] = {}  # (module, call site) → forward ops there, next one first
        for index, op in finisher.op_of.items():
            event = OpEvent._make(finisher.tape.events[index])
            key = self._key(event)
            if ops[op].site == key[1]:
                self._turn.setdefault(key, []).append(op)

    def match(self, first: int) -> int:
        """Match what was computed again from event ``first`` on to the forward ops. Returns the next event."""
        events = self.finisher.tape.events
        for index in range(first, len(events)):
            raw = events[index]
            if type(raw) is not tuple:
                # A module call that still runs: its event is the module.
                if raw is not None:
                    self.finisher.module_of[index] = id(raw)
            elif raw[0] == CALL:
                self.finisher.module_of[index] = id(raw[1])
            elif raw[0] == OP:
                self._match(index, OpEvent._make(raw))
        return len(events)

    def _match(self, index: int, event: OpEvent) -> None:
        same = self._turn.get(self._key(event))
        if not same or index in self.finisher.op_of:
            return
        owner = self.finisher.op_of[index] = same[0]
        same.append(same.pop(0))
        self.of_node.update(dict.fromkeys(range(event.seq, event.seq_end), owner))
        for item, node in zip(self.finisher.record.ops[owner].outputs, event.nodes, strict=False):
            _, kind, seq, output = node
            self.targets.setdefault((seq, output), []).append(item.value)
            value = self.finisher.record.values[item.value]
            value.requires_grad, value.grad_function = True, value.grad_function or kind.__name__

    def _key(self, event: OpEvent) -> tuple[int | None, int | None]:
        numbers = self.finisher.sites.number
        site = numbers[event.site] if event.site < len(numbers) else None
        return self.finisher.module_of.get(event.call), site


def add_backward_events(finisher: Finisher, first: int, owners: Owners) -> None:
    """Add the ATen calls recorded from event ``first`` on, during a backward pass."""
    for raw in finisher.tape.events[first:]:
        if type(raw) is tuple and raw[0] == ATEN:
            _backward_aten(finisher, AtenEvent(*raw), owners)


def _backward_aten(finisher: Finisher, event: AtenEvent, owners: Owners) -> None:
    if event.owner >= 0:
        finisher.add_aten(event, finisher.op_of.get(event.owner), "recompute")
        return
    owner = leaf = None
    if event.seq is not None and event.seq >= 0:
        owner = owners.of_node.get(event.seq)
    elif event.seq is not None:
        leaf = finisher.values.param_refs.get(Ref(-1 - event.seq))
    op = finisher.add_aten(event._replace(call=-1), owner, "backward")
    if leaf is not None:
        op.params = (leaf, *(param for param in op.params if param != leaf))
