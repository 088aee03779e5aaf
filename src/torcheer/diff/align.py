"""Which values of one run are values of the other: found by their numbers, confirmed element by element."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from torcheer.diff.graph import Graph
from torcheer.diff.layout import Close, Found, find_layout, is_close
from torcheer.diff.noise import Noise
from torcheer.diff.passes import find_joined
from torcheer.diff.sketch import Sketch, Sketches, sketch

_MOST_CANDIDATES = 12  # of one sketch that are compared in full
_COARSE = 3e-3  # no value may be further off than this and still be called the same


@dataclass(slots=True)
class Match:
    """A class of B that holds the numbers of a class of A."""

    a: int
    b: int
    found: Found
    members: tuple[int, int]  # the two values that were compared


@dataclass
class Alignment:
    """All matches between two runs."""

    a: Graph
    b: Graph
    noise: Noise
    by_b: dict[int, Match] = field(default_factory=dict)
    by_a: dict[int, Match] = field(default_factory=dict)
    alike: dict[int, list[int]] = field(default_factory=dict)  # class of B: of A, same sketch, other order
    sketches: tuple[dict[int, Sketch], dict[int, Sketch]] = field(default_factory=lambda: ({}, {}))

    def close(self, member: int) -> Close:
        """The tolerance at a value of A, which must tell it from others."""
        close = self.noise.close(member)
        return Close(min(close.rms, _COARSE), min(close.peak, 10 * _COARSE)) if self.noise.given is None else close


def align(a: Graph, b: Graph, noise: Noise) -> Alignment:
    """Match the values of two runs."""
    found = Alignment(a, b, noise, sketches=(_sketch_all(a), _sketch_all(b)))
    table = Sketches(found.sketches[0])
    # A sketch averages over all elements, so it is closer than the elements are.
    slack = max((found.close(cls).rms for cls in found.sketches[0]), default=1e-6)
    for cls, wanted in found.sketches[1].items():
        if b.value(cls).dtype.startswith("complex") and _match_parts(found, table, cls, slack):
            continue
        candidates = table.like(wanted, slack)
        matched = False
        for candidate in candidates[:_MOST_CANDIDATES]:
            match = _confirm(found, candidate, cls)
            if match is not None:
                found.by_b[cls] = match
                found.by_a.setdefault(candidate, match)
                matched = True
                if match.found.layout == "same":
                    break
        if not matched and candidates:
            found.alike[cls] = candidates[:_MOST_CANDIDATES]
    _match_loops(found, slack)
    _match_rest_of_a(found)
    return found


def _match_loops(found: Alignment, slack: float) -> None:
    """What one side does pass by pass in a loop, and the other at once."""
    a, b, (of_a, of_b) = found.a, found.b, found.sketches
    close = Close(slack, 10 * slack)
    left = {cls: one for cls, one in of_b.items() if cls not in found.by_b}
    for one in find_joined(a, of_a, b, left, close):
        members = a.content_member(one.passes[0]), b.content_member(one.whole)
        assert members[0] is not None
        assert members[1] is not None
        match = Match(one.passes[0], one.whole, one.found, (members[0], members[1]))
        found.by_b.setdefault(one.whole, match)
        for cls in one.passes:
            found.by_a.setdefault(cls, match)
    left = {cls: one for cls, one in of_a.items() if cls not in found.by_a}
    for one in find_joined(b, of_b, a, left, close):
        for cls in one.passes:
            members = a.content_member(one.whole), b.content_member(cls)
            assert members[0] is not None
            assert members[1] is not None
            match = Match(one.whole, cls, one.found, (members[0], members[1]))
            found.by_b.setdefault(cls, match)
            found.by_a.setdefault(one.whole, match)


def _match_parts(found: Alignment, table: Sketches, cls: int, slack: float) -> bool:
    """Complex numbers stand for what the other side has as two tensors: cosines and sines."""
    member = found.b.content_member(cls)
    assert member is not None
    array = found.b.array(member)
    parts = []
    for part in (np.ascontiguousarray(array.real), np.ascontiguousarray(array.imag)):
        for candidate in table.like(sketch(part), slack)[:_MOST_CANDIDATES]:
            other = found.a.content_member(candidate)
            assert other is not None
            layout = find_layout(found.a.array(other), part, found.close(other))
            if layout is not None:
                parts.append((candidate, other, layout))
                break
    if len(parts) < 2:
        return False
    candidate, other, layout = parts[0]
    found.by_b[cls] = Match(candidate, cls, Found(f"complex, {layout.layout}", layout.error), (other, member))
    return True


def _sketch_all(graph: Graph) -> dict[int, Sketch]:
    sketches = {}
    for cls in graph.classes:
        member = graph.content_member(cls)
        assert member is not None
        array = graph.array(member)
        if array.size:
            sketches[cls] = sketch(array)
    return sketches


def _match_rest_of_a(found: Alignment) -> None:
    """The same value may be computed twice on A's side: both are known to B then."""
    table = Sketches({cls: found.sketches[0][match.a] for cls, match in found.by_b.items()})
    for cls, wanted in found.sketches[0].items():
        if cls not in found.by_a:
            for other in table.like(wanted, 1e-6)[:4]:
                match = _confirm(found, cls, other)
                if match is not None:
                    found.by_a[cls] = match
                    break


def _confirm(found: Alignment, a: int, b: int) -> Match | None:
    """Compare two classes element by element, in a layout both have or in one that is searched for."""
    graph_a, graph_b = found.a, found.b
    first_a, first_b = graph_a.content_member(a), graph_b.content_member(b)
    assert first_a is not None
    assert first_b is not None
    by_shape = {graph_a.value(m).shape: m for m in reversed(graph_a.members(a)) if graph_a.has_contents(m)}
    close = found.close(first_a)
    for member in graph_b.members(b):
        twin = by_shape.get(graph_b.value(member).shape)
        if twin is not None and graph_b.has_contents(member):
            error = is_close(graph_a.array(twin), graph_b.array(member), close)
            if error is not None:
                return Match(a, b, Found("same", error), (twin, member))
    layout = find_layout(graph_a.array(first_a), graph_b.array(first_b), close)
    if layout is not None:
        return Match(a, b, layout, (first_a, first_b))
    # A matrix product merges axes, which each side may have had in another order.
    fine_a, fine_b = _finest(graph_a, a, first_a), _finest(graph_b, b, first_b)
    if (fine_a, fine_b) == (first_a, first_b):
        return None
    layout = find_layout(graph_a.array(fine_a), graph_b.array(fine_b), close)
    return None if layout is None else Match(a, b, layout, (fine_a, fine_b))


def _finest(graph: Graph, cls: int, first: int) -> int:
    """The member of a class with the most axes, of those whose numbers were kept."""
    size = graph.array(first).size
    kept = [m for m in graph.members(cls) if graph.has_contents(m) and graph.array(m).size == size]
    return max(kept, key=lambda member: (len(graph.value(member).shape), -member), default=first)
