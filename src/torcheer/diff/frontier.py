"""The first place where two runs part: the earliest op given what the other side has too, that makes what it has not.

A value of B is *known* when its numbers are somewhere in A, *derived* when it is picked or joined from such values, and
*strange* otherwise. The frontier are the computing ops that read no strange value, make one, and from which an output
that differs is reached through strange values alone: what is written differently and comes to the same again further
on is never blamed. The same is done from A's side, which tells what B left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torcheer.diff.align import Alignment
from torcheer.diff.expand import follow
from torcheer.diff.graph import Graph, Node
from torcheer.diff.order import misplaced
from torcheer.diff.passes import JOINED
from torcheer.diff.sketch import proportional

# Functions that do the same job: one side's may stand for the other's.
_FAMILIES = (
    "mm addmm bmm baddbmm matmul linear mv dot einsum addmv convolution mkldnn_convolution _convolution",
    "add add_ sub sub_ rsub",
    "mul mul_ div div_",
    "native_layer_norm native_group_norm _fused_rms_norm rms_norm native_batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_no_training cudnn_batch_norm _batch_norm_impl_index",
    "_softmax _safe_softmax softmax _log_softmax",
    "relu relu_ gelu silu silu_ tanh sigmoid leaky_relu elu hardtanh threshold clamp_min mish hardswish softplus prelu"
    " _prelu_kernel leaky_relu_ elu_ hardtanh_",
    "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d mean sum amax",
    "masked_fill masked_fill_ where",
    "embedding index_select index",
    "mkldnn_rnn_layer lstm gru _thnn_fused_lstm_cell",
)
_FAMILY = {name: place for place, names in enumerate(_FAMILIES) for name in names.split()}


# Steps that an op is written out in, any of which may come first.
_NORM_STEPS = ("mean", "var", "var_mean", "sub", "pow", "mul", "sum")
STEPS = {
    "native_layer_norm": _NORM_STEPS,
    "native_group_norm": _NORM_STEPS,
    "native_batch_norm": _NORM_STEPS,
    "_native_batch_norm_legit_no_training": _NORM_STEPS,
    "_fused_rms_norm": _NORM_STEPS,
    "_softmax": ("amax", "max", "sub", "exp"),
    "silu": ("sigmoid", "neg"),
    "gelu": ("mul", "pow", "div", "erf"),
}


def family(name: str) -> int | str:
    """What job a function does."""
    return _FAMILY.get(name, name.rstrip("_"))


@dataclass
class Candidate:
    """A place where the runs may part."""

    kind: str  # "op" | "missing" | "extra" | "param" | "order" | "constant" | "random"
    b: int | None  # node of B; None: nothing of B's
    a: int | None  # node of A
    why: str
    strength: int = 0
    order: float = 0.0


@dataclass
class Half:
    """One side of the search."""

    graph: Graph
    known: set[int]  # classes whose numbers the other side has
    derived: set[int] = field(default_factory=set)
    reaching: set[int] = field(default_factory=set)  # nodes from which a differing output is reached

    def is_strange(self, value: int) -> bool:
        """Whether a value was made by an op and is on this side alone."""
        cls = self.graph.class_of(value)
        return cls not in self.known and cls not in self.derived and self._made(value)

    def is_open(self, node: Node) -> bool:
        """Whether an op makes something that the other side has not, out of what it has."""
        return self.makes_unknown(node) and not any(self.is_strange(value) for value in node.inputs)

    def makes_unknown(self, node: Node) -> bool:
        """Whether an op makes something that the other side has not."""
        return bool(node.outputs) and self.graph.class_of(node.outputs[0]) not in self.known

    def _made(self, value: int) -> bool:
        return value in self.graph.producer

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


def half_of(graph: Graph, known: set[int], differing: list[int]) -> Half:
    """Find out what is derived, and which ops a differing output follows from."""
    half = Half(graph, known)
    for node in graph.nodes:
        picks = node.is_selection or node.is_layout or node.is_scaling
        if picks and not any(half.is_strange(value) for value in node.inputs):
            half.derived.update(c for c in map(graph.class_of, node.outputs) if c not in known)
    queue = [cls for cls in map(graph.class_of, differing) if cls not in known]
    seen = set(queue)
    producers = _producers(graph)
    while queue:
        for index in producers.get(queue.pop(), ()):
            if index in half.reaching:
                continue
            half.reaching.add(index)
            for value in graph.nodes[index].inputs:
                cls = graph.class_of(value)
                if cls not in known and cls not in seen:
                    seen.add(cls)
                    queue.append(cls)
    return half


def _producers(graph: Graph) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for node in graph.nodes:
        for value in node.outputs:
            found.setdefault(graph.class_of(value), []).append(node.index)
    return found


class Search:
    """Looks for the first place where two aligned runs part."""

    def __init__(self, alignment: Alignment, differing: tuple[list[int], list[int]]) -> None:
        self.alignment = alignment
        self.a = half_of(alignment.a, set(alignment.by_a), differing[0])
        self.b = half_of(alignment.b, set(alignment.by_b), differing[1])

    def candidates(self) -> list[Candidate]:
        """All places that may be the first, the likeliest first."""
        found = [self._of_op(node) for node in self._open(self.b) if not node.is_scaling]
        found += list(self._scaled())
        found += list(self._reordered())
        found += list(self._misplaced(found))
        if not found:
            found += self._omitted()
        found += list(self._joins(found))
        found.sort(key=lambda one: (-one.strength, one.order))
        return found

    def follow_steps(self, found: list[Candidate]) -> bool:
        """Follow B through the steps of an op that A has as one; whether that moved the frontier."""
        nodes_a, moved = self.a.graph.nodes, False
        for one in found[:6]:
            if one.b is not None:
                node = self.b.graph.nodes[one.b]
                readers = dict.fromkeys(index for cls in sorted(self._in_a(node)) for index in self._readers_of(cls))
                for index in readers:
                    other = nodes_a[index]
                    if other.name != node.name and self.a.makes_unknown(other):
                        moved = follow(self.alignment, other, node) or moved
        return moved

    def _open(self, half: Half) -> Iterator[Node]:
        for index in sorted(half.reaching):
            node = half.graph.nodes[index]
            if not node.is_layout and not node.is_selection and half.is_open(node):
                yield node

    # -- an op of B --------------------------------------------------------------------------------------

    def _of_op(self, node: Node) -> Candidate:
        twin, is_exact = self.twin(node)
        found = Candidate("op", node.index, None if twin is None else twin.index, "", order=node.index)
        side = node.outputs and self.b.graph.class_of(node.outputs[0]) in self.b.graph.side_classes
        if node.is_random:
            found.kind, found.why, found.strength = "random", "it draws random numbers: dropout is on", 40
        elif side:
            self._judge_side(node, found)
        elif twin is None:
            found.why = "nothing in A is made of the same tensors"
        else:
            same = family(twin.name) == family(node.name)
            found.strength = 20 if same and is_exact else 10
            found.why = "it is given the same tensors as A's and makes others" if same else "A goes on with another op"
            if not same and self._is_joined(node):
                # A loop written at once need not do any of its steps.
                found.strength, found.why = 5, "A goes on with another op in each pass of a loop"
            elif not same:
                self._name_step(node, twin, found)
        self._name_param(node, found)
        return found

    def _is_joined(self, node: Node) -> bool:
        """Whether an op of B reads at once what A has pass by pass."""
        matches = (self.alignment.by_b.get(self.b.graph.class_of(value)) for value in node.inputs)
        return any(one is not None and one.found.layout.startswith(JOINED) for one in matches)

    def _judge_side(self, node: Node, found: Candidate) -> None:
        """A mask or table is to blame only if all else that goes in where it is used is right."""
        found.kind, found.why = "constant", "it makes a mask, position or table that A has not"
        join = self._join(node)
        if join is None or any(self.b.is_strange(v) for v in join.inputs if not self._is_side(v)):
            found.strength = -10
            return
        found.strength = 15

    def _is_side(self, value: int) -> bool:
        return self.b.graph.class_of(value) in self.b.graph.side_classes

    def _join(self, node: Node) -> Node | None:
        """The first op further on that reads more than masks and tables."""
        graph, queue, seen = self.b.graph, [node.index], {node.index}
        found: list[int] = []
        while queue:
            current = graph.nodes[queue.pop(0)]
            for value in current.outputs:
                for index in graph.readers.get(graph.class_of(value), ()):
                    reader = graph.nodes[index]
                    if index in seen or index not in self.b.reaching:
                        continue
                    seen.add(index)
                    is_join = reader.outputs and graph.class_of(reader.outputs[0]) not in graph.side_classes
                    (found if is_join else queue).append(index)
        return graph.nodes[min(found)] if found else None

    def _joins(self, found: list[Candidate]) -> Iterator[Candidate]:
        """Where a wrong mask is used, in case it is its use that is wrong."""
        seen = {one.b for one in found}
        for one in found:
            if one.kind == "constant" and one.strength > 0 and one.b is not None:
                join = self._join(self.b.graph.nodes[one.b])
                if join is not None and join.index not in seen:
                    seen.add(join.index)
                    twin, _ = self.twin(join)
                    why = "it is given a mask, position or table that A has not"
                    yield Candidate("op", join.index, None if twin is None else twin.index, why, 14, join.index)

    def _name_param(self, node: Node, found: Candidate) -> None:
        """Say so where the op reads a parameter whose numbers A has not."""
        graph = self.b.graph
        for value in node.inputs:
            cls = graph.class_of(value)
            entry = graph.value(cls)
            if entry.kind in ("param", "buffer") and cls not in self.b.known and graph.has_contents(cls):
                found.kind = "param"
                found.strength += 5
                assert entry.param is not None
                found.why = f"its {entry.kind} {graph.record.params[entry.param].address} has numbers that A has not"
                return

    def _name_step(self, node: Node, twin: Node, found: Candidate) -> None:
        """Tell a step that B leaves out from one that it adds."""
        made = {self.a.graph.class_of(v) for v in twin.outputs}
        after = [self.a.graph.nodes[i] for cls in made for i in self.a.graph.readers.get(cls, ())]
        if any(family(one.name) == family(node.name) or node.name in STEPS.get(one.name, ()) for one in after):
            found.kind, found.strength = "missing", 18
            found.why = f"A does {twin.name} first; B goes on without it"
            return
        made = {self.b.graph.class_of(v) for v in node.outputs}
        after = [self.b.graph.nodes[i] for cls in made for i in self.b.graph.readers.get(cls, ())]
        if any(family(one.name) == family(twin.name) for one in after):
            found.kind, found.strength = "extra", 18
            found.why = f"A goes on with {twin.name} at once; B does {node.name} first"

    def _scaled(self) -> Iterator[Candidate]:
        """Factors that A has not: to blame where what comes of them is A's but for a factor."""
        graph = self.b.graph
        for index in sorted(self.b.reaching):
            node = graph.nodes[index]
            if node.is_scaling and self.b.is_open(node):
                factor, is_added = self._factor_after(node)
                why = f"what comes of it is {factor:.4g} times A's" if factor else "it scales by a factor A has not"
                twin, _ = self.twin(node)
                strength = 24 if factor or is_added else 5
                yield Candidate("op", index, None if twin is None else twin.index, why, strength, index)

    def _factor_after(self, node: Node) -> tuple[float | None, bool]:
        """By which factor the next result of B is another than A's, if it is one; and whether A goes on unscaled."""
        graph = self.b.graph
        for index in graph.readers.get(graph.class_of(node.outputs[0]), ()):
            reader = graph.nodes[index]
            twin, _ = self.twin(reader)
            if twin is None or family(twin.name) != family(reader.name) or not (twin.outputs and reader.outputs):
                continue
            wanted = self.alignment.sketches[0].get(self.a.graph.class_of(twin.outputs[0]))
            have = self.alignment.sketches[1].get(graph.class_of(reader.outputs[0]))
            if wanted is not None and have is not None and (factor := proportional(wanted, have)):
                return factor, False
            direct = {self.a.graph.class_of(value) for value in twin.inputs}
            if self._in_a(node) <= direct and self._in_a(reader) == direct:
                return None, True
        return None, False

    def _misplaced(self, found: list[Candidate]) -> Iterator[Candidate]:
        """Where an op is given A's numbers in other places, what put them there."""
        for one in found:
            if one.a is not None and one.b is not None:
                origin = misplaced(self.alignment, self.a.graph.nodes[one.a], self.b.graph.nodes[one.b])
                if origin is not None:
                    node, twin = origin
                    why = "it hands on A's numbers in another order"
                    twin_index = None if twin is None else twin.index
                    yield Candidate("order", node.index, twin_index, why, one.strength + 1, node.index)

    # -- the counterpart ---------------------------------------------------------------------------------

    def twin(self, node: Node) -> tuple[Node | None, bool]:
        """The op of A that is made of the same tensors as one of B's, and whether of all of them."""
        wanted = self._in_a(node)
        whole = all(self.b.graph.class_of(value) in self.b.known for value in node.inputs)
        best: tuple[float, Node | None, bool] = (0.0, None, False)
        seen: set[int] = set()
        for cls in wanted:
            for index in self._readers_of(cls):
                if index in seen:
                    continue
                seen.add(index)
                other = self.a.graph.nodes[index]
                if other.is_layout or other.is_selection or not self.a.makes_unknown(other):
                    continue
                reads = set().union(*(self.a.roots(value) for value in other.inputs)) if other.inputs else set()
                shared = len(wanted & reads)
                score = shared + 2.5 * (family(other.name) == family(node.name)) + 0.5 * (other.name == node.name)
                score += 0.6 * (index in self.a.reaching) + 0.3 * self.a.is_open(other) - 1e-6 * index
                if score > best[0]:
                    direct = {self.a.graph.class_of(value) for value in other.inputs}
                    best = (score, other, whole and (wanted <= direct or direct <= wanted))
        return best[1], best[2]

    def _in_a(self, node: Node) -> set[int]:
        """Classes of A that stand for what an op of B reads."""
        found: set[int] = set()
        for value in node.inputs:
            for cls in self.b.roots(value):
                match = self.alignment.by_b.get(cls)
                if match is not None:
                    found.add(match.a)
        return found

    def _readers_of(self, cls: int) -> list[int]:
        """Ops of A that read a class, or something derived from it."""
        graph = self.a.graph
        found, queue, seen = [], [cls], {cls}
        while queue:
            for index in graph.readers.get(queue.pop(), ()):
                node = graph.nodes[index]
                found.append(index)
                for value in node.outputs:
                    made = graph.class_of(value)
                    if made in self.a.derived and made not in seen:
                        seen.add(made)
                        queue.append(made)
        return found

    # -- other order -------------------------------------------------------------------------------------

    def _reordered(self) -> Iterator[Candidate]:
        """Picks whose numbers are A's in another order, or that pick others than A does."""
        graph = self.b.graph
        for index in sorted(self.b.reaching):
            node = graph.nodes[index]
            if not node.is_selection or not self.b.is_open(node):
                continue
            cls = graph.class_of(node.outputs[0])
            if self._is_reordered(node):
                yield Candidate("order", index, self._maker(self.alignment.alike[cls][0]), "", 30, index)
                continue
            if self._is_altered(node):
                yield Candidate(
                    "op", index, None, "it puts A's numbers together again, some of them altered", 12, index
                )
                continue
            twin = self._other_pick(node)
            if twin is not None:
                yield Candidate("op", index, twin.index, "it picks other elements than A does", 25, index)

    def _is_altered(self, node: Node) -> bool:
        """Whether an op joins pieces of one known tensor to something else of the same shape."""
        roots = set().union(*(self.b.roots(value) for value in node.inputs)) if len(node.inputs) > 1 else set()
        if len(roots) != 1 or (cls := next(iter(roots))) not in self.b.known:
            return False
        return self.b.graph.value(node.outputs[0]).shape == self.b.graph.value(cls).shape

    def _is_reordered(self, node: Node) -> bool:
        """Whether A has the same numbers, in the shape of what the op returns, in another order."""
        cls, shape = self.b.graph.class_of(node.outputs[0]), self.b.graph.value(node.outputs[0]).shape
        alike = self.alignment.alike.get(cls, ())
        keeps_shape = any(self.b.graph.value(value).shape == shape for value in node.inputs[:1])
        return any(
            keeps_shape or self.a.graph.value(member).shape == shape
            for other in alike
            for member in self.a.graph.members(other)
        )

    def _maker(self, cls: int) -> int | None:
        return self.a.graph.producer.get(cls)

    def _other_pick(self, node: Node) -> Node | None:
        """An op of A that picks elements of the same shape from the same tensor, which B picks nowhere."""
        shape = self.b.graph.value(node.outputs[0]).shape
        for cls in self._in_a(node):
            for index in self.a.graph.readers.get(cls, ()):
                other = self.a.graph.nodes[index]
                same_kind = other.is_selection and other.name == node.name and self.a.makes_unknown(other)
                if same_kind and self.a.graph.value(other.outputs[0]).shape == shape:
                    return other
        return None

    # -- nothing strange in B ----------------------------------------------------------------------------

    def _omitted(self) -> list[Candidate]:
        """All of B is known to A: what A does after that is missing in B."""
        found = []
        for node in self._open(self.a):
            b = self._last_reader(node)
            why = f"B does everything that A does before {node.name}, and nothing of it after"
            found.append(Candidate("missing", b, node.index, why, 5, node.index))
        return found

    def _last_reader(self, node: Node) -> int | None:
        """Where B has what the missing op is given: the op that makes it."""
        graph, best = self.b.graph, None
        for value in node.inputs:
            for cls in self.a.roots(value):
                match = self.alignment.by_a.get(cls)
                if match is not None:
                    maker = graph.producer.get(graph.class_of(match.b))
                    if maker is not None and (best is None or maker > best):
                        best = maker
        return best
