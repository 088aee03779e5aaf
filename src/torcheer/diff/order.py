"""Where numbers get into another order: an op may be given A's numbers, and not in A's places."""

from __future__ import annotations

from torcheer.diff.align import Alignment
from torcheer.diff.graph import Node
from torcheer.diff.layout import is_close

_DEEPEST = 12  # ops to walk back


def misplaced(
    alignment: Alignment, node_a: Node, node_b: Node, depth: int = _DEEPEST
) -> tuple[Node, Node | None] | None:
    """The op of B (and what it stands for in A) that brings an input of two ops into another order than A's."""
    for value_b in node_b.inputs:
        for value_a in node_a.inputs:
            # Unlike ops may be written for unlike orders of axes, but not for an order inside one.
            like = node_a.name == node_b.name or _is_split(alignment, value_b)
            if like and _is_misplaced(alignment, value_a, value_b):
                return _origin(alignment, value_a, value_b, depth)
    return None


def _is_split(alignment: Alignment, value_b: int) -> bool:
    match = alignment.by_b.get(alignment.b.class_of(value_b))
    return match is not None and match.found.layout.startswith("split")


def _is_misplaced(alignment: Alignment, value_a: int, value_b: int) -> bool:
    a, b = alignment.a, alignment.b
    match = alignment.by_b.get(b.class_of(value_b))
    if match is None or match.a != a.class_of(value_a) or a.value(value_a).shape != b.value(value_b).shape:
        return False
    if not (a.has_contents(value_a) and b.has_contents(value_b)):
        return False
    return is_close(a.array(value_a), b.array(value_b), alignment.close(value_a)) is None


def _origin(alignment: Alignment, value_a: int, value_b: int, depth: int) -> tuple[Node, Node | None] | None:
    a, b = alignment.a, alignment.b
    cls = b.class_of(value_b)
    match = alignment.by_b[cls]
    if match.found.layout == "same":
        step = _first_turn(alignment, value_b)
        twin = a.producer.get(value_a)
        return None if step is None else (step, None if twin is None else a.nodes[twin])
    made_b, made_a = b.producer.get(cls), a.producer.get(match.a)
    if made_b is None:
        return None
    node_b, node_a = b.nodes[made_b], None if made_a is None else a.nodes[made_a]
    if node_a is not None and depth:
        deeper = misplaced(alignment, node_a, node_b, depth - 1)
        if deeper is not None:
            return deeper
    return node_b, node_a


def _first_turn(alignment: Alignment, value_b: int) -> Node | None:
    """The first layout op on the way to a value whose result A has in no such shape and order."""
    a, b = alignment.a, alignment.b
    match = alignment.by_b[b.class_of(value_b)]
    chain: list[Node] = []
    while (index := b.producer.get(value_b)) is not None and b.nodes[index].is_layout:
        chain.append(b.nodes[index])
        value_b = b.nodes[index].inputs[0]
    close = alignment.close(match.members[0])
    for node in reversed(chain):
        made = node.outputs[0]
        shape = b.value(made).shape
        like = [m for m in a.members(match.a) if a.value(m).shape == shape and a.has_contents(m)]
        if b.has_contents(made) and not any(is_close(a.array(m), b.array(made), close) is not None for m in like):
            return node
    return chain[0] if chain else None
