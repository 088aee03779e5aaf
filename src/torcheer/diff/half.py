"""One side of the search: what the other side has too, what follows from it alone, what leads to a wrong output."""

from __future__ import annotations

from dataclasses import dataclass, field

from torcheer.diff.align import Alignment
from torcheer.diff.graph import Graph, Node


@dataclass
class Candidate:
    """A place where the runs may part."""

    kind: str  # "op" | "missing" | "extra" | "param" | "order" | "constant" | "random"
    b: int | None  # node of B; None: nothing of B's
    a: int | None  # node of A
    why: str
    strength: int = 0
    order: float = 0.0
    mends: bool = False  # with A's numbers there, B gives A's outputs


@dataclass
class Half:
    """One side of the search."""

    graph: Graph
    known: set[int]  # classes whose numbers the other side has
    derived: set[int] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)  # masks and tables beyond suspicion
    reaching: set[int] = field(default_factory=set)  # nodes from which a differing output is reached
    num_reached: dict[int, int] = field(default_factory=dict)  # node → how many of them are

    def is_strange(self, value: int) -> bool:
        """Whether a value was made by an op and is on this side alone."""
        cls = self.graph.class_of(value)
        return cls not in self.known and cls not in self.derived and self._made(value)

    def is_open(self, node: Node) -> bool:
        """Whether an op makes something that the other side has not, out of what it has."""
        is_cleared = node.outputs and self.graph.class_of(node.outputs[0]) in self.cleared
        return self.makes_unknown(node) and not is_cleared and not any(map(self.is_strange, node.inputs))

    def makes_unknown(self, node: Node) -> bool:
        """Whether an op makes something that the other side has not."""
        return bool(node.outputs) and self.graph.class_of(node.outputs[0]) not in self.known

    def _made(self, value: int) -> bool:
        return value in self.graph.producer or self.graph.class_of(value) in self.graph.producer

    def roots(self, value: int) -> frozenset[int]:
        """The known classes that a value is, or is derived from."""
        cls = self.graph.class_of(value)
        node = self.graph.producer.get(cls)
        if cls in self.known or node is None or cls not in self.derived:
            return frozenset((cls,))
        found: set[int] = set()
        for read in self.graph.nodes[node].inputs:
            if self.graph.class_of(read) < cls:
                found |= self.roots(read)
        return frozenset(found)


def half_of(graph: Graph, known: set[int], differing: list[int], cleared: frozenset[int] = frozenset()) -> Half:
    """Find out what is derived, and which ops a differing output follows from."""
    half = Half(graph, known, set(cleared), set(cleared))
    for node in graph.nodes:
        picks = node.is_selection or node.is_layout or node.is_scaling
        if picks and not any(half.is_strange(value) for value in node.inputs):
            half.derived.update(c for c in map(graph.class_of, node.outputs) if c not in known)
    producers = _producers(graph)
    for cls in dict.fromkeys(map(graph.class_of, differing)):
        for index in _leading_to(half, producers, cls):
            half.num_reached[index] = half.num_reached.get(index, 0) + 1
    half.reaching = set(half.num_reached)
    return half


def _leading_to(half: Half, producers: dict[int, list[int]], cls: int) -> set[int]:
    """Ops from which a value follows through numbers that the other side has not."""
    queue, seen = ([] if cls in half.known else [cls]), {cls}
    found: set[int] = set()
    while queue:
        for index in producers.get(queue.pop(), ()):
            if index in found:
                continue
            found.add(index)
            for value in half.graph.nodes[index].inputs:
                read = half.graph.class_of(value)
                if read not in half.known and read not in seen:
                    seen.add(read)
                    queue.append(read)
    return found


def cleared(alignment: Alignment) -> frozenset[int]:
    """Masks and tables of B that are right, or hold no choice: plain constants that go into a computation, and what
    something is computed from that A has."""
    graph = alignment.b
    plain = _plain(graph)
    found: set[int] = set()
    for node in reversed(graph.nodes):
        made = [graph.class_of(value) for value in node.outputs]
        if not made or made[0] in alignment.by_b or made[0] not in graph.side_classes:
            continue
        readers = [graph.nodes[index] for index in graph.readers.get(made[0], ()) if index > node.index]
        results = {graph.class_of(reader.outputs[0]) for reader in readers if reader.outputs} & graph.side_classes
        right = any(cls in found or _tells(alignment, cls) for cls in results)
        goes_on = results and any(not (one.is_selection or one.is_layout) for one in readers)
        if right or (node.index in plain and goes_on):
            found.add(made[0])
    return frozenset(found)


def _plain(graph: Graph) -> set[int]:
    """Ops that make constants in which no number is chosen: the identity, positions, how far two are apart."""
    found: set[int] = set()
    for node in graph.nodes:
        made_of = [graph.producer.get(graph.class_of(value)) for value in node.inputs]
        takes_none = node.op is not None and not any(type(arg) in (int, float) for arg in node.op.args)
        joins = node.name in ("sub", "mul", "outer", "_to_copy") and takes_none
        if node.is_plain or (node.inputs and (joins or node.is_layout) and all(one in found for one in made_of)):
            found.add(node.index)
    return found


def _tells(alignment: Alignment, cls: int) -> bool:
    """Whether a value that A has too is of numbers that do not come about by chance."""
    one = alignment.sketches[1].get(cls)
    is_float = alignment.b.value(cls).dtype.startswith(("float", "bfloat"))
    return cls in alignment.by_b and is_float and one is not None and one.num >= 4 and one.low < one.high


def _producers(graph: Graph) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for node in graph.nodes:
        for value in node.outputs:
            found.setdefault(graph.class_of(value), []).append(node.index)
    return found
