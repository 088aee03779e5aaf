"""Compare two runs: outputs first, and only where these differ, what leads to them.

    record both  →  outputs close beyond doubt?            equal
                 →  reference again, with rounding noise   how far may they be apart?
                 →  equal, or align, and search the frontier

Fused kernels hide what happens inside, so where outputs differ both sides run again without them, where the framework
can do that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torcheer.diff.align import Alignment, align
from torcheer.diff.alike import uses_of
from torcheer.diff.comparison import (
    DIVERGED,
    EQUAL,
    UNDETERMINED,
    Comparison,
    Divergence,
    MatchResult,
    head,
)
from torcheer.diff.confirm import GIVEN_OTHERS, confirm
from torcheer.diff.frontier import SAME_GIVEN, Search
from torcheer.diff.graph import Graph, build, plain_arguments
from torcheer.diff.half import Candidate
from torcheer.diff.layout import apart, name_order
from torcheer.diff.learning import Learning, compare_learning
from torcheer.diff.noise import Noise
from torcheer.diff.notes import notes_about
from torcheer.diff.numbers import Tolerance, distance
from torcheer.diff.outputs import Pair, are_beyond_doubt, judge, notes_on, pair_outputs
from torcheer.diff.param_map import ParamMap
from torcheer.diff.parts import follow_parts
from torcheer.diff.place import label_of, place_of
from torcheer.diff.runs import Runs
from torcheer.diff.side import CanReplay
from torcheer.diff.transplant import Transplant
from torcheer.diff.trial import try_out
from torcheer.diff.value_map import map_by_value, note_on_weights, weights_of
from torcheer.record.model import Record, Shape

_FUSED = ("scaled_dot_product", "mkldnn_rnn_layer", "_transformer_encoder_layer_fwd", "_native_multi_head_attention")
_NUM_CANDIDATES = 5
_MOST_ROUNDS = 24  # in which the frontier moves past steps and parts that agree
_GROSS = 1e-3  # of an output: no rounding makes as much of a difference


def compare_runs(runs: Runs, given: Tolerance | None = None, learning: Learning | None = None) -> Comparison:
    """Compare two runs and name the first divergence; where they agree, what they learn."""
    result = _compare_forward(runs, given)
    side_a, side_b = runs.sides
    result.notes += notes_about(*runs.first)
    if result.verdict == EQUAL and learning is not None and side_a is not None and side_b is not None:
        graphs = build(runs.first[0], runs.picked[0]), build(runs.first[1], runs.picked[1])
        wanted = replace(learning, is_fresh=runs.is_fresh or not _writes_buffers(runs))
        compare_learning(result, (side_a, side_b), graphs, result.param_map, wanted)
    return result


def _writes_buffers(runs: Runs) -> bool:
    """Whether putting a model back for another run wrote into what its backward pass needs."""
    records = [one.record for one in runs.first]
    return any(r.run.training and any(param.kind == "buffer" for param in r.params) for r in records)


def _map_params(runs: Runs) -> ParamMap:
    a, b = (weights_of(one) for one in runs.first)
    found = map_by_value(a, b, (uses_of(runs.first[0]), uses_of(runs.first[1])))
    found.shapes = {name: array.shape for name, array in b.items()}
    return found


def _compare_forward(runs: Runs, given: Tolerance | None) -> Comparison:
    a, b = (build(one, picked) for one, picked in zip(runs.first, runs.picked, strict=True))
    names = _names(a, b)
    result = Comparison(names, EQUAL, records=runs.first)
    result._mapping = lambda: _map_params(runs)
    pairs = pair_outputs(a, b)
    result.notes += notes_on(a, b, pairs)
    if are_beyond_doubt(a, b, pairs, given):
        noise = Noise(a, None, given)
        judge(result, a, b, pairs, noise)
        result.tolerance = "outputs agree to the last place"
        result._matching = lambda: _matches(align(a, b, noise))
        return result
    fused = _is_fused(a), _is_fused(b)
    rough: Noise | None = None
    if any(fused) and runs.can_unfuse:
        rough = Noise(a, None, given) if _differ_grossly(a, b, pairs) else _measured(a, runs, given)
        if _hides_the_place(a, b, pairs, rough):
            a, b = (build(one, picked) for one, picked in zip(runs.unfused(fused), runs.picked, strict=True))
            result.notes.append("fused kernels were run by their formulas to look inside them")
            pairs, rough = pair_outputs(a, b), None
    noise = rough if rough is not None and rough.is_measured else _measured(a, runs, given)
    result.tolerance = _source_of(noise)
    judge(result, a, b, pairs, noise)
    alignment: list[Alignment] = []

    def aligned() -> Alignment:
        if not alignment:
            alignment.append(align(a, b, noise))
        return alignment[0]

    result._matching = lambda: _matches(aligned())
    if result.verdict == DIVERGED:
        result.notes += note_on_weights(*(weights_of(one) for one in runs.first))
        _find_first(result, aligned(), pairs, runs)
    return result


def _noisy(runs: Runs) -> Graph | None:
    recording = runs.noisy()
    return None if recording is None else build(recording)


def _source_of(noise: Noise) -> str:
    if noise.given is not None:
        return f"given: {noise.given}"
    if noise.is_measured:
        return f"{noise.factor:g} times what rounding does to the reference"
    return "fixed by dtype: the reference could not be run again with noise"


def _names(a: Graph, b: Graph) -> tuple[str, str]:
    return a.record.run.model, b.record.run.model


def _measured(a: Graph, runs: Runs, given: Tolerance | None) -> Noise:
    return Noise(a, None if given is not None else _noisy(runs), given)


def _differ_grossly(a: Graph, b: Graph, pairs: Sequence[Pair]) -> bool:
    """Whether an output is further off than any rounding can be, so that no noise has to be measured to know."""
    arrays = [(a.array(pair.a.value), b.array(pair.b.value)) for pair in pairs if a.has_contents(pair.a.value)]
    return any(one.shape != other.shape or apart(one, other)[0] > _GROSS for one, other in arrays)


def _hides_the_place(a: Graph, b: Graph, pairs: Sequence[Pair], noise: Noise) -> bool:
    """Whether a fused kernel is among the first ops that differ."""
    result = Comparison(_names(a, b), EQUAL)
    judge(result, a, b, pairs, noise)
    wrong = [pair for pair, one in zip(pairs, result.outputs, strict=True) if one.verdict == DIVERGED]
    if not wrong:
        return False
    search = Search(align(a, b, noise), ([p.a.value for p in wrong], [p.b.value for p in wrong]))
    named = search.candidates()[:3]
    nodes = [a.nodes[one.a].name for one in named if one.a is not None]
    nodes += [b.nodes[one.b].name for one in named if one.b is not None]
    for half in (search.a, search.b):
        sides = half.graph.side_classes
        for node in (half.graph.nodes[index] for index in half.reaching):
            main = [value for value in node.inputs if half.graph.class_of(value) not in sides]
            nodes += [] if any(half.is_strange(value) for value in main) else [node.name]
    return not named or any(fused in name for name in nodes for fused in _FUSED) or all(o.a is None for o in named)


def _is_fused(graph: Graph) -> bool:
    return any(name in node.name for node in graph.nodes for name in _FUSED)


def _matches(alignment: Alignment) -> tuple[list[MatchResult], tuple[int, int], tuple[int, int]]:
    """The matches between function-level ops."""
    a, b = alignment.a, alignment.b
    owners_a, owners_b = _owners(a), _owners(b)
    found: dict[tuple[int, int], MatchResult] = {}
    for match in alignment.by_b.values():
        of_a, of_b = owners_a.get(match.a, []), owners_b.get(match.b, [])
        for op_a, op_b in _pairs(a.record, of_a, b.record, of_b):
            labels = label_of(a.record, a.record.ops[op_a]), label_of(b.record, b.record.ops[op_b])
            found.setdefault((op_a, op_b), MatchResult(*labels, match.found.error, match.found.layout))
    totals = tuple(sum(op.kind == "op" and op.layer >= 0 for op in graph.record.ops) for graph in (a, b))
    known = ({op for cls in alignment.by_a for op in owners_a.get(cls, ())}, {op for _, op in found})
    return list(found.values()), totals, (len(known[0]), len(known[1]))  # type: ignore[return-value]


def _pairs(record_a: Record, of_a: list[int], record_b: Record, of_b: list[int]) -> Iterator[tuple[int, int]]:
    """Ops that return the same numbers, one after another, with their counterparts: the like ones, else the first."""
    if not of_a or not of_b:
        return
    left = {op: _sort_of(record_a, op) for op in of_a}
    for op_b in of_b:
        wanted = _sort_of(record_b, op_b)
        like = next((op_a for op_a, sort in left.items() if sort == wanted), None)
        if like is not None:
            del left[like]
        yield of_a[0] if like is None else like, op_b
    for op_a in left:
        yield op_a, of_b[0]


def _sort_of(record: Record, op: int) -> tuple[str, list[Shape]]:
    entry = record.ops[op]
    return entry.name, [record.values[item.value].shape for item in entry.outputs]


def _owners(graph: Graph) -> dict[int, list[int]]:
    """Class → function-level ops that return it, the first one first."""
    found: dict[int, list[int]] = {}
    for op in graph.record.ops:
        if op.kind == "op" and op.layer >= 0:
            for item in op.outputs:
                found.setdefault(graph.class_of(item.value), []).append(op.index)
    return found


def _find_first(result: Comparison, alignment: Alignment, pairs: Sequence[Pair], runs: Runs) -> None:
    wrong = [pair for pair, one in zip(pairs, result.outputs, strict=True) if one.verdict == DIVERGED]
    differing = [pair.a.value for pair in wrong], [pair.b.value for pair in wrong]

    def mapped() -> frozenset[str]:
        return frozenset(pair.target for pair in result.param_map.pairs)

    search = Search(alignment, differing, mapped)
    found = search.candidates()
    for _ in range(_MOST_ROUNDS):
        moved = search.follow_steps(found)
        if not (follow_parts(search, found) or moved):
            break
        search = Search(alignment, differing, mapped)
        found = search.candidates() or found
    side_b: object = runs.sides[1]
    if len(found) > 1 and isinstance(side_b, CanReplay):
        transplant = Transplant(alignment, side_b, list(zip(*differing, strict=True)))
        found = try_out(search, found, transplant)
    divergences = [describe(alignment, one) for one in found[:_NUM_CANDIDATES]]
    if found and _is_chance(alignment, found):
        result.verdict = UNDETERMINED
        result.reasons.append(
            "both sides draw random numbers, and other ones: compare them in eval mode, or with dropout off"
        )
    if divergences:
        _tell_trials(divergences[0], found[0], confirm(alignment, found[0], runs.sides))
    else:
        divergences = [_of_output(alignment, wrong[0], result)]
    result.first_divergence, result.candidates = divergences[0], divergences[1:]


def _tell_trials(told: Divergence, one: Candidate, confirmed: str) -> None:
    """What was found out by making calls again, and a headline that agrees with it."""
    if confirmed.startswith(GIVEN_OTHERS) and SAME_GIVEN in told.headline:
        told.headline = told.headline.replace(SAME_GIVEN, "what it is given is not what A's is")
        told.why = told.why.replace(SAME_GIVEN, "what it is given is not what A's is")
    mends = "With A's numbers in its place, B gives A's outputs." if one.mends else ""
    told.confirmed = " ".join(part for part in (confirmed, mends) if part)


def _is_chance(alignment: Alignment, found: Sequence[Candidate]) -> bool:
    """Whether nothing but the numbers drawn tells the sides apart: A draws with B's arguments."""
    first = found[0]
    if first.kind != "random" or first.b is None or any(o.kind != "random" and o.strength >= 20 for o in found):
        return False
    drawn = [(node.name, node.op) for node in alignment.a.nodes if node.is_random and node.op is not None]
    own = alignment.b.nodes[first.b]
    like = [plain_arguments(op) for name, op in drawn if name == own.name]
    return bool(drawn) and (not like or own.op is None or plain_arguments(own.op) in like)


def describe(alignment: Alignment, one: Candidate) -> Divergence:
    """A candidate in the user's terms."""
    a, b = alignment.a, alignment.b
    node_a = a.nodes[one.a] if one.a is not None else None
    node_b = b.nodes[one.b] if one.b is not None else None
    place_a = place_of(a, node_a) if node_a is not None else None
    place_b = place_of(b, node_b) if node_b is not None else None
    found = Divergence(one.kind, "", place_a, place_b)
    value_a = node_a.outputs[0] if node_a is not None and node_a.outputs else None
    value_b = node_b.outputs[0] if node_b is not None and node_b.outputs else None
    array_a = a.array(value_a) if value_a is not None and a.has_contents(value_a) else None
    array_b = b.array(value_b) if value_b is not None and b.has_contents(value_b) else None
    found.heads = "" if array_a is None else head(array_a), "" if array_b is None else head(array_b)
    if array_a is not None and array_b is not None:
        assert value_a is not None
        close = alignment.close(value_a)
        if one.kind == "order":
            one.why = name_order(array_a, array_b, close) or one.why
        if array_a.shape == array_b.shape:
            found.distance = distance(array_b, array_a, Tolerance(0.0, close.peak)).turned()
    same_call = place_a is not None and place_b is not None and place_a.aten == place_b.aten
    if same_call and place_a is not None and place_b is not None and place_a.arguments != place_b.arguments:
        one.why += f"; its arguments differ: A has ({place_a.arguments}), B has ({place_b.arguments})"
    if one.kind == "order" and not one.why:
        one.why = "the same numbers in another order"
    subject = place_b or place_a
    assert subject is not None
    side = "B" if place_b is not None else "A"
    if one.kind == "missing" and place_a is not None:
        subject, side = place_a, "A"
    line = f" at {subject.frame.where}" if subject.frame else ""
    module = f" in {subject.module}" if subject.module else ""
    found.headline = f"{side}'s {subject.op}{module}{line}: {one.why}"
    found.why = one.why
    return found


def _of_output(alignment: Alignment, pair: Pair, result: Comparison) -> Divergence:
    """Nothing but the output itself differs: it is another value of A's, or in another order."""
    a, b = alignment.a, alignment.b
    places = []
    for graph, value in ((a, pair.a.value), (b, pair.b.value)):
        node = graph.producer.get(value, graph.producer.get(graph.class_of(value)))
        places.append(None if node is None else place_of(graph, graph.nodes[node]))
    one, other = a.array(pair.a.value), b.array(pair.b.value)
    how_far = distance(other, one, Tolerance(0.0, 1e-4)).turned() if one.shape == other.shape else None
    reason = result.reasons[0] if result.reasons else "the output differs"
    match = alignment.by_b.get(b.class_of(pair.b.value))
    if match is not None and match.a != a.class_of(pair.a.value):
        reason += "; B returns what A has earlier"
    where = f" at {places[1].frame.where}" if places[1] is not None and places[1].frame else ""
    return Divergence("order", f"{reason}{where}", places[0], places[1], how_far, (head(one), head(other)))
