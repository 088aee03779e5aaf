"""One side computes more than it uses: all experts where the other runs the chosen ones, all pairs where the other has
a list of edges, every position where the other computes the last.

The smaller result is then some of the numbers of the larger. That is looked for near the frontier alone, and only where
the smaller side's op is given a piece of what the larger side's is: a wrong stride makes such results too, of the very
same tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torcheer.diff.align import Match
from torcheer.diff.arrays import Array
from torcheer.diff.frontier import Search
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate, Half
from torcheer.diff.layout import Close, Found

PART = "part of it"  # the layout of such a match
_DEEPEST = 4  # ops of A after the frontier that one of B may stand for
_MOST_CANDIDATES = 24
_MOST_ONWARD = 8
_FEWEST = 8  # numbers; fewer are found anywhere
_PICKS = frozenset("index index_select gather slice select narrow masked_select take _pack_padded_sequence".split())
_CHANCE = 0.2  # share of other numbers that are found there too


def follow_parts(search: Search, found: list[Candidate]) -> bool:
    """Match what is computed in part on one side; whether that moved the frontier."""
    moved = False
    for one in found[:_MOST_CANDIDATES]:
        if one.b is not None:
            first = search.b.graph.nodes[one.b]
            likely = list(_counterparts(search, first))
            for node in _onward(search, first):
                moved = _match(search, node, likely) or moved
    return moved


def _onward(search: Search, node: Node) -> list[Node]:
    """An op of B and those that follow from nothing else unknown: one of A may be written out in several."""
    graph, found, level = search.b.graph, [node], [node]
    new = {graph.class_of(value) for value in node.outputs}
    for _ in range(_DEEPEST):
        made = {graph.class_of(value) for one in level for value in one.outputs}
        following = {index for cls in made for index in graph.readers.get(cls, ())}
        level = [one for one in map(graph.nodes.__getitem__, sorted(following)) if one not in found]
        level = [one for one in level if not one.is_selection and _follows(search, one, new)]
        new |= {graph.class_of(value) for one in level for value in one.outputs}
        found += level
    return found[:_MOST_ONWARD]


def _follows(search: Search, node: Node, new: set[int]) -> bool:
    return all(search.b.graph.class_of(value) in new or not search.b.is_strange(value) for value in node.inputs)


def _match(search: Search, node: Node, likely: list[Node]) -> bool:
    b, alignment = search.b.graph, search.alignment
    if not node.outputs or not b.has_contents(node.outputs[0]):
        return False
    cls, array = b.class_of(node.outputs[0]), b.array(node.outputs[0])
    if cls in alignment.by_b or array.dtype.kind != "f":
        return False
    for other in likely:
        value = other.outputs[0]
        if not search.a.graph.has_contents(value):
            continue
        theirs = search.a.graph.array(value)
        is_smaller = theirs.size < array.size
        own, half = (other, search.a) if is_smaller else (node, search.b)
        if theirs.size == array.size or theirs.dtype.kind != "f" or not _reads_a_piece(search, half, own):
            continue
        part, whole = (theirs, array) if is_smaller else (array, theirs)
        if is_part(part, whole, alignment.close(value)):
            match = Match(search.a.graph.class_of(value), cls, Found(PART, 0.0), (value, node.outputs[0]))
            alignment.by_b[cls] = match
            alignment.by_a.setdefault(match.a, match)
            return True
    return False


def _counterparts(search: Search, node: Node) -> Iterator[Node]:
    """Ops of A that B's may stand for: what reads the same, and what follows, near ones first."""
    graph = search.a.graph
    for cls in sorted(search.in_a(node)):
        if _is_part(search, cls) and cls in graph.producer:
            yield graph.nodes[graph.producer[cls]]  # masking leaves some of it
    level = dict.fromkeys(index for cls in sorted(search.in_a(node)) for index in search.readers_of(cls))
    seen = set(level)
    for _ in range(_DEEPEST):
        following: dict[int, None] = {}
        for index in level:
            other = graph.nodes[index]
            if not other.outputs:
                continue
            if search.a.makes_unknown(other) or _is_part(search, graph.class_of(other.outputs[0])):
                yield other
            for value in other.outputs:
                following.update(dict.fromkeys(graph.readers.get(graph.class_of(value), ())))
        level = {index: None for index in following if index not in seen}
        seen |= set(level)


def _is_part(search: Search, cls: int) -> bool:
    match = search.alignment.by_a.get(cls)
    return match is not None and match.found.layout == PART


def _reads_a_piece(search: Search, half: Half, node: Node) -> bool:
    """Whether an op of the smaller side is given a selection of what the other side has."""
    table = search.alignment.by_a if half is search.a else search.alignment.by_b
    for value in node.inputs:
        cls = half.graph.class_of(value)
        match = table.get(cls)
        made = half.graph.producer.get(cls)
        picked = made is not None and half.graph.nodes[made].name in _PICKS
        if picked or (match is not None and match.found.layout == PART):
            return True
    return False


def is_part(part: Array, whole: Array, close: Close) -> bool:
    """Whether every number of the one tensor is in the other, or every row of it, and not by chance."""
    if part.size < _FEWEST or not (np.isfinite(part).all()) or part.min() == part.max():
        return False
    scale = float(np.sqrt(np.mean(np.square(part, dtype=np.float64))))
    slack = max(close.peak, 1e-6)
    chance = _share(part.ravel() + 100 * slack * scale, whole.ravel(), slack, scale)
    if chance < _CHANCE:
        return _share(part.ravel(), whole.ravel(), slack, scale) == 1
    if part.ndim and whole.ndim and part.shape[-1] == whole.shape[-1] > 1:
        weights = np.cos(np.arange(1, part.shape[-1] + 1) * 1.7)
        rows, all_rows = (one.reshape(-1, one.shape[-1]) @ weights for one in (part, np.nan_to_num(whole)))
        return len(rows) > 1 and _share(rows, all_rows, slack, scale * part.shape[-1] ** 0.5) == 1
    return False


def _share(part: Array, whole: Array, slack: float, scale: float) -> float:
    """The share of the numbers that have one close to them among the others."""
    table = np.sort(whole)
    right = np.clip(np.searchsorted(table, part), 1, len(table) - 1)
    with np.errstate(invalid="ignore"):
        apart = np.minimum(np.abs(table[right] - part), np.abs(table[right - 1] - part))
        return float(np.mean(apart <= slack * (np.abs(part) + scale)))
