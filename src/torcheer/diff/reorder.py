"""Where B picks, scales or orders the numbers of A otherwise; and what it leaves out at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torcheer.diff.families import family
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate
from torcheer.diff.order import misplaced
from torcheer.diff.sketch import proportional
from torcheer.diff.wiring import other_half, wrong_pick

if TYPE_CHECKING:
    from torcheer.diff.frontier import Search


def wrong_picks(search: Search, found: list[Candidate]) -> Iterator[Candidate]:
    """What gives the wrong one of several tensors to an op or returns it."""
    for one in found:
        if one.b is None or one.kind != "op":
            continue
        node = search.b.graph.nodes[one.b]
        pick = wrong_pick(search.alignment, search.a.graph.nodes[one.a], node) if one.a is not None else None
        pick = pick or other_half(search.alignment, node)
        if pick is not None:
            why = "it picks other elements than A does there"
            yield Candidate("op", pick.b.index, pick.a.index, why, max(one.strength, 20) + 2, pick.b.index)
    for value_a, value_b in zip(*search.differing, strict=True):
        match = search.alignment.by_b.get(search.b.graph.class_of(value_b))
        maker = search.b.graph.producer.get(search.b.graph.class_of(value_b))
        if match is None or maker is None or match.a == search.a.graph.class_of(value_a):
            continue
        if search.b.graph.nodes[maker].is_selection:
            twin = search.a.graph.producer.get(search.a.graph.class_of(value_a))
            yield Candidate("op", maker, twin, "it picks what A has elsewhere", 26, maker)


def scaled(search: Search) -> Iterator[Candidate]:
    """Factors that A has not: to blame where what comes of them is A's but for a factor."""
    graph = search.b.graph
    for index in sorted(search.b.reaching):
        node = graph.nodes[index]
        if node.is_scaling and search.b.is_open(node):
            factor, is_added = _factor_after(search, node)
            why = f"what comes of it is {factor:.4g} times A's" if factor else "it scales by a factor A has not"
            twin, _ = search.twin(node)
            strength = 24 if factor or is_added else 5
            yield Candidate("op", index, None if twin is None else twin.index, why, strength, index)


def _factor_after(search: Search, node: Node) -> tuple[float | None, bool]:
    """By which factor the next result of B is another than A's, if it is one; and whether A goes on unscaled."""
    graph = search.b.graph
    for index in graph.readers.get(graph.class_of(node.outputs[0]), ()):
        reader = graph.nodes[index]
        twin, _ = search.twin(reader)
        if twin is None or family(twin.name) != family(reader.name) or not (twin.outputs and reader.outputs):
            continue
        wanted = search.alignment.sketches[0].get(search.a.graph.class_of(twin.outputs[0]))
        have = search.alignment.sketches[1].get(graph.class_of(reader.outputs[0]))
        if wanted is not None and have is not None and (factor := proportional(wanted, have)):
            return factor, False
        direct = {search.a.graph.class_of(value) for value in twin.inputs}
        if search.in_a(node) <= direct and search.in_a(reader) == direct:
            return None, True
    return None, False


def misplacements(search: Search, found: list[Candidate]) -> Iterator[Candidate]:
    """Where an op is given A's numbers in other places, what put them there."""
    for one in found:
        if one.a is not None and one.b is not None:
            origin = misplaced(search.alignment, search.a.graph.nodes[one.a], search.b.graph.nodes[one.b])
            if origin is not None:
                node, twin = origin
                why = "it hands on A's numbers in another order"
                twin_index = None if twin is None else twin.index
                yield Candidate("order", node.index, twin_index, why, one.strength + 1, node.index)


def reordered(search: Search) -> Iterator[Candidate]:
    """Picks whose numbers are A's in another order, or that pick others than A does."""
    graph = search.b.graph
    for index in sorted(search.b.reaching):
        node = graph.nodes[index]
        if not node.is_selection or not search.b.is_open(node):
            continue
        cls = graph.class_of(node.outputs[0])
        if _is_reordered(search, node):
            yield Candidate("order", index, _maker(search, search.alignment.alike[cls][0]), "", 30, index)
            continue
        if _is_altered(search, node):
            yield Candidate("op", index, None, "it puts A's numbers together again, some of them altered", 12, index)
            continue
        twin = _other_pick(search, node)
        if twin is not None:
            yield Candidate("op", index, twin.index, "it picks other elements than A does", 25, index)


def _is_altered(search: Search, node: Node) -> bool:
    """Whether an op joins pieces of one known tensor to something else of the same shape."""
    roots = set().union(*(search.b.roots(value) for value in node.inputs)) if len(node.inputs) > 1 else set()
    if len(roots) != 1 or (cls := next(iter(roots))) not in search.b.known:
        return False
    return search.b.graph.value(node.outputs[0]).shape == search.b.graph.value(cls).shape


def _is_reordered(search: Search, node: Node) -> bool:
    """Whether A has the same numbers, in the shape of what the op returns, in another order."""
    cls, shape = search.b.graph.class_of(node.outputs[0]), search.b.graph.value(node.outputs[0]).shape
    alike = search.alignment.alike.get(cls, ())
    keeps_shape = any(search.b.graph.value(value).shape == shape for value in node.inputs[:1])
    return any(
        keeps_shape or search.a.graph.value(member).shape == shape
        for other in alike
        for member in search.a.graph.members(other)
    )


def _maker(search: Search, cls: int) -> int | None:
    return search.a.graph.producer.get(cls)


def _other_pick(search: Search, node: Node) -> Node | None:
    """An op of A that picks elements of the same shape from the same tensor, which B picks nowhere."""
    shape = search.b.graph.value(node.outputs[0]).shape
    for cls in search.in_a(node):
        for index in search.a.graph.readers.get(cls, ()):
            other = search.a.graph.nodes[index]
            same_kind = other.is_selection and other.name == node.name and search.a.makes_unknown(other)
            if same_kind and search.a.graph.value(other.outputs[0]).shape == shape:
                return other
    return None


def omitted(search: Search) -> list[Candidate]:
    """All of B is known to A: what A does after that is missing in B."""
    found = []
    for node in search.open_ops(search.a):
        b = _last_reader(search, node)
        why = f"B does everything that A does before {node.name}, and nothing of it after"
        found.append(Candidate("missing", b, node.index, why, 5, node.index))
    return found


def _last_reader(search: Search, node: Node) -> int | None:
    """Where B has what the missing op is given: the op that makes it."""
    graph, best = search.b.graph, None
    for value in node.inputs:
        for cls in search.a.roots(value):
            match = search.alignment.by_a.get(cls)
            if match is not None:
                maker = graph.producer.get(graph.class_of(match.b))
                if maker is not None and (best is None or maker > best):
                    best = maker
    return best
