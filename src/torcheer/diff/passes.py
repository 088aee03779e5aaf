"""A loop over positions or chunks against the same done at once: the passes of the loop, joined, are the one value.

Both ways round. What a loop carries from pass to pass need not have a counterpart; what each pass computes by itself
has one here, and so is not taken for a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.graph import Graph
from torcheer.diff.layout import Close, Found, find_layout
from torcheer.diff.sketch import Sketch, Sketches

JOINED = "passes joined"  # so begins the layout of such a match
_FEWEST = 8  # elements of all passes together; fewer agree by chance
_MOST_COMPARED = 4  # values of one sketch that are compared in full


class Joined(NamedTuple):
    """A value and the passes of a loop that make it up."""

    passes: list[int]  # classes of the side that loops, in order
    whole: int  # class of the other side
    found: Found


def find_joined(
    loops: Graph, sketches: dict[int, Sketch], others: Graph, candidates: dict[int, Sketch], close: Close
) -> Iterator[Joined]:
    """The values among the candidates that are all passes of a loop of the other run, joined."""
    table = Sketches(candidates)
    for group in _groups(loops, sketches) if candidates else ():
        wanted = _join_sketches([sketches[cls] for cls in group])
        for whole in table.like(wanted, close.rms)[:_MOST_COMPARED]:
            if candidates[whole].num != wanted.num:
                continue
            array = _contents(others, whole)
            for joined in _joins([_contents(loops, cls) for cls in group]):
                found = find_layout(joined, array, close)
                if found is not None:
                    yield Joined(group, whole, Found(f"{JOINED}, {found.layout}", found.error))
                    break


def _groups(graph: Graph, sketches: dict[int, Sketch]) -> Iterator[list[int]]:
    """Classes that the passes of one call site make, each ATen call by itself: of one module call, and of all."""
    record, seen = graph.record, set()
    for layer in record.layers:
        if len(layer.ops) < 2:
            continue
        by_call: dict[int, list[int]] = {}
        for op in layer.ops:
            by_call.setdefault(record.ops[op].call, []).append(op)
        for ops in [*by_call.values(), list(layer.ops)]:
            rows = [_made(graph, op) for op in ops]
            if len(ops) < 2 or len({len(row) for row in rows}) != 1:
                continue
            for group in zip(*rows, strict=True):
                is_new = group not in seen and len(set(group)) == len(group)
                seen.add(group)
                is_known = is_new and all(cls in sketches for cls in group)
                if is_known and sum(sketches[cls].num for cls in group) >= _FEWEST:
                    yield list(group)


def _made(graph: Graph, op: int) -> list[int]:
    """Classes of the floating values that the ATen calls of an op return."""
    record = graph.record
    values = [item.value for aten in record.ops[op].aten for item in record.aten[aten].outputs]
    return [graph.class_of(value) for value in values if record.values[value].dtype.startswith(("float", "bfloat"))]


def _join_sketches(parts: list[Sketch]) -> Sketch:
    num = np.array([one.num for one in parts], dtype=np.float64)
    share = num / num.sum()
    rms = float(np.sqrt(np.dot(share, np.square([one.rms for one in parts]))))
    mean = float(np.dot(share, [one.mean for one in parts]))
    low, high = min(one.low for one in parts), max(one.high for one in parts)
    return Sketch(rms, mean, low, high, int(num.sum()), sum(one.num_odd for one in parts))


def _joins(parts: list[Array]) -> Iterator[Array]:
    """All passes in one, in their order. One that runs backward hands on another order, which may be the mistake."""
    shapes = {part.shape for part in parts}
    if len(shapes) == 1:
        yield np.stack(parts)
        return
    # Chunks of which the last is shorter.
    for axis in range(min(len(shape) for shape in shapes)):
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1:
            yield np.concatenate(parts, axis)


def _contents(graph: Graph, cls: int) -> Array:
    member = graph.content_member(cls)
    assert member is not None
    return graph.array(member)
