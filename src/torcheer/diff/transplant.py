"""Which of several places is the mistake, found out by experiment: A's numbers are put into B's run at a place, and all
that follows from it is computed once more.

Where the mistake is, B then gives A's outputs, or at least goes on as A does up to the next mistake. Where B is only
written otherwise, it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from torcheer.diff.align import Alignment
from torcheer.diff.arrays import Array
from torcheer.diff.graph import Node
from torcheer.diff.layout import apart, mergeable
from torcheer.diff.side import CanReplay
from torcheer.diff.sketch import Sketches, sketch
from torcheer.record.model import Op, Opaque, Ref

_HEALED = 0.02  # of the difference of an output may be left
_MOST_AXES = 5
_CLEARLY = 0.3  # more alike, to be taken for the layout in place of a likelier one
_FEW = 4  # elements; fewer agree by chance
_FURTHEST = 400  # calls looked at for numbers of A's

Contents = dict[int, Array]  # value of B → numbers


class Effect(NamedTuple):
    """What B does with A's numbers at a place."""

    mended: float  # share of the differing outputs that are A's now
    num_followed: int  # values after the place that A has too, and B had not

    @property
    def is_any(self) -> bool:
        """Whether B comes nearer to A."""
        return self.mended > 0 or self.num_followed > 0


class Transplant:
    """Runs B again from a place on, with other numbers there."""

    def __init__(self, alignment: Alignment, side: CanReplay, outputs: Sequence[tuple[int, int]]) -> None:
        self.alignment = alignment
        self.side = side
        self.outputs = outputs  # values of A and B that differ
        unknown = {c: s for c, s in alignment.sketches[0].items() if c not in alignment.by_a and s.num >= _FEW}
        self._of_a = Sketches(unknown)

    def effect(self, given: Mapping[int, Array]) -> Effect | None:
        """What follows where these values of B hold these numbers; None where that cannot be computed."""
        contents = self._run(dict(given))
        if contents is None:
            return None
        return Effect(self._mended(contents), self._followed(contents, given))

    def _run(self, contents: Contents) -> Contents | None:
        graph = self.alignment.b
        for node in graph.nodes:
            given = {value: new for value in node.inputs if (new := self._now(value, contents)) is not None}
            if not given or all(value in contents for value in node.outputs):
                continue
            returned = self._again(node, given)
            if returned is None or len(returned) != len(node.outputs):
                return None
            contents.update(zip(node.outputs, returned, strict=True))
        return contents

    def _again(self, node: Node, given: Contents) -> list[Array] | None:
        graph = self.alignment.b
        call = node.op or graph.record.ops[node.owner]
        if node.is_random or (node.op is not None and set(node.inputs) - set(call.inputs)):
            return None  # drawn, or written under a view
        for value in call.inputs:
            if value not in given:
                if not graph.has_contents(value):
                    return None
                given[value] = graph.array(value)
        return _write_piece(call, given) if node.op is None else self.side.replay(call, given)

    def _now(self, value: int, contents: Contents) -> Array | None:
        """The numbers of a value in the new run; None where it is as it was."""
        while value not in contents and value in self.alignment.b.handed_on:
            value = self.alignment.b.handed_on[value]
        return contents.get(value)

    def _mended(self, contents: Contents) -> float:
        count = 0
        for value_a, value_b in self.outputs:
            new = self._now(value_b, contents)
            one, other = self.alignment.a.array(value_a), self.alignment.b.array(value_b)
            if new is None or new.shape != one.shape:
                continue
            left = apart(one, new)[0]
            before = apart(one, other)[0] if other.shape == one.shape else 1.0
            count += left <= max(self.alignment.close(value_a).rms, _HEALED * min(before, 1.0))
        return count / len(self.outputs)

    def _followed(self, contents: Contents, given: Mapping[int, Array]) -> int:
        graph, placed = self.alignment.b, {self.alignment.b.class_of(value) for value in given}
        count = 0
        for node in graph.nodes:
            if node.is_layout or node.is_selection or not node.outputs or count > _FURTHEST:
                continue
            cls = graph.class_of(node.outputs[0])
            new = contents.get(node.outputs[0])
            if new is None or cls in placed or cls in self.alignment.by_b or new.size < _FEW or new.dtype.kind != "f":
                continue
            count += bool(self._of_a.like(sketch(new), 1e-5))
        return count


def _write_piece(call: Op, given: Mapping[int, Array]) -> list[Array] | None:
    """``tensor[index] = other``, once more."""
    if not call.function.endswith("__setitem__") or len(call.args) != 3 or not isinstance(call.args[0], Ref):
        return None
    target, index, other = call.args
    parts = index if isinstance(index, tuple) else (index,)
    if isinstance(other, Opaque) or any(isinstance(part, (Opaque, list)) for part in parts):
        return None
    changed = given[int(target)].copy()
    where = tuple(given[int(part)] if isinstance(part, Ref) else part for part in parts)
    changed[where] = given[int(other)] if isinstance(other, Ref) else other
    return [changed]


def fitted(one: Array, other: Array) -> tuple[float, Array] | None:
    """The numbers of the one in the layout of the other in which the two are most alike, and how much they are."""
    if one.size != other.size or one.dtype.kind != other.dtype.kind:
        return None
    best: tuple[float, Array | None] = (-1.0, None)
    centred = _centred(other)
    for turned in _layouts(one, other.shape):
        likeness = abs(float(np.dot(_centred(turned), centred)))
        if likeness > best[0] + (_CLEARLY if best[1] is not None else 0):
            best = (likeness, turned)
    return None if best[1] is None else (best[0], np.ascontiguousarray(best[1]).astype(other.dtype))


def other_layouts(one: Array, other: Array) -> list[Array]:
    """The numbers of the one in layouts in which they are not the other's, though the other has them too."""
    if one.size != other.size or one.dtype.kind != other.dtype.kind:
        return []
    scale = float(np.max(np.abs(other))) if other.size else 0.0
    found = [turned for turned in _layouts(one, other.shape) if np.abs(turned - other).max(initial=0) > 1e-3 * scale]
    return [np.ascontiguousarray(turned).astype(other.dtype) for turned in found]


def _centred(array: Array) -> Array:
    flat = np.nan_to_num(array.astype(np.float64).ravel(), posinf=0, neginf=0)
    flat = flat - flat.mean()
    centred: Array = flat / (float(np.sqrt(np.dot(flat, flat))) or 1.0)
    return centred


def _layouts(one: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    if one.shape == shape:
        yield one
        if len(set(shape)) == len(shape):
            return
    squeezed, target = one.squeeze(), tuple(extent for extent in shape if extent != 1)
    if squeezed.ndim <= _MOST_AXES:
        for axes in permutations(range(squeezed.ndim)):
            turned = squeezed.transpose(axes)
            if mergeable(turned.shape, target):
                yield turned.reshape(shape)
    if len(target) <= _MOST_AXES:
        for axes in permutations(range(len(target))):
            turned_shape = tuple(target[axis] for axis in axes)
            if axes != tuple(range(len(target))) and mergeable(turned_shape, squeezed.shape):
                yield squeezed.reshape(turned_shape).transpose(np.argsort(axes)).reshape(shape)
