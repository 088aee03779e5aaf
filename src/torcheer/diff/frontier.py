"""The first place where two runs part: the earliest op given what the other side has too, that makes what it has not.

A value of B is *known* when its numbers are somewhere in A, *derived* when it is picked or joined from such values, and
*strange* otherwise. The frontier are the computing ops that read no strange value, make one, and from which an output
that differs is reached through strange values alone: what is written differently and comes to the same again further
on is never blamed. The same is done from A's side, which tells what B left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torcheer.diff.align import Alignment
from torcheer.diff.expand import follow
from torcheer.diff.families import family
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate, Half, cleared, half_of
from torcheer.diff.naming import is_joined, name_left_out, name_param, name_scale, name_step
from torcheer.diff.reorder import misplacements, omitted, reordered, scaled, wrong_picks
from torcheer.diff.tables import judge_table, uses_of_tables

SAME_GIVEN = "it is given the same tensors as A's and makes others"


class Search:
    """Looks for the first place where two aligned runs part."""

    def __init__(
        self,
        alignment: Alignment,
        differing: tuple[list[int], list[int]],
        mapped: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.alignment = alignment
        self.differing = differing
        self.a = half_of(alignment.a, set(alignment.by_a), differing[0])
        self.mapped = mapped  # names the params of B that are made up of A's
        self.b = half_of(alignment.b, set(alignment.by_b), differing[1], cleared(alignment))

    def candidates(self) -> list[Candidate]:
        """All places that may be the first, the likeliest first."""
        found = [self._of_op(node) for node in self.open_ops(self.b) if not node.is_scaling]
        found += list(scaled(self))
        found += list(reordered(self))
        found += list(misplacements(self, found)) + list(wrong_picks(self, found))
        if not found:
            found += omitted(self)
        found += list(uses_of_tables(self, found))
        found.sort(key=lambda one: (-one.strength, one.order))
        return self._explaining(found)

    def _explaining(self, found: list[Candidate]) -> list[Candidate]:
        """The same, first those that every differing output follows from, if there are such."""
        num = len({self.b.graph.class_of(value) for value in self.differing[1]})
        whole = [one for one in found if one.b is None or self.b.num_reached.get(one.b, num) == num]
        if not any(one.strength >= 5 for one in whole):
            return found
        return whole + [one for one in found if one not in whole]

    def follow_steps(self, found: list[Candidate]) -> bool:
        """Follow B through the steps of an op that A has as one; whether that moved the frontier."""
        nodes_a, moved = self.a.graph.nodes, False
        for one in found[:6]:
            if one.b is not None:
                node = self.b.graph.nodes[one.b]
                readers = dict.fromkeys(index for cls in sorted(self.in_a(node)) for index in self.readers_of(cls))
                for index in readers:
                    other = nodes_a[index]
                    if other.name != node.name and self.a.makes_unknown(other):
                        moved = follow(self.alignment, other, node) or moved
        return moved

    def open_ops(self, half: Half) -> Iterator[Node]:
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
            judge_table(self, node, found)
        elif twin is None:
            found.why = "nothing in A is made of the same tensors"
        else:
            same = family(twin.name) == family(node.name)
            found.strength = 20 if same and is_exact else 10
            found.why = SAME_GIVEN if same else "A goes on with another op"
            if not same and is_joined(self, node):
                # A loop written at once need not do any of its steps.
                found.strength, found.why = 5, "A goes on with another op in each pass of a loop"
            elif not same:
                name_step(self, node, twin, found)
            elif not is_exact:
                found.why = f"it is given some of what A's {twin.name} is, and makes something else"
                name_left_out(self, node, twin, found)
            name_scale(self, node, twin, found)
        is_float = node.outputs and self.b.graph.value(node.outputs[0]).dtype.startswith(("float", "bfloat", "complex"))
        if found.kind == "op" and not is_float:
            found.strength = min(found.strength, 8)  # a comparison or a choice: seldom written alike
        name_param(self, node, found)
        return found

    # -- the counterpart ---------------------------------------------------------------------------------

    def twin(self, node: Node) -> tuple[Node | None, bool]:
        """The op of A that is made of the same tensors as one of B's, and whether of all of them."""
        wanted = self.in_a(node)
        whole = all(self.b.graph.class_of(value) in self.b.known for value in node.inputs)
        best: tuple[float, Node | None, bool] = (0.0, None, False)
        seen: set[int] = set()
        for cls in wanted:
            for index in self.readers_of(cls):
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

    def in_a(self, node: Node) -> set[int]:
        """Classes of A that stand for what an op of B reads."""
        found: set[int] = set()
        for value in node.inputs:
            for cls in self.b.roots(value):
                match = self.alignment.by_b.get(cls)
                if match is not None:
                    found.add(match.a)
        return found

    def readers_of(self, cls: int) -> list[int]:
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

    # -- nothing strange in B ----------------------------------------------------------------------------
