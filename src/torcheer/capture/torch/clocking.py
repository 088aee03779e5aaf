"""Times of forward and backward: of each module call, each op and each autograd node, cleaned of recording's cost.

The forward's times are on the tape. In the backward pass a hook before and one after each node take the time; nodes
are told apart by autograd's sequence numbers, and no hook is put on a module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from torcheer.capture.torch.backward import BackwardRecorder
from torcheer.capture.torch.events import ATEN, CALL, OP, CallEvent, OpEvent
from torcheer.capture.torch.finite import FiniteMeter
from torcheer.capture.torch.modes import FunctionLevel
from torcheer.capture.torch.private import hide_from_dynamo
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Ref

Tensor = torch.Tensor
LEAF, NODE = 0, 1


class NodeTime(NamedTuple):
    """One evaluation of one autograd node."""

    kind: int  # NODE, or LEAF where a gradient is added to a leaf's
    key: int  # sequence number of the node, or id() of the leaf
    start_ns: int
    end_ns: int
    inside: tuple[int, ...]  # nodes that ran directly inside it (reentrant checkpointing): indices into the nodes
    first: int  # the tape's events that happened during it are events[first:end]
    end: int


class TimedBackward(BackwardRecorder):
    """Records a backward pass with the time of every node.

    ``records`` off: nothing but the times, for repeats. ``finite``: also looks at every gradient.
    """

    records = True
    finite: FiniteMeter | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nodes: list[NodeTime] = []
        self.first_seq = 0  # next sequence number when the last pass began
        # Of nodes being evaluated: when they began, events so far, nodes inside.
        self._open: list[tuple[int, int, list[int]]] = []

    def _hook(self, roots: Any, leaves: list[tuple[Tensor, Ref, bool]]) -> list[Any]:
        self.first_seq = self._first_seq
        return super()._hook(roots, leaves)

    def _hook_node(self, node: Any, seq: int) -> list[Any]:
        # One hook that does both: to register, call and remove one takes as long as what it does.
        begin = partial(self._reached_and_begin, seq) if self.records and self._belongs(seq) else self._begin
        return [node.register_prehook(begin), node.register_hook(partial(self._end, NODE, seq))]

    def _hook_leaf(self, node: Any, variable: Tensor, leaves: list[tuple[Tensor, Ref, bool]]) -> list[Any]:
        handles = super()._hook_leaf(node, variable, leaves) if self.records else []
        handles.append(node.register_prehook(self._begin))
        handles.append(node.register_hook(partial(self._end, LEAF, id(variable))))
        return handles

    def _reached_and_begin(self, seq: int, gradients: tuple[Tensor | None, ...]) -> None:
        self._reached(seq, gradients)
        self._open.append((self.tape.now(), len(self.tape.events), []))

    def _begin(self, _gradients: Any) -> None:
        self._open.append((self.tape.now(), len(self.tape.events), []))

    def _end(self, kind: int, key: int, _inputs: Any, _outputs: Any) -> None:
        end = self.tape.now()
        if not self._open:
            return  # it began before it was hooked
        start, first, inside = self._open.pop()
        if self._open:
            self._open[-1][2].append(len(self.nodes))
        self.nodes.append(NodeTime(kind, key, start, end, tuple(inside), first, len(self.tape.events)))

    def time_of(self, node: NodeTime) -> int:
        """Nanoseconds of a node without the nodes inside it."""
        inside = (self.nodes[index] for index in node.inside)
        return node.end_ns - node.start_ns - sum(one.end_ns - one.start_ns for one in inside)

    def _add(
        self, gradient: Tensor, seq: int | None, output: int, leaf: Any, *, keep: bool, param: str | None = None
    ) -> None:
        super()._add(gradient, seq, output, leaf, keep=keep, param=param)
        if self.finite is not None and param is None:
            self.finite.look_at_gradient(self._now.number, seq, output if seq is not None else int(leaf), gradient)


class TimedLevel(FunctionLevel):
    """Writes the tape as the function level does, and measures what writing each op costs.

    That differs from op to op: finding the call's place walks the stack, which is deep in some models.
    """

    caller = 2

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__(tape, keeper)
        tape.call_costs = {}
        self.costs: dict[int, int] = {}  # event of an op → ns
        self.reads: dict[int, int] = {}  # event of an op or module call → calls in it that only read metadata

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tape = self.tape
        start = tape.host_now()
        events = tape.events
        index = len(events)
        out = super().__torch_function__(func, types, args, kwargs)
        if index == len(events):
            # x.shape and its like are no ops, and cost as much to look at.
            around = tape.op if tape.op >= 0 else tape.call
            self.reads[around] = self.reads.get(around, 0) + 1
        else:
            row = events[index]
            if type(row) is tuple and row[0] == OP:
                self.costs[index] = tape.host_now() - start - (row[10] - row[9])
        return out


@dataclass
class Bias:
    """What recording costs, in nanoseconds."""

    op: float = 0.0  # an op, to whatever is around it
    op_rest: float = 0.0  # the same of one whose cost was measured on the spot: what that does not see
    op_inside: float = 0.0  # an op, within its own time
    call: float = 0.0  # a module call, to whatever is around it
    call_rest: float = 0.0  # the same of one whose cost was measured on the spot
    read: float = 0.0  # a call that only reads metadata
    node: float = 0.0  # an autograd node, within its own time, and again outside of it
    aten: float = 0.0  # an ATen call, to what is around it
    costs: dict[int, int] = field(default_factory=dict)  # measured on the spot: event → ns
    reads: dict[int, int] = field(default_factory=dict)  # event of an op or module call → how many such calls in it


@dataclass
class Stretch:
    """Times of one run: own times by event, cleaned of bias."""

    calls: dict[int, int] = field(default_factory=dict)  # event → ns of its own work
    ops: dict[int, int] = field(default_factory=dict)  # event → ns


def stretch_of(tape: Tape, bias: Bias, first: int, end: int) -> Stretch:
    """Times of the module calls and ops among ``tape.events[first:end]``."""
    events = tape.events
    own: dict[int, float] = {}  # event → own time so far
    around: list[tuple[int, int]] = []  # (end, event) of what is open

    def charge(cost: float) -> None:
        """Take recording's cost from all ops around and from the innermost call: further out that call's time is."""
        for _, event in reversed(around):
            own[event] -= cost
            if events[event][0] == CALL:
                return

    for index in range(first, end):
        raw = events[index]
        while around and around[-1][0] <= index:
            around.pop()
        if type(raw) is not tuple:
            continue
        if raw[0] == ATEN:
            charge(bias.aten + bias.costs.get(index, 0))
        elif raw[0] == OP:
            op = OpEvent._make(raw)
            cost = bias.costs.get(index)
            charge(bias.op if cost is None else bias.op_rest + cost)
            own[index] = op.end_ns - op.start_ns - bias.op_inside
            around.append((op.end, index))
        else:
            call = CallEvent._make(raw)
            whole = call.end_ns - call.start_ns
            cost = bias.costs.get(index)
            charge(whole + (bias.call if cost is None else bias.call_rest + cost))
            own[index] = whole
            around.append((call.end, index))
    for index, num in bias.reads.items():
        if index in own:
            own[index] -= num * bias.read
    found = Stretch()
    for index, spent in own.items():
        (found.calls if events[index][0] == CALL else found.ops)[index] = max(0, round(spent))
    return found


hide_from_dynamo(TimedLevel.__torch_function__)
