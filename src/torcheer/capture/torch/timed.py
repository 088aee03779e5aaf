"""Times for the record: of timed runs without the ATen level, or of the measured run itself.

A timed run makes the same module calls, ops and autograd nodes as the measured one, so they are matched by order:
events of the tapes one by one, nodes by the distance of their sequence numbers from the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from torcheer.capture.torch.calibrate import calibrate
from torcheer.capture.torch.clocking import LEAF, Bias, NodeTime, Stretch, TimedBackward, TimedLevel, stretch_of
from torcheer.capture.torch.device_clock import DeviceClock
from torcheer.capture.torch.events import CALL, OP
from torcheer.capture.torch.private import OpOverload, OpOverloadPacket
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Op, Record, Timing

Key = tuple[str, int, str]  # kind, target, phase, as in Timing


class PathError(Exception):
    """A timed run took another path than the measured one."""


@dataclass
class Marks:
    """A session's tape with the numbers that its autograd nodes are told by."""

    tape: Tape
    recorder: TimedBackward

    @classmethod
    def of(cls, session: TorchSession) -> Marks:
        recorder = session.backward_recorder
        assert isinstance(recorder, TimedBackward)
        return cls(session.tape, recorder)


class Matcher:
    """Turns the tape of a run into times of the measured run's record."""

    def __init__(self, session: TorchSession) -> None:
        self.session = session
        self.marks = Marks.of(session)
        self.record: Record = session.record()
        finisher = session.finisher
        self.op_of, self.call_of = finisher.op_of, finisher.call_of
        self.of_node = session.owners().of_node
        model = session.model
        self.modules = frozenset(map(id, model.modules())) if hasattr(model, "modules") else frozenset()
        self.forward = _outline(session.tape, 0, session.tape.forward_end, self.modules)
        self.backward = _outline(session.tape, session.tape.forward_end, len(session.tape.events), self.modules)
        self.leaf_calls = self._leaf_calls()

    def _leaf_calls(self) -> dict[int, Op]:
        """id() of a param → the first op that reads it."""
        readers: dict[int, Op] = {}
        for op in self.record.ops:
            for param in op.params:
                readers.setdefault(param, op)
        model = self.session.model
        named = dict(model.named_parameters(remove_duplicate=False)) if hasattr(model, "named_parameters") else {}
        return {
            id(named[param.address]): readers[index]
            for index, param in enumerate(self.record.params)
            if index in readers and param.address in named
        }

    def times(self, run: Marks, bias: Bias) -> Counter[Key]:
        """Nanoseconds by what they belong to, of one run."""
        found: Counter[Key] = Counter()
        tape = run.tape
        self._forward(found, run, bias)
        places = self._places(run, self.backward, tape.forward_end, len(tape.events))
        for node in run.recorder.nodes:
            self._node(found, run, bias, node, places)
        self._engine(found, run, bias)
        found["run", 0, "all"] = sum(spent for key, spent in found.items() if key[0] == "call" or key[2] == "engine")
        return found

    # -- forward -------------------------------------------------------------------------------------

    def _forward(self, found: Counter[Key], run: Marks, bias: Bias) -> None:
        places = self._places(run, self.forward, 0, run.tape.forward_end)
        stretch = stretch_of(run.tape, bias, 0, run.tape.forward_end)
        for event, spent in stretch.calls.items():
            call = self.call_of.get(places[event])
            if call is not None:
                found["call", call, "forward"] += spent
        for event, spent in stretch.ops.items():
            op = self.op_of.get(places[event])
            if op is not None:
                found["op", op, "forward"] += spent

    def _places(self, run: Marks, outline: list[tuple[Any, int]], first: int, end: int) -> dict[int, int]:
        """Event of the run → event of the measured run. The measured tape may have more, where no kernel ran."""
        if run.tape is self.session.tape:
            return {event: event for _, event in outline}
        places: dict[int, int] = {}
        position = 0
        for what, event in _outline(run.tape, first, end, self.modules):
            found = _found(outline, position, what)
            is_operator = isinstance(run.tape.events[event][1], (OpOverload, OpOverloadPacket))
            if is_operator and found != position:
                # A tensor subclass (DTensor) called it, which the measured run saw at the ATen level.
                continue
            if found is None:
                raise PathError
            places[event] = outline[found][1]
            position = found + 1
        return places

    def bring_to(self, runs: list[Counter[Key]], plain_ns: float) -> None:
        """Take off what the runs' forward takes beyond one that nobody records: from each op and call the same.

        What recording costs where it cannot be measured on the spot (caches, the interpreter's own work) is left in
        the times, and is a matter of how many ops and calls there are.
        """
        owns = {
            key[1]: median(run[key] for run in runs) for key in _keys(runs) if key[0] == "call" and _is_forward(key)
        }
        weights = Counter(list(owns))
        weights.update(op.call for op in self.record.ops if op.call in owns and op.owner is None)
        left = dict(owns)
        open_calls = set(left)
        excess_ns = sum(owns.values()) - plain_ns
        while excess_ns > 1 and open_calls:
            share = excess_ns / sum(weights[call] for call in open_calls)
            for call in list(open_calls):
                cut = min(left[call], share * weights[call])
                left[call] -= cut
                excess_ns -= cut
                if left[call] <= 0:
                    open_calls.discard(call)
        for run in runs:
            for key in [key for key in run if _is_forward(key)]:
                call = key[1] if key[0] == "call" else self.record.ops[key[1]].call
                before = run[key]
                if owns.get(call):
                    run[key] = round(before * left[call] / owns[call])
                if key[0] == "call":
                    run["run", 0, "all"] += run[key] - before

    # -- backward ------------------------------------------------------------------------------------

    def _owner(self, run: Marks, seq: int) -> tuple[Op | None, bool]:
        """The forward op of a node, and whether the node is the model's at all."""
        tape, mine = run.tape, self.marks
        if tape.first_seq <= seq < tape.last_seq:
            seq += mine.tape.first_seq - tape.first_seq
            is_model = True
        elif seq >= run.recorder.first_seq:
            seq += mine.recorder.first_seq - run.recorder.first_seq
            is_model = seq in self.of_node
        else:
            return None, False
        owner = self.of_node.get(seq)
        return (None if owner is None else self.record.ops[owner]), is_model

    def _node(self, found: Counter[Key], run: Marks, bias: Bias, node: NodeTime, places: dict[int, int]) -> None:
        op, is_model = (self.leaf_calls.get(node.key), False) if node.kind == LEAF else self._owner(run, node.key)
        spent = run.recorder.time_of(node) - bias.node
        stretch = stretch_of(run.tape, bias, node.first, node.end)
        spent -= self._again(found, run, stretch, node, op, places)
        if not stretch.calls and not stretch.ops:
            spent -= sum(bias.aten + bias.costs.get(event, 0) for event in range(node.first, node.end))
        nanoseconds = max(0, round(spent))
        phase = "accumulate" if node.kind == LEAF else "backward"
        if op is not None:
            found["call", op.call, phase] += nanoseconds
            found["op", op.index, phase] += nanoseconds
        else:
            found["run", 0, "unattributed" if is_model else "outside"] += nanoseconds

    def _again(
        self, found: Counter[Key], run: Marks, stretch: Stretch, node: NodeTime, op: Op | None, places: dict[int, int]
    ) -> float:
        """Book what was computed again during a node (checkpointing); return the wall time of it."""
        if not stretch.calls and not stretch.ops:
            return 0.0
        events = run.tape.events
        wall, known, past = 0.0, 0, node.first
        for event in sorted((*stretch.calls, *stretch.ops)):
            if event >= past:
                row = events[event]
                start, end, past = (row[9], row[10], row[13]) if row[0] == OP else (row[7], row[8], row[9])
                wall += end - start
            if event in stretch.ops:
                target = self.op_of.get(places.get(event, -1))
                if target is not None:
                    owner = self.record.ops[target]
                    found["op", target, "recompute"] += stretch.ops[event]
                    found["call", owner.call, "recompute"] += stretch.ops[event]
                    known += stretch.ops[event]
        rest = max(0, sum(stretch.calls.values()) + sum(stretch.ops.values()) - known) if not stretch.calls else 0
        if op is not None and rest:
            # Where nothing of the forward pass comes again, the backward itself is Python: a Function's, a DTensor's.
            found["call", op.call, "recompute" if known else "backward"] += rest
        return wall

    def _engine(self, found: Counter[Key], run: Marks, bias: Bias) -> None:
        """What lies between nodes: adding up gradients, and going from one to the next."""
        nodes = run.recorder.nodes
        if not nodes:
            return
        inside = sum(map(run.recorder.time_of, nodes))
        whole = max(node.end_ns for node in nodes) - min(node.start_ns for node in nodes)
        found["run", 0, "engine"] += max(0, round(whole - inside - bias.node * len(nodes)))


def _outline(tape: Tape, first: int, end: int, modules: frozenset[int]) -> list[tuple[Any, int]]:
    """Ops and module calls in order, by what they are of. ``modules``: id() of those that outlive a run."""
    return [
        ((raw[0], id(raw[1]) if id(raw[1]) in modules else _name(raw[1])), event)
        for event, raw in enumerate(tape.events[first:end], start=first)
        if type(raw) is tuple and raw[0] in (OP, CALL)
    ]


def _found(outline: list[tuple[Any, int]], position: int, what: Any) -> int | None:
    """Where this comes next in an outline, without passing over a module call."""
    while position < len(outline) and outline[position][0] != what:
        if outline[position][0][0] == CALL:
            return None
        position += 1
    return position if position < len(outline) else None


def _name(function: Any) -> str:
    """Functions, and modules that a forward makes for itself (a loss), are other objects in the next run."""
    return getattr(function, "__name__", None) or type(function).__name__


def _keys(runs: list[Counter[Key]]) -> dict[Key, None]:
    return dict.fromkeys(key for run in runs for key in run)


def _is_forward(key: Key) -> bool:
    return key[0] != "run" and key[2] == "forward"


def timings_of(runs: list[Counter[Key]]) -> list[Timing]:
    """Medians over the runs, for the record."""
    rows = []
    for kind, target, phase in _keys(runs):
        samples = sorted(run[kind, target, phase] for run in runs)
        rows.append(
            Timing(kind, target, phase, round(median(samples)), samples[0], _between_quartiles(samples), len(samples))
        )
    return rows


def _between_quartiles(samples: list[int]) -> int:
    if len(samples) < 2:
        return 0
    return samples[(3 * (len(samples) - 1) + 2) // 4] - samples[(len(samples) - 1) // 4]


def with_costs(bias: Bias, session: TorchSession, costs: dict[int, int] | None = None) -> Bias:
    """The bias with what was measured on the spot in this run."""
    level = session.function_level
    if not isinstance(level, TimedLevel):
        return replace(bias, costs=costs or {})
    return replace(bias, costs={**(costs or {}), **level.costs, **(session.tape.call_costs or {})}, reads=level.reads)


def times_of_the_run(session: TorchSession, costs: dict[int, int], clock: DeviceClock | None) -> list[Timing]:
    """Times of the measured run itself, what measuring cost subtracted."""
    own = Bias()
    if clock is None:
        own = with_costs(calibrate(), session, costs)
    else:
        clock.settle(session.tape, Marks.of(session).recorder.nodes)
    matcher = Matcher(session)
    return timings_of([matcher.times(matcher.marks, own)])
