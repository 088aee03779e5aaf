"""Which module call of one run is which of the other.

Calls of modules whose parameters are mapped to one another go together; modules without any go together by kind, in
order of their calls. What cannot be told is left out, and not compared rather than compared with the wrong one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.param_map import ParamMap
from torcheer.diff.side import Recording
from torcheer.record.model import Frame, Item, ModuleCall, Record
from torcheer.record.payload import is_kept

Stack = tuple[Frame, ...]


@dataclass(slots=True)
class StepPair:
    """One call of a module on each side."""

    run_a: Recording
    run_b: Recording
    call_a: ModuleCall
    call_b: ModuleCall

    def tensors(self, stage: str) -> list[tuple[Array, Array]]:
        """Their outputs, or the gradients of these; none where either side did not keep them."""
        return self._both(self.call_a.outputs, self.call_b.outputs, stage)

    def inputs(self, stage: str) -> list[tuple[Array, Array]]:
        """The tensors they were given, or the gradients of these."""
        return self._both(self.call_a.inputs, self.call_b.inputs, stage)

    def one_sided(self) -> tuple[Array | None, Array | None] | None:
        """The gradient of an output that one side has and the other has not."""
        for item_a, item_b in zip(self.call_a.outputs, self.call_b.outputs, strict=False):
            a, b = _contents(self.run_a, item_a, "backward"), _contents(self.run_b, item_b, "backward")
            if (a is None) != (b is None):
                return a, b
        return None

    def outputs_of_a(self) -> list[Array]:
        """What A's call returned."""
        found = (_contents(self.run_a, item, "forward") for item in self.call_a.outputs)
        return [array for array in found if array is not None]

    def _both(self, items_a: tuple[Item, ...], items_b: tuple[Item, ...], stage: str) -> list[tuple[Array, Array]]:
        in_a = [array for item in items_a if (array := _contents(self.run_a, item, stage)) is not None]
        in_b = [array for item in items_b if (array := _contents(self.run_b, item, stage)) is not None]
        return list(zip(in_a, in_b, strict=True)) if len(in_a) == len(in_b) else []

    @property
    def net_ids(self) -> tuple[int, int]:
        """Positions of the modules in their models."""
        return self.call_a.module, self.call_b.module

    @property
    def types(self) -> tuple[str, str]:
        """Their classes."""
        modules_a, modules_b = self.run_a.record.modules, self.run_b.record.modules
        return modules_a[self.call_a.module].qualified_type, modules_b[self.call_b.module].qualified_type

    @property
    def addresses(self) -> tuple[str, str]:
        """Their addresses."""
        return _address(self.run_a.record, self.call_a), _address(self.run_b.record, self.call_b)


def pair_steps(run_a: Recording, run_b: Recording, found: ParamMap) -> list[StepPair]:
    """Pairs of calls, in the order in which A's ended."""
    twin = _twins(found)
    num_calls_a = Counter(call.module for call in run_a.record.calls)
    calls_b: dict[str, list[ModuleCall]] = {}
    for call in run_b.record.calls:
        calls_b.setdefault(_address(run_b.record, call), []).append(call)
    pairs: list[StepPair] = []
    for call in run_a.record.calls:
        address = _address(run_a.record, call)
        other = "" if address == "" else twin.get(address)
        candidates = calls_b.get(other, []) if other is not None else []
        if len(candidates) != num_calls_a[call.module] and not _same_kind(run_a, run_b, call, candidates):
            continue  # a cell called once per position, and a layer called once for all
        if call.call_index <= len(candidates):
            pairs.append(StepPair(run_a, run_b, call, candidates[call.call_index - 1]))
    pairs += _plain_pairs(run_a, run_b)
    return sorted(pairs, key=lambda pair: (pair.call_a.end_op, -pair.call_a.depth))


def _same_kind(run_a: Recording, run_b: Recording, call: ModuleCall, candidates: Sequence[ModuleCall]) -> bool:
    kind = _kind(run_a.record, call)
    return all(_kind(run_b.record, other) == kind for other in candidates)


def _kind(record: Record, call: ModuleCall) -> str:
    return re.sub(r"\W|_", "", record.modules[call.module].type_name).lower()


def _twins(found: ParamMap) -> dict[str, str]:
    """Leaf modules of A and of B whose tensors correspond one to one."""
    if found.layers:
        return dict(found.layers)
    twin: dict[str, str] = {}
    for pair in found.pairs:
        if len(pair.pieces) == 1 and pair.pieces[0].start is None:
            twin.setdefault(_module_of(pair.pieces[0].source), _module_of(pair.target))
    return twin


def replaced(run_a: Recording, run_b: Recording, pairs: Sequence[StepPair]) -> list[StepPair]:
    """Calls at one address of leaf modules without tensors that are of two kinds, as an average for a maximum.

    They may do the same under two names, or other things in models that do the same: suspects, where something differs
    already, and no evidence by themselves.
    """
    paired = {pair.call_a.index for pair in pairs}, {pair.call_b.index for pair in pairs}
    others = {
        (_address(run_b.record, call), call.call_index): call
        for call in _plain_calls(run_b.record)
        if call.index not in paired[1]
    }
    return [
        StepPair(run_a, run_b, call, other)
        for call in _plain_calls(run_a.record)
        if call.index not in paired[0]
        and (other := others.get((_address(run_a.record, call), call.call_index))) is not None
    ]


def _plain_calls(record: Record) -> Iterator[ModuleCall]:
    """Calls of leaf modules without tensors."""
    parents = {module.parent for module in record.modules}
    for call in record.calls:
        if call.module not in parents and not record.modules[call.module].params and call.parent is not None:
            yield call


def _plain_pairs(run_a: Recording, run_b: Recording) -> Iterator[StepPair]:
    """Calls of leaf modules without tensors, by kind and order, for the kinds called as often on both sides."""
    by_kind: dict[str, tuple[list[ModuleCall], list[ModuleCall]]] = {}
    for side, run in enumerate((run_a, run_b)):
        for call in _plain_calls(run.record):
            by_kind.setdefault(_kind(run.record, call), ([], []))[side].append(call)
    for in_a, in_b in by_kind.values():
        if len(in_a) == len(in_b):
            for call_a, call_b in zip(in_a, in_b, strict=True):
                yield StepPair(run_a, run_b, call_a, call_b)


def stack_of(record: Record, call: ModuleCall) -> Stack:
    """The source lines that led to a module call, the model's forward first."""
    frames: Stack = ()
    at: ModuleCall | None = call
    while at is not None:
        if at.site is not None:
            frames = record.sites[at.site].frames + frames
        at = record.calls[at.parent] if at.parent is not None else None
    return frames


def _contents(run: Recording, item: Item, stage: str) -> Array | None:
    record, payloads = run
    if stage == "forward":
        name = record.saved.get(item.value)
    else:
        name = next((g.payload for g in reversed(record.gradients) if g.value == item.value), None)
    if name is None or not is_kept(payloads, name):
        return None
    array = as_array(payloads[name])
    return array if array.dtype.kind in "fc" else None


def _address(record: Record, call: ModuleCall) -> str:
    return record.modules[call.module].address


def _module_of(address: str) -> str:
    return address.rsplit(".", 1)[0] if "." in address else ""
