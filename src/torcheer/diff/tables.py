"""Masks, positions and tables that A has not: whether they are to blame, or what uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torcheer.diff.families import family
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate

if TYPE_CHECKING:
    from torcheer.diff.frontier import Search


def judge_table(search: Search, node: Node, found: Candidate) -> None:
    """A mask or table is to blame only if all else that goes in where it is used is right."""
    found.kind, found.why = "constant", "it makes a mask, position or table that A has not"
    join = _join(search, node)
    if join is None or any(search.b.is_strange(v) for v in join.inputs if not _is_side(search, v)):
        found.strength = -10
        return
    found.strength = 15


def _is_side(search: Search, value: int) -> bool:
    return search.b.graph.class_of(value) in search.b.graph.side_classes


def _join(search: Search, node: Node) -> Node | None:
    """The first op further on that reads more than masks and tables."""
    graph, queue, seen = search.b.graph, [node.index], {node.index}
    found: list[int] = []
    while queue:
        current = graph.nodes[queue.pop(0)]
        for value in current.outputs:
            for index in graph.readers.get(graph.class_of(value), ()):
                reader = graph.nodes[index]
                if index in seen or index not in search.b.reaching:
                    continue
                seen.add(index)
                is_join = reader.outputs and graph.class_of(reader.outputs[0]) not in graph.side_classes
                (found if is_join else queue).append(index)
    return graph.nodes[min(found)] if found else None


def uses_of_tables(search: Search, found: list[Candidate]) -> Iterator[Candidate]:
    """Where a wrong mask is used, in case it is its use that is wrong."""
    seen = {one.b for one in found}
    for one in found:
        if one.kind == "constant" and one.strength > 0 and one.b is not None:
            join = _join(search, search.b.graph.nodes[one.b])
            if join is not None and join.index not in seen:
                seen.add(join.index)
                twin, _ = search.twin(join)
                why = "it is given a mask, position or table that A has not"
                strength = 14 if twin is None or _has_table(search, join) else 16
                yield Candidate("op", join.index, None if twin is None else twin.index, why, strength, join.index)


def _has_table(search: Search, join: Node) -> bool:
    """Whether A, too, goes on from what an op of B reads by such an op, or with the help of a mask or table."""
    a = search.a.graph
    readers = {index for cls in search.in_a(join) for index in search.readers_of(cls)}
    unknown = [a.nodes[index] for index in readers if search.a.makes_unknown(a.nodes[index])]
    tables = {a.class_of(value) for node in unknown for value in node.inputs} & a.side_classes
    is_done = any(family(node.name) == family(join.name) for node in unknown)
    return not unknown or is_done or any(a.value(cls).kind != "param" for cls in tables)
