"""Where an op is right and is given the wrong one of several tensors: another step of a sequence, the other half of a
split, a tensor not yet scaled. To blame is what picked it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torcheer.diff.align import Alignment
from torcheer.diff.families import family
from torcheer.diff.graph import Graph, Node
from torcheer.diff.passes import JOINED

_DEEPEST = 6  # ops to walk back


class Pick(NamedTuple):
    """An op of B that picks other elements than A's counterpart."""

    b: Node
    a: Node


def wrong_pick(alignment: Alignment, node_a: Node, node_b: Node) -> Pick | None:
    """What picked the operand that one op has and its counterpart has not, where all operands are known."""
    reads_b = {value: _in_a(alignment, value) for value in node_b.inputs}
    reads_a = {alignment.a.class_of(value): value for value in node_a.inputs}
    if None in reads_b.values() or not all(cls in alignment.by_a for cls in reads_a):
        return None
    odd_b = [value for value, cls in reads_b.items() if cls not in reads_a]
    odd_a = [value for cls, value in reads_a.items() if cls not in reads_b.values()]
    if len(odd_b) != 1 or len(odd_a) != 1:
        return None
    return _origin(alignment, odd_a[0], odd_b[0])


def other_half(alignment: Alignment, node_b: Node) -> Pick | None:
    """What picked the one operand of an op whose like in A is given another piece of the same tensor."""
    a, b = alignment.a, alignment.b
    if len(node_b.inputs) != 1:
        return None
    picked = _in_a(alignment, node_b.inputs[0])
    maker_b, maker_a = _maker(b, node_b.inputs[0]), None if picked is None else _maker(a, picked)
    if maker_a is None or maker_b is None or not (maker_a.is_selection and maker_b.is_selection):
        return None
    if _is_split(b, maker_b):
        return None
    shape = a.value(picked).shape if picked is not None else ()
    for reader in a.readers.get(a.class_of(maker_a.inputs[0]), ()):
        for sibling in a.nodes[reader].outputs if a.nodes[reader].is_selection else ():
            if a.class_of(sibling) == picked or a.value(sibling).shape != shape:
                continue
            for index in a.readers.get(a.class_of(sibling), ()):
                like = a.nodes[index]
                unknown = like.outputs and a.class_of(like.outputs[0]) not in alignment.by_a
                if unknown and len(like.inputs) == 1 and family(like.name) == family(node_b.name):
                    return Pick(maker_b, a.nodes[reader])
    return None


def _is_split(graph: Graph, node: Node) -> bool:
    """Whether one call returns all pieces: then it is right, and what takes the wrong one of them is not."""
    return node.owner >= 0 and len(graph.record.ops[node.owner].outputs) > 1


def _origin(alignment: Alignment, value_a: int, value_b: int) -> Pick | None:
    """Walk back from two operands, through like ops, to where the two take other elements of one tensor."""
    a, b = alignment.a, alignment.b
    for _ in range(_DEEPEST):
        made_a, made_b = _maker(a, value_a), _maker(b, value_b)
        if made_a is None or made_b is None or not (made_a.inputs and made_b.inputs):
            return None
        if made_a.is_selection and made_b.is_selection:
            sources = _in_a(alignment, made_b.inputs[0]), a.class_of(made_a.inputs[0])
            return Pick(made_b, made_a) if sources[0] == sources[1] and not _is_split(b, made_b) else None
        if family(made_a.name) != family(made_b.name):
            return None
        odd = _moving(alignment, made_a, made_b)
        if odd is None:
            return None
        value_a, value_b = odd
    return None


def _moving(alignment: Alignment, made_a: Node, made_b: Node) -> tuple[int, int] | None:
    """The operands of two like ops that are not one and the same tensor."""
    a = alignment.a
    reads_a = {a.class_of(value): value for value in made_a.inputs}
    reads_b = {_in_a(alignment, value): value for value in made_b.inputs}
    only_a, only_b = (
        [reads_a[c] for c in reads_a if c not in reads_b],
        [reads_b[c] for c in reads_b if c not in reads_a],
    )
    return (only_a[0], only_b[0]) if len(only_a) == len(only_b) == 1 else None


def _maker(graph: Graph, value: int) -> Node | None:
    index = graph.producer.get(graph.class_of(value))
    return None if index is None else graph.nodes[index]


def _in_a(alignment: Alignment, value: int) -> int | None:
    match = alignment.by_b.get(alignment.b.class_of(value))
    return None if match is None or match.found.layout.startswith(JOINED) else match.a


class Scaled(NamedTuple):
    """A tensor as a known one times a number."""

    root: int  # class
    factor: float
    first: Node | None  # what scales it


def scaled_from(graph: Graph, value: int, known: set[int]) -> Scaled:
    """The known tensor that a value is, or is picked from, but for a factor."""
    factor, first = 1.0, None
    while (cls := graph.class_of(value)) not in known:
        node = _maker(graph, cls)
        if node is None or not node.inputs or not (node.is_scaling or node.is_selection):
            break
        if node.is_scaling and node.op is not None:
            number = next(float(arg) for arg in node.op.args if type(arg) in (int, float))
            factor *= number if node.name.startswith("mul") else 1 / number if number else math.inf
            first = node
        value = node.inputs[0]
    return Scaled(graph.class_of(value), factor, first)
