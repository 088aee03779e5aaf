"""Outputs of two runs compared without knowing which belongs to which: every one of a kind with every other.

The whole tensor counts, not its first row, and a call that returns several tensors has to agree in all of them. Where
something has no equal on the other side, the nearest is told. Nothing here says where a difference arises.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.leaves import RAW, GroupPair, compare_invoked, names_of
from torcheer.diff.numbers import Distance, Tolerance, distance
from torcheer.diff.side import Recording
from torcheer.errors import ComparisonError, near_or_all
from torcheer.record.model import ModuleCall
from torcheer.record.payload import is_kept
from torcheer.shown import Tables

Marks = Mapping[str, str]  # address of a module → the name it was marked with


class CallOutputs(NamedTuple):
    """What one call of a module returned."""

    name: str  # "features.0", "features.0:2" for its second call, or the name it was marked with
    address: str  # of the module
    call_index: int  # from 1
    arrays: tuple[Array, ...]  # tensors it returned, in order
    is_whole: bool  # whether the contents of all of them were kept


class Nearest(NamedTuple):
    """A call without an equal on the other side, and the one there that comes closest."""

    name: str
    nearest: str  # "" where none there has the same shapes
    distance: Distance | None  # of the tensor that is furthest apart


@dataclass(frozen=True, slots=True)
class OutputsOfKind:
    """Calls of one kind on both sides: which are equal."""

    pair: GroupPair  # the leaf modules they are calls of
    matches: tuple[tuple[str, str], ...]  # names of equal calls, A's and B's
    only_a: tuple[Nearest, ...]  # calls of A that nothing in B equals
    only_b: tuple[Nearest, ...]
    not_kept: tuple[str, ...] = ()  # calls whose contents the recordings do not have

    @property
    def num_mismatches(self) -> int:
        """Calls without an equal, of the side that has more of them."""
        return max(len(self.only_a), len(self.only_b))

    @property
    def is_equal(self) -> bool:
        """Whether every call has its equal."""
        return not self.only_a and not self.only_b


@dataclass(slots=True, repr=False)
class ModuleOutputsComparison(Tables):
    """Outputs of modules of two runs, compared by brute force. True when each has its equal."""

    names: tuple[str, str]  # of the models
    tolerance: Tolerance
    kinds: list[OutputsOfKind] = field(default_factory=list)
    marked_only: bool = False  # marked modules alone were compared
    idle: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # marked, and not called

    def __bool__(self) -> bool:
        return self.num_mismatches == 0 and not any(kind.not_kept for kind in self.kinds)

    @property
    def num_matches(self) -> int:
        """Calls that have an equal."""
        return sum(len(kind.matches) for kind in self.kinds)

    @property
    def num_mismatches(self) -> int:
        """Calls that have none. Of marked modules there may be more on one side: those are no mismatches."""
        if self.marked_only:
            return sum(min(len(kind.only_a), len(kind.only_b)) for kind in self.kinds)
        return sum(kind.num_mismatches for kind in self.kinds)

    def __repr__(self) -> str:
        counts = f"{self.num_matches} match, {self.num_mismatches} do not"
        return f"<outputs of modules of {' and '.join(self.names)}: {counts}>"


@dataclass(slots=True, repr=False)
class FinalOutputsComparison(Tables):
    """What two models returned, or what was picked out of it. True when it is equal."""

    names: tuple[str, str]
    tolerance: Tolerance
    shapes: tuple[list[tuple[int, ...]], list[tuple[int, ...]]]  # of both sides' tensors
    distances: list[Distance | None] = field(default_factory=list)  # by position; None: the shapes differ

    def __bool__(self) -> bool:
        alike = len(self.shapes[0]) == len(self.shapes[1])
        return alike and all(apart is not None and apart.is_equal for apart in self.distances)

    def __repr__(self) -> str:
        return f"<outputs of {' and '.join(self.names)}: {'match' if self else 'differ'}>"


def compare_module_outputs(
    run_a: Recording,
    run_b: Recording,
    tolerance: Tolerance,
    names: tuple[str, str] | None = None,
    *,
    types: Sequence[str] | None = None,
) -> ModuleOutputsComparison:
    """Compare what leaf modules returned, each with all of the same type and attributes; ``types``: of these alone."""
    invoked = compare_invoked(run_a.record, run_b.record, names)
    known = {pair.either.type_name for pair in invoked.pairs if pair.either.type_name != RAW}
    for name in types or ():
        if name not in known:
            raise ComparisonError(
                f"No leaf module of type {name!r} was called in either model.{near_or_all(name, sorted(known))}"
            )
    found = ModuleOutputsComparison(invoked.names, tolerance)
    outputs = (_outputs_by_address(run_a), _outputs_by_address(run_b))
    for pair in invoked.pairs:
        if pair.either.type_name == RAW or (types is not None and pair.either.type_name not in types):
            continue
        both = [
            [call for address in (group.addresses if group else ()) for call in calls[address]]
            for group, calls in zip((pair.a, pair.b), outputs, strict=True)
        ]
        found.kinds.append(match_calls(pair, both[0], both[1], tolerance))
    return found


def compare_marked_outputs(
    run_a: Recording,
    run_b: Recording,
    marks: tuple[Marks, Marks],
    tolerance: Tolerance,
    names: tuple[str, str] | None = None,
) -> ModuleOutputsComparison:
    """Compare what marked modules returned, each of A with each of B, of whatever type; containers too."""
    names = names or names_of(run_a.record, run_b.record)
    both: list[list[CallOutputs]] = []
    idle: list[list[str]] = []
    for run, marked, name in zip((run_a, run_b), marks, names, strict=True):
        if not marked:
            raise ComparisonError(
                f"No module of {name} is marked. Call tl.mark(module, name) or tl.mark_all(model) on both models first."
            )
        outputs = _outputs_by_address(run)
        idle.append([mark for address, mark in marked.items() if address not in outputs])
        if len(idle[-1]) == len(marked):
            raise ComparisonError(
                f"{name} called none of its marked modules: {', '.join(map(repr, idle[-1][:4]))}. "
                "Mark others, or compare on an input that reaches these."
            )
        both.append(
            [
                call._replace(name=marked[address] + (f":{call.call_index}" if len(outputs[address]) > 1 else ""))
                for address in marked
                for call in outputs.get(address, ())
            ]
        )
    kind = match_calls(GroupPair(None, None), both[0], both[1], tolerance)
    return ModuleOutputsComparison(names, tolerance, [kind], marked_only=True, idle=(idle[0], idle[1]))


def compare_final_outputs(
    outputs_a: Sequence[Array], outputs_b: Sequence[Array], tolerance: Tolerance, names: tuple[str, str]
) -> FinalOutputsComparison:
    """Compare what two models returned, tensor by tensor in order."""
    distances = [
        distance(a, b, tolerance) if a.shape == b.shape else None for a, b in zip(outputs_a, outputs_b, strict=False)
    ]
    shapes = ([a.shape for a in outputs_a], [b.shape for b in outputs_b])
    return FinalOutputsComparison(names, tolerance, shapes, distances)


def arrays_in(picked: object, whose: str) -> list[Array]:
    """The tensors that a function picked out of a model's output: one, or several in lists, tuples and dicts."""
    if isinstance(picked, Mapping):
        return [array for item in picked.values() for array in arrays_in(item, whose)]
    if isinstance(picked, (list, tuple)):
        return [array for item in picked for array in arrays_in(item, whose)]
    if isinstance(picked, (numbers.Number, np.ndarray)) or hasattr(picked, "detach"):
        return [as_array(picked)]
    raise ComparisonError(
        f"{whose} returned a {type(picked).__name__}. It has to return a tensor out of the model's output, or several "
        "in a list, tuple or dict."
    )


def match_calls(
    pair: GroupPair, calls_a: Sequence[CallOutputs], calls_b: Sequence[CallOutputs], tolerance: Tolerance
) -> OutputsOfKind:
    """Find for each call of A an equal one of B that no other has taken; the same place in order is tried first."""
    lost = tuple(call.name for call in (*calls_a, *calls_b) if not call.is_whole)
    left_a = [call for call in calls_a if call.is_whole]
    left_b = [call for call in calls_b if call.is_whole]
    matches: list[tuple[str, str]] = []
    unmatched: list[CallOutputs] = []
    for place, call in enumerate(left_a):
        order = sorted(range(len(left_b)), key=lambda at: abs(at + len(matches) - place))
        at = next((at for at in order if _are_equal(call, left_b[at], tolerance)), None)
        if at is None:
            unmatched.append(call)
        else:
            matches.append((call.name, left_b.pop(at).name))
    whole_a, whole_b = ([call for call in side if call.is_whole] for side in (calls_a, calls_b))
    return OutputsOfKind(
        pair,
        tuple(matches),
        tuple(_nearest(call, whole_b, tolerance, is_a=True) for call in unmatched),
        tuple(_nearest(call, whole_a, tolerance, is_a=False) for call in left_b),
        lost,
    )


def _are_equal(a: CallOutputs, b: CallOutputs, tolerance: Tolerance) -> bool:
    if [array.shape for array in a.arrays] != [array.shape for array in b.arrays]:
        return False
    return all(distance(x, y, tolerance).is_equal for x, y in zip(a.arrays, b.arrays, strict=True))


def _nearest(call: CallOutputs, others: Sequence[CallOutputs], tolerance: Tolerance, *, is_a: bool) -> Nearest:
    best: Nearest | None = None
    for other in others:
        if [array.shape for array in call.arrays] != [array.shape for array in other.arrays] or not call.arrays:
            continue
        both = zip(call.arrays, other.arrays, strict=True)
        found = [distance(x, y, tolerance) if is_a else distance(y, x, tolerance) for x, y in both]
        worst = max(found, key=_size)
        if best is None or best.distance is None or _size(worst) < _size(best.distance):
            best = Nearest(call.name, other.name, worst)
    return best or Nearest(call.name, "", None)


def _size(apart: Distance) -> float:
    """NaN on one side alone is further apart than anything."""
    return apart.max_abs if apart.max_abs == apart.max_abs else float("inf")


def _outputs_by_address(run: Recording) -> dict[str, list[CallOutputs]]:
    calls: dict[str, list[ModuleCall]] = {}
    for call in run.record.calls:
        calls.setdefault(run.record.modules[call.module].address, []).append(call)
    return {
        address: [_outputs(run, call, address, several=len(members) > 1) for call in members]
        for address, members in calls.items()
    }


def _outputs(run: Recording, call: ModuleCall, address: str, *, several: bool) -> CallOutputs:
    record, payloads = run
    names = [record.saved.get(item.value) for item in call.outputs]
    kept = [name for name in names if name is not None and is_kept(payloads, name)]
    name = (address or record.run.model) + (f":{call.call_index}" if several else "")
    arrays = tuple(as_array(payloads[one]) for one in kept)
    return CallOutputs(name, address, call.call_index, arrays, len(kept) == len(names))
