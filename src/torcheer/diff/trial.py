"""Several places may be the first mistake: each is tried, and the one that mends B goes first.

Places on one line are one place: a function called for every layer, or for queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence

from torcheer.diff.align import Alignment
from torcheer.diff.arrays import Array
from torcheer.diff.expand import steps_of, without_bias
from torcheer.diff.frontier import Search
from torcheer.diff.graph import Node
from torcheer.diff.half import Candidate
from torcheer.diff.transplant import Effect, Transplant, fitted, other_layouts

_MOST_PLACES = 6
_MOST_TRIES = 4  # of numbers at one place
_DEEPEST = 3  # ops of A after the counterpart, whose numbers B may need there


def try_out(search: Search, found: list[Candidate], transplant: Transplant) -> list[Candidate]:
    """The places in the order in which they mend B; as they were where no trial tells."""
    groups = _groups(search.alignment, found)
    if len(groups) < 2:
        return found
    effects: dict[int, Effect] = {}
    best: int | None = None
    for place, group in enumerate(groups[:_MOST_PLACES]):
        # Numbers put in after the mistake mend as well: of two places, the one that leads to the other counts.
        if best is not None and effects[best].mended == 1 and not _leads(search, group, groups[best]):
            continue
        effect = _effect(search, group, transplant)
        if effect is None:
            continue
        effects[place] = effect
        if effect.is_any and (best is None or _is_better(search, groups, effects, place, best)):
            best = place
    if best is None:
        return found
    for one in groups[best]:
        one.mends = effects[best].mended == 1
    # What could not be tried and leads to the best place may be the mistake as well.
    ahead = [place for place in range(best) if place not in effects and _leads(search, groups[place], groups[best])]
    order = [*ahead, best, *(place for place in range(len(groups)) if place != best and place not in ahead)]
    return [one for place in order for one in groups[place]]


def _is_better(
    search: Search, groups: Sequence[Sequence[Candidate]], effects: dict[int, Effect], place: int, best: int
) -> bool:
    if _leads(search, groups[place], groups[best]):
        return True
    return effects[place] > effects[best] and not _leads(search, groups[best], groups[place])


def _leads(search: Search, group: Sequence[Candidate], other: Sequence[Candidate]) -> bool:
    """Whether what one line makes goes into what the other does."""
    return bool(_before(search, other) & {one.b for one in group})


def _before(search: Search, group: Sequence[Candidate]) -> set[int | None]:
    """All ops of B that lead to some of its ops."""
    graph = search.alignment.b
    queue = [one.b for one in group if one.b is not None]
    found: set[int | None] = set(queue)
    while queue:
        for value in graph.nodes[queue.pop()].inputs:
            for read in {value, graph.class_of(value)}:
                index = graph.producer.get(read)
                if index is not None and index not in found:
                    found.add(index)
                    queue.append(index)
    return found


def _groups(alignment: Alignment, found: Sequence[Candidate]) -> list[list[Candidate]]:
    groups: dict[object, list[Candidate]] = {}
    for one in found:
        groups.setdefault(_line(alignment, one), []).append(one)
    return list(groups.values())


def _line(alignment: Alignment, one: Candidate) -> object:
    graph, index = (alignment.b, one.b) if one.b is not None else (alignment.a, one.a)
    assert index is not None
    node = graph.nodes[index]
    owner = graph.record.ops[node.owner] if node.owner >= 0 else None
    site = owner.site if owner is not None else None
    frames = graph.record.sites[site].frames if site is not None else ()
    return (frames[-1].file, frames[-1].line) if frames else (graph is alignment.b, index)


def _effect(search: Search, group: Sequence[Candidate], transplant: Transplant) -> Effect | None:
    """The best that A's numbers do at all places of one line."""
    alignment = search.alignment
    choices = [(one, _numbers(search, one)) for one in group if one.b is not None]
    best: Effect | None = None
    for attempt in range(_MOST_TRIES):
        given = {}
        for one, numbers in choices:
            if numbers:
                assert one.b is not None
                value = alignment.b.nodes[one.b].outputs[0]
                given[value] = numbers[min(attempt, len(numbers) - 1)]
        if not given or all(attempt >= len(numbers) for _, numbers in choices):
            break
        effect = transplant.effect(given)
        if effect is not None and (best is None or effect > best):
            best = effect
        if best is not None and best.mended == 1:
            break
    return best


def _numbers(search: Search, one: Candidate) -> list[Array]:
    """What may have to stand where a candidate's result is, the likeliest first."""
    a, b = search.alignment.a, search.alignment.b
    assert one.b is not None
    node = b.nodes[one.b]
    if not node.outputs or not b.has_contents(node.outputs[0]):
        return []
    own = b.array(node.outputs[0])
    first = []
    if one.kind in ("extra", "order") or node.is_scaling:
        given = [b.array(value) for value in node.inputs[:1] if b.has_contents(value)]
        first = [array for array in given if array.shape == own.shape]
    if one.a is None:
        return first
    if one.kind == "order":
        turned = [a.array(value) for value in a.nodes[one.a].outputs[:1] if a.has_contents(value)]
        first += [layout for array in turned for layout in other_layouts(array, own)]
    choices: list[Array] = []
    for other in _onward(search, a.nodes[one.a]):
        choices += steps_of(a, other)
        choices += [a.array(value) for value in other.outputs[:1] if a.has_contents(value)]
        choices += without_bias(a, other)
    likely = [found for array in choices if (found := fitted(array, own)) is not None]
    twin = a.nodes[one.a].outputs[:1]
    direct = [found for value in twin if a.has_contents(value) and (found := fitted(a.array(value), own)) is not None]
    return first + [array for _, array in direct + sorted(likely, key=lambda found: -found[0])]


def _onward(search: Search, first: Node) -> list[Node]:
    """An op of A and those after it that B has not."""
    graph = search.alignment.a
    found, level = [first], [first]
    for _ in range(_DEEPEST):
        made = {graph.class_of(value) for node in level for value in node.outputs}
        level = [
            graph.nodes[index]
            for cls in sorted(made)
            for index in graph.readers.get(cls, ())
            if search.a.makes_unknown(graph.nodes[index]) and graph.nodes[index] not in found
        ]
        found += level
    return found
