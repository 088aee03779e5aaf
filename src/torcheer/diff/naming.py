"""What tells an op of B from its counterpart: a step left out or added, a factor, a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.diff.families import STEPS, family
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate
from torcheer.diff.passes import JOINED
from torcheer.diff.wiring import scaled_from

if TYPE_CHECKING:
    from torcheer.diff.frontier import Search


def name_scale(search: Search, node: Node, twin: Node, found: Candidate) -> None:
    """Say so where A scales what it gives to its op, and B has no such factor there or later."""
    b = [scaled_from(search.b.graph, value, search.b.known) for value in node.inputs]
    in_a = {search.alignment.by_b[one.root].a: one for one in b if one.root in search.alignment.by_b}
    made = {search.b.graph.class_of(value) for value in node.outputs}
    later = [search.b.graph.nodes[index] for cls in made for index in search.b.graph.readers.get(cls, ())]
    for value in twin.inputs:
        one = scaled_from(search.a.graph, value, search.a.known)
        own = in_a.get(one.root)
        if own is None or one.first is None or own.first is not None or any(n.is_scaling for n in later):
            continue
        found.kind, found.a, found.strength = "missing", one.first.index, 22
        found.why = f"A multiplies it by {one.factor:.4g} first; B goes on without"


def name_param(search: Search, node: Node, found: Candidate) -> None:
    """Say so where the op reads a parameter whose numbers A has not."""
    graph = search.b.graph
    for value in node.inputs:
        cls = graph.class_of(value)
        entry = graph.value(cls)
        if entry.kind in ("param", "buffer") and cls not in search.b.known and graph.has_contents(cls):
            assert entry.param is not None
            if graph.record.params[entry.param].address in search.mapped():
                continue  # joined or turned, from A's
            found.kind = "param"
            found.strength += 5
            found.why = f"its {entry.kind} {graph.record.params[entry.param].address} has numbers that A has not"
            return


def name_step(search: Search, node: Node, twin: Node, found: Candidate) -> None:
    """Tell a step that B leaves out from one that it adds."""
    made = {search.a.graph.class_of(v) for v in twin.outputs}
    after = [search.a.graph.nodes[i] for cls in made for i in search.a.graph.readers.get(cls, ())]
    if any(family(one.name) == family(node.name) or node.name in STEPS.get(one.name, ()) for one in after):
        found.kind, found.strength = "missing", 18
        found.why = f"A does {twin.name} first; B goes on without it"
        return
    made = {search.b.graph.class_of(v) for v in node.outputs}
    after = [search.b.graph.nodes[i] for cls in made for i in search.b.graph.readers.get(cls, ())]
    if any(family(one.name) == family(twin.name) for one in after):
        found.kind, found.strength = "extra", 18
        found.why = f"A goes on with {twin.name} at once; B does {node.name} first"


def is_joined(search: Search, node: Node) -> bool:
    """Whether an op of B reads at once what A has pass by pass."""
    matches = (search.alignment.by_b.get(search.b.graph.class_of(value)) for value in node.inputs)
    return any(one is not None and one.found.layout.startswith(JOINED) for one in matches)


def name_left_out(search: Search, node: Node, twin: Node, found: Candidate) -> None:
    """Say what B leaves out where a like op of A is given what follows from B's operand; or that operands differ."""
    a = search.a.graph
    mine = {match.a for value in node.inputs if (match := search.alignment.by_b.get(search.b.graph.class_of(value)))}
    theirs = {a.class_of(value) for value in twin.inputs}
    only_b, only_a = mine - theirs, theirs - mine
    if not only_b or not only_a:
        return
    for cls in sorted(only_b):
        first = _first_on_the_way(search, cls, only_a)
        if first is not None:
            found.kind, found.a, found.strength = "missing", first.index, max(found.strength, 18)
            found.why = f"A does {first.name} first; B goes on without it"
            return
    if only_a <= set(search.alignment.by_a):
        found.why = f"it is given another of A's tensors than A's {twin.name} is"


def _first_on_the_way(search: Search, start: int, goals: set[int]) -> Node | None:
    """The first op of A on the way from one tensor to one of some others, by a few ops that B has not."""
    a = search.a.graph
    level: list[tuple[int, Node | None]] = [(start, None)]
    for _ in range(_FURTHEST):
        following: list[tuple[int, Node | None]] = []
        for cls, first in level:
            for index in a.readers.get(cls, ()):
                reader = a.nodes[index]
                for made in map(a.class_of, reader.outputs):
                    if made in goals and made not in search.a.known:
                        return first or reader
                    if made not in search.a.known:
                        following.append((made, first or (None if reader.is_selection else reader)))
        level = following[:_MOST]
    return None


_FURTHEST = 3  # ops of A on the way
_MOST = 40
