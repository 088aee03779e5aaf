"""A divergence confirmed by experiment: B's call is made once more on what A's was given.

It tells a call that differs from a right one that is given something else. Only where both models are at hand and both
calls can be made again from the record; otherwise nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torcheer.diff.align import Alignment
from torcheer.diff.arrays import Array
from torcheer.diff.graph import Graph, Node
from torcheer.diff.half import Candidate
from torcheer.diff.layout import is_close
from torcheer.diff.side import CanReplay
from torcheer.record.model import Op, refs_in

GIVEN_OTHERS = "Confirmed: given A's inputs, B's call gives A's result:"


def confirm(alignment: Alignment, one: Candidate, sides: Sequence[object]) -> str:
    """What B's call gives on A's inputs, in one sentence; "" where that cannot be found out."""
    side_a, side_b = sides
    if one.a is None or one.b is None or one.kind not in ("op", "param"):
        return ""
    if not isinstance(side_a, CanReplay) or not isinstance(side_b, CanReplay):
        return ""
    a, b = alignment.a, alignment.b
    node_a, node_b = a.nodes[one.a], b.nodes[one.b]
    call_a, call_b = node_a.op, node_b.op
    if call_a is None or call_b is None or node_a.is_random or node_b.is_random:
        return ""
    result_a, result_b = _result(a, node_a), _result(b, node_b)
    own, given = _own_inputs(a, call_a), _inputs_of_a(alignment, call_a, call_b)
    if result_a is None or result_b is None or own is None or given is None:
        return ""
    close = alignment.close(node_a.outputs[0])
    again = side_a.replay(call_a, own)
    if again is None or not _same(result_a, again[0]):
        return ""  # the record does not hold all that the call depends on
    returned = side_b.replay(call_b, given)
    if returned is None:
        return ""
    found = returned[0]
    if found.shape == result_b.shape and is_close(result_b, found, close) is not None:
        return "Confirmed: given A's inputs, B's call gives B's result: the call itself differs."
    if found.shape == result_a.shape and is_close(result_a, found, close) is not None:
        return f"{GIVEN_OTHERS} what it was given differs."
    return "Given A's inputs, B's call gives neither side's result: the call differs, and what it was given too."


def _same(wanted: Array, found: Array) -> bool:
    return found.shape == wanted.shape and np.array_equal(found, wanted, equal_nan=found.dtype.kind in "fc")


def _result(graph: Graph, node: Node) -> Array | None:
    value = node.outputs[0] if node.outputs else None
    return graph.array(value) if value is not None and graph.has_contents(value) else None


def _read(call: Op) -> list[int]:
    """The tensors among the arguments, in their order."""
    return [*refs_in(call.args), *refs_in(tuple((call.kwargs or {}).values()))]


def _own_inputs(graph: Graph, call: Op) -> dict[int, Array] | None:
    values = dict.fromkeys(_read(call))
    return {one: graph.array(one) for one in values} if all(map(graph.has_contents, values)) else None


def _inputs_of_a(alignment: Alignment, call_a: Op, call_b: Op) -> dict[int, Array] | None:
    """What A has for each tensor that B's call reads: the same numbers, else what A's call has in its place."""
    a, b = alignment.a, alignment.b
    read_a, read_b = _read(call_a), _read(call_b)
    is_same_call = call_a.function == call_b.function and len(read_a) == len(read_b)
    found: dict[int, Array] = {}
    for place, value in enumerate(read_b):
        shape = b.value(value).shape
        twin = read_a[place] if is_same_call and a.value(read_a[place]).shape == shape else None
        if twin is None or not a.has_contents(twin):
            twin = _counterpart(alignment, value)
        if twin is None:
            return None
        found[value] = a.array(twin)
    return found


def _counterpart(alignment: Alignment, value: int) -> int | None:
    """A value of A with the numbers of one of B's in the same layout."""
    a, b = alignment.a, alignment.b
    match = alignment.by_b.get(b.class_of(value))
    if match is None or not b.has_contents(value):
        return None
    like = [one for one in a.members(match.a) if a.value(one).shape == b.value(value).shape and a.has_contents(one)]
    array, close = b.array(value), alignment.close(match.members[0])
    return next((one for one in like if is_close(a.array(one), array, close) is not None), None)
