"""Adds backward passes to a finished record: ATen calls, times and gradients under the forward ops they belong to.

What a backward pass computes again (checkpointing) is matched to the forward op at the same call site of the same
module.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torcheer.capture.torch.events import ATEN, CALL, OP, AtenEvent, OpEvent
from torcheer.capture.torch.finish import Finisher
from torcheer.record.model import Gradient, Part, Ref


class GradientRow(NamedTuple):
    """A gradient as it was seen: of an output of a node, or of a leaf."""

    seq: int | None  # sequence number of the node; None for a leaf
    output: int  # which output of the node
    leaf: Ref | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    size_bytes: int | None
    name: str | None  # of its contents in the payload store
    param: str | None = None  # address of the param it is of, where no leaf of the graph is that param
    part: Part | None = None  # what this process has of it, where it is spread over several


@dataclass
class BackwardPass:
    """One backward pass on the tape: its events are ``tape.events[first:end]``."""

    number: int
    first: int
    end: int = 0
    gradients: list[GradientRow] = field(default_factory=list)
    node_times: dict[int, int] = field(default_factory=dict)  # sequence number → ns


class Owners:
    """Which forward op an autograd node belongs to, also a node made when something was computed again."""

    def __init__(self, finisher: Finisher) -> None:
        self.finisher = finisher
        # Sequence number → the innermost function-level op that made the node.
        ops = finisher.record.ops
        self.of_node = {seq: op.index for op in ops if op.seq is not None for seq in range(*op.seq)}
        self._fill_gaps(finisher)
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

    def _fill_gaps(self, finisher: Finisher) -> None:
        """Nodes that no op was seen to make, as of an ``apply`` the user's code took hold of before the run.

        A Function's node is made just before what its forward does, which makes no nodes. Others were made during, or
        right after, the last op that began before them.
        """
        tape = finisher.tape
        missing = [seq for seq in range(tape.first_seq, tape.last_seq) if seq not in self.of_node]
        if not missing:
            return
        events = ((OpEvent._make(tape.events[index]), op) for index, op in finisher.op_of.items())
        began = sorted((event.seq, event.seq_end, op) for event, op in events)
        for seq in missing:
            place = bisect_right(began, seq, key=lambda start: start[0])
            if place < len(began) and began[place][:2] == (seq + 1, seq + 1):
                self.of_node[seq] = began[place][2]
            elif place:
                self.of_node[seq] = began[place - 1][2]

    def match(self, first: int, end: int) -> None:
        """Match what was computed again in a range of events to the forward ops."""
        for index in range(first, end):
            raw = self.finisher.tape.events[index]
            if type(raw) is not tuple:
                continue
            if raw[0] == CALL:
                self.finisher.module_of[index] = id(raw[1])
            elif raw[0] == OP:
                self._match(index, OpEvent._make(raw))

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


def add_backward(finisher: Finisher, owners: Owners, done: BackwardPass) -> None:
    """Add one backward pass to the record."""
    record = finisher.record
    record.run.num_backward = done.number
    owners.match(done.first, done.end)
    for raw in finisher.tape.events[done.first : done.end]:
        if type(raw) is tuple and raw[0] == ATEN:
            _backward_aten(finisher, AtenEvent(*raw), owners)
    record.parts += finisher.new_parts()
    totals: dict[int, int] = {}
    for seq, time_ns in done.node_times.items():
        owner = owners.of_node.get(seq)
        if owner is not None:
            totals[owner] = totals.get(owner, 0) + time_ns
    for owner, time_ns in totals.items():
        record.ops[owner].backward_time_ns = time_ns
    for row in done.gradients:
        found = _gradients(finisher, owners, done.number, row)
        if row.part is not None:
            first = len(record.gradients)
            record.parts += [row.part._replace(gradient=place) for place in range(first, first + len(found))]
        record.gradients += found


def _gradients(finisher: Finisher, owners: Owners, number: int, row: GradientRow) -> list[Gradient]:
    facts = (tuple(row.shape), sys.intern(str(row.dtype).removeprefix("torch.")), row.size_bytes)
    if row.param is not None:
        params = finisher.record.params
        return [Gradient(number, None, p, *facts, row.name) for p, one in enumerate(params) if one.address == row.param]
    if row.leaf is not None:
        param = finisher.values.param_refs.get(row.leaf)
        if param is not None:
            return [Gradient(number, None, param, *facts, row.name)]
        values = [finisher.input_values[row.leaf]] if row.leaf in finisher.input_values else []
    else:
        values = owners.targets.get((row.seq or 0, row.output), [])
    saved = finisher.record.saved
    return [Gradient(number, value, None, *facts, row.name if value in saved else None) for value in values]


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
