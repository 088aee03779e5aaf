"""Puts what was measured into the record: events of memory, what the graph holds, and what was not finite."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import torch

from torcheer.capture.torch.clocking import TimedBackward
from torcheer.capture.torch.events import ATEN, CALL, CallEvent, ValueRow
from torcheer.capture.torch.held import Held
from torcheer.capture.torch.measure import Measurements
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import MemoryEvent, NonFinite, Record, Ref, SavedTensor


def add_measurements(session: TorchSession, done: Measurements, held: list[Held]) -> Record:
    """The session's record with what was measured in it. May be called again after a further backward pass."""
    record = session.record()
    events = session.tape.events
    places = [place for place, raw in enumerate(events) if type(raw) is tuple and raw[0] == ATEN]
    _own_python_backward(session, record, done, places)
    record.held = _held(session, record, held)
    if done.finite is not None:
        record.nonfinite = [
            NonFinite(bisect_left(places, hit.event) - 1, hit.output, hit.facts, hit.inputs) for hit in done.finite.hits
        ]
        _mark_gradients(session, record, done)
    if done.memory is not None:
        _add_memory(session, record, done, places)
    return record


def _own_python_backward(session: TorchSession, record: Record, done: Measurements, places: list[int]) -> None:
    """Calls of an autograd.Function's backward: they belong to the op whose node ran them."""
    of_node = session.owners().of_node if done.nodes else {}
    for event, (seq, name) in done.nodes.items():
        op = record.aten[bisect_left(places, event)]
        if op.phase != "recompute" or op.owner is not None:
            continue
        owner = of_node.get(seq)
        op.phase, op.node, op.owner = "backward", name, owner
        if owner is not None:
            op.call = record.ops[owner].call
            record.ops[owner].aten += (op.index,)


def _held(session: TorchSession, record: Record, held: list[Held]) -> list[SavedTensor]:
    owner = {seq: op.index for op in record.ops if op.seq is not None for seq in range(*op.seq)}
    roles = {value.storage: value.kind for value in record.values if value.kind in ("param", "buffer", "input")}
    number_of = session.finisher.flow.number_of
    found: dict[tuple[int | None, int], SavedTensor] = {}
    for one in held:
        storage = number_of(one.storage)
        op = owner.get(one.seq)
        found[op, storage] = SavedTensor(op, storage, one.size_bytes, roles.get(storage, "activation"))
    return list(found.values())


def _mark_gradients(session: TorchSession, record: Record, done: Measurements) -> None:
    assert done.finite is not None
    targets, finisher = session.owners().targets, session.finisher
    bad: set[tuple[int, int | None, int | None]] = set()  # (backward, value, param)
    for number, seq, output in done.finite.bad_gradients:
        if seq is None:
            bad.add((number, finisher.input_values.get(output), finisher.values.param_refs.get(output)))
        else:
            bad.update((number, value, None) for value in targets.get((seq, output), ()))
    for row in record.gradients:
        row.is_finite = (row.backward, row.value, row.param) not in bad


def _add_memory(session: TorchSession, record: Record, done: Measurements, places: list[int]) -> None:
    meter, tape = done.memory, session.tape
    assert meter is not None
    number_of = session.finisher.flow.number_of
    raw = [(stamp, call, number_of(storage), delta) for stamp, call, storage, delta in _in_place(session, meter.events)]
    gradients = {number_of(storage) for storage in _gradient_storages(session.model, done)}
    states = {number_of(storage) for storage in meter.states}
    kept = {tensor.storage for tensor in record.held}
    stamps = [stamp for stamp, _, _, _ in raw]
    end = bisect_right(stamps, tape.forward_end)
    alive: set[int] = set()
    for _, _, storage, delta in raw[:end]:
        alive.add(storage) if delta > 0 else alive.discard(storage)
    lasting = kept | alive
    record.memory = []
    for place, (stamp, _, storage, delta) in enumerate(raw):
        role = "temporary"
        if storage in states:
            role = "optimizer"
        elif storage in gradients:
            role = "gradient"
        elif storage in lasting and (place < end or delta < 0):
            role = "activation"
        record.memory.append(MemoryEvent(storage, delta, bisect_left(places, stamp) - 1, role))
    for index, event in enumerate(tape.events[: tape.forward_end]):
        if type(event) is tuple and event[0] == CALL:
            call = session.finisher.call_of.get(index)
            if call is not None:
                record.calls[call].memory = _span(raw, stamps, index, CallEvent._make(event).end)


def _in_place(session: TorchSession, events: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """The events as they are in a run that nobody watches.

    Where a mode is on, autograd's engine adds gradients up, and ``linear`` adds its bias, out of place; otherwise into
    the memory of a sum that nobody else needs. That memory is given back right after, so it goes before the new comes.
    """
    tape = session.tape
    recorder = session.backward_recorder
    nodes = recorder.nodes if isinstance(recorder, TimedBackward) else []
    inside = sorted((node.first, node.end) for node in nodes)

    def is_meant(event: int) -> bool:
        raw = tape.events[event]
        if type(raw) is not tuple or raw[0] != ATEN or raw[1].name != "aten.add.Tensor":
            return False
        if event < tape.forward_end:
            owner = tape.events[raw[5]] if raw[5] >= 0 else None
            return type(owner) is tuple and getattr(owner[1], "__name__", "") == "linear"
        before = bisect_right(inside, (event, len(tape.events))) - 1
        # A view's memory may still be held by what it is a view of.
        is_view = not isinstance(raw[2][0], Ref) or _storage_of(tape, raw[2][0]) != raw[2][0]
        return before >= 0 and inside[before][1] <= event and not is_view

    changed = list(events)
    for place, (stamp, _, _, delta) in enumerate(events):
        if delta <= 0 or not 0 < stamp <= len(tape.events) or not is_meant(stamp - 1):
            continue
        following = place + 1
        while following < len(events) and events[following][0] == stamp:
            if events[following][3] == -delta:
                changed.insert(place, changed.pop(following))
                break
            following += 1
    return changed


def _storage_of(tape: Tape, ref: int) -> int | None:
    row = tape.values[ref]
    return row.storage if isinstance(row, ValueRow) else row[5]


def _span(raw: list[tuple[int, int, int, int]], stamps: list[int], index: int, end: int) -> tuple[int, int]:
    """Which events fell into a call. At its very end, those that came after it are told by the call then open."""
    first = bisect_left(stamps, index + 1)
    last = bisect_right(stamps, end)
    while last > first and raw[last - 1][0] == end and raw[last - 1][1] < index:
        last -= 1
    return first, last


def _gradient_storages(model: Any, done: Measurements) -> set[int]:
    if not isinstance(model, torch.nn.Module) or done.memory is None:
        return set()
    numbers = (done.memory.number_at(param.grad) for param in model.parameters())
    return {number for number in numbers if number is not None}
