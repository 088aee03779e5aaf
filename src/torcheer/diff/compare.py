"""Compare two runs: outputs first, and only where these differ, what leads to them.

    record both  →  outputs close beyond doubt?            equal
                 →  reference again, with rounding noise   how far may they be apart?
                 →  equal, or align, and search the frontier

Fused kernels hide what happens inside, so where outputs differ both sides run again without them, where the framework
can do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torcheer.diff.align import Alignment, align
from torcheer.diff.arrays import precision_of
from torcheer.diff.comparison import (
    DIVERGED,
    EQUAL,
    UNDETERMINED,
    Comparison,
    Divergence,
    MatchResult,
    OutputResult,
    head,
)
from torcheer.diff.frontier import Candidate, Search
from torcheer.diff.graph import Graph, Output, build
from torcheer.diff.layout import apart, name_order
from torcheer.diff.noise import CHAOTIC, Noise
from torcheer.diff.numbers import Tolerance, distance
from torcheer.diff.place import label_of, place_of
from torcheer.diff.runs import Runs
from torcheer.errors import ComparisonError

_BEYOND_DOUBT = 2.0  # in units of precision: closer than one rounding at the end
_FUSED = ("scaled_dot_product", "mkldnn_rnn_layer", "_transformer_encoder_layer_fwd", "_native_multi_head_attention")
_NUM_CANDIDATES = 5


@dataclass
class Pair:
    """One output of both sides."""

    a: Output
    b: Output


def compare_runs(runs: Runs, given: Tolerance | None = None) -> Comparison:
    """Compare two runs and name the first divergence."""
    a, b = build(runs.first[0]), build(runs.first[1])
    names = _names(a, b)
    result = Comparison(names, EQUAL, records=runs.first)
    pairs = pair_outputs(a, b)
    if _are_beyond_doubt(a, b, pairs, given):
        noise = Noise(a, None, given)
        _judge(result, a, b, pairs, noise)
        result.tolerance = "outputs agree to the last place"
        result._matching = lambda: _matches(align(a, b, noise))
        return result
    if any(_is_fused(graph) for graph in (a, b)) and runs.can_unfuse:
        a, b = (build(one) for one in runs.unfused())
        result.notes.append("fused kernels were run by their formulas to look inside them")
        pairs = pair_outputs(a, b)
    noise = Noise(a, None if given is not None else _noisy(runs), given)
    result.tolerance = _source_of(noise)
    _judge(result, a, b, pairs, noise)
    alignment: list[Alignment] = []

    def aligned() -> Alignment:
        if not alignment:
            alignment.append(align(a, b, noise))
        return alignment[0]

    result._matching = lambda: _matches(aligned())
    if result.verdict == DIVERGED:
        _find_first(result, aligned(), pairs)
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


def _is_fused(graph: Graph) -> bool:
    return any(name in node.name for node in graph.nodes for name in _FUSED)


def pair_outputs(a: Graph, b: Graph) -> list[Pair]:
    """Which output is which: by place where the places have equal names, else in order."""
    if not a.outputs or not b.outputs:
        side, model = ("A", a) if not a.outputs else ("B", b)
        raise ComparisonError(
            f"{side} ({model.record.run.model}) returned no tensor, so there is nothing to compare. "
            "Pass models that return tensors, in whatever structure."
        )
    in_b = {output.path: output for output in b.outputs}
    shared = [Pair(one, in_b[one.path]) for one in a.outputs if one.path in in_b]
    if len(a.outputs) == len(b.outputs):
        if len(shared) == len(a.outputs):
            return shared
        return [Pair(one, other) for one, other in zip(a.outputs, b.outputs, strict=True)]
    if shared and all(pair.a.path for pair in shared):
        return shared
    raise ComparisonError(
        f"The models return different structures: A returns {_listed(a)}, B returns {_listed(b)}. "
        "Pass pick=(for_a, for_b), functions that take a model's output and return the tensors to compare: "
        "pick=(lambda out: out.last_hidden_state, None)."
    )


def _listed(graph: Graph) -> str:
    shown = [f"{one.path or 'a tensor'} {graph.value(one.value).shape}" for one in graph.outputs[:6]]
    return ", ".join(shown) + (", …" if len(graph.outputs) > 6 else "")


def _are_beyond_doubt(a: Graph, b: Graph, pairs: Sequence[Pair], given: Tolerance | None) -> bool:
    if given is not None:
        return False
    for pair in pairs:
        if not (a.has_contents(pair.a.value) and b.has_contents(pair.b.value)):
            return False
        one, other = a.array(pair.a.value), b.array(pair.b.value)
        if one.shape != other.shape or a.value(pair.a.value).dtype != b.value(pair.b.value).dtype:
            return False
        precision = precision_of(a.value(pair.a.value).dtype)
        if precision > 1e-5 or apart(one, other)[0] > _BEYOND_DOUBT * precision:
            return False
    return True


def _judge(result: Comparison, a: Graph, b: Graph, pairs: Sequence[Pair], noise: Noise) -> None:
    """Judge every output and by them the whole."""
    result.outputs = [_judge_one(a, b, pair, noise) for pair in pairs]
    verdicts = {one.verdict for one in result.outputs}
    result.verdict = next((v for v in (DIVERGED, UNDETERMINED) if v in verdicts), EQUAL)
    result.reasons += [one.reason for one in result.outputs if one.reason and one.verdict != EQUAL]


def _judge_one(a: Graph, b: Graph, pair: Pair, noise: Noise) -> OutputResult:
    path = pair.a.path or pair.b.path or "the output"
    for side, graph, output in (("A", a, pair.a), ("B", b, pair.b)):
        if not graph.has_contents(output.value):
            raise ComparisonError(
                f"The contents of {path} were not kept in {side}'s recording. Record with layers_to_save='all'."
            )
    one, other = a.array(pair.a.value), b.array(pair.b.value)
    close = noise.close(pair.a.value)
    if one.shape != other.shape:
        order = name_order(one, other, close)
        reason = f"{path} has shape {one.shape} in A and {other.shape} in B" + (f"; {order}" if order else "")
        return OutputResult(pair.a.path, pair.b.path, DIVERGED, None, close.rms, reason)
    if noise.given is not None:
        how_far = distance(other, one, noise.given)
        verdict = EQUAL if how_far.is_equal else DIVERGED
    else:
        rms, peak = apart(one, other)
        verdict = EQUAL if rms <= close.rms and peak <= close.peak else DIVERGED
        bound = close.peak * (np.sqrt(np.mean(np.square(np.nan_to_num(one.astype(np.float64)))))) if one.size else 0.0
        how_far = distance(other, one, Tolerance(float(bound), close.peak))
    reason = ""
    if verdict == DIVERGED:
        order = name_order(one, other, close)
        reason = f"{path} differs" + (f": {order}" if order else "")
    error = apart(one, other)[0]
    low = precision_of(a.value(pair.a.value).dtype) > 1e-5
    if verdict == DIVERGED and noise.given is None and (noise.of(pair.a.value).rms > CHAOTIC or (low and error < 0.5)):
        verdict = UNDETERMINED
        reason = f"{path}: rounding alone changes A by {noise.of(pair.a.value).rms:.1g} of its size"
    return OutputResult(
        pair.a.path, pair.b.path, verdict, how_far, close.rms, reason, error if np.isfinite(error) else None
    )


def _matches(alignment: Alignment) -> tuple[list[MatchResult], tuple[int, int], tuple[int, int]]:
    """The matches between function-level ops."""
    a, b = alignment.a, alignment.b
    owners_a, owners_b = _owners(a), _owners(b)
    found: dict[tuple[int, int], MatchResult] = {}
    for match in alignment.by_b.values():
        for op_b in owners_b.get(match.b, ()):
            op_a = next(iter(owners_a.get(match.a, ())), None)
            if op_a is not None and (op_a, op_b) not in found:
                labels = label_of(a.record, a.record.ops[op_a]), label_of(b.record, b.record.ops[op_b])
                found[op_a, op_b] = MatchResult(*labels, match.found.error, match.found.layout)
    totals = tuple(sum(op.kind == "op" and op.layer >= 0 for op in graph.record.ops) for graph in (a, b))
    known = ({op for cls in alignment.by_a for op in owners_a.get(cls, ())}, {op for _, op in found})
    return list(found.values()), totals, (len(known[0]), len(known[1]))  # type: ignore[return-value]


def _owners(graph: Graph) -> dict[int, list[int]]:
    """Class → function-level ops that return it, the first one first."""
    found: dict[int, list[int]] = {}
    for op in graph.record.ops:
        if op.kind == "op" and op.layer >= 0:
            for item in op.outputs:
                found.setdefault(graph.class_of(item.value), []).append(op.index)
    return found


def _find_first(result: Comparison, alignment: Alignment, pairs: Sequence[Pair]) -> None:
    wrong = [pair for pair, one in zip(pairs, result.outputs, strict=True) if one.verdict == DIVERGED]
    differing = [pair.a.value for pair in wrong], [pair.b.value for pair in wrong]
    found = Search(alignment, differing).candidates()
    divergences = [describe(alignment, one) for one in found[:_NUM_CANDIDATES]]
    if not divergences:
        divergences = [_of_output(alignment, wrong[0], result)]
    result.first_divergence, result.candidates = divergences[0], divergences[1:]


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
            one.why = name_order(array_a, array_b, close) or "the same numbers in another order"
        if array_a.shape == array_b.shape:
            found.distance = distance(array_b, array_a, Tolerance(0.0, close.peak))
    same_call = place_a is not None and place_b is not None and place_a.aten == place_b.aten
    if same_call and place_a is not None and place_b is not None and place_a.arguments != place_b.arguments:
        one.why += f"; its arguments differ: A has ({place_a.arguments}), B has ({place_b.arguments})"
    subject = place_b or place_a
    assert subject is not None
    side = "B" if place_b is not None else "A"
    if one.kind == "missing" and place_a is not None:
        subject, side = place_a, "A"
    line = f" at {subject.frame}" if subject.frame else ""
    module = f" in {subject.module}" if subject.module else ""
    found.headline = f"{side}'s {subject.op}{module}{line}: {one.why}"
    return found


def _of_output(alignment: Alignment, pair: Pair, result: Comparison) -> Divergence:
    """Nothing but the output itself differs: it is another value of A's, or in another order."""
    a, b = alignment.a, alignment.b
    places = []
    for graph, value in ((a, pair.a.value), (b, pair.b.value)):
        node = graph.producer.get(value, graph.producer.get(graph.class_of(value)))
        places.append(None if node is None else place_of(graph, graph.nodes[node]))
    one, other = a.array(pair.a.value), b.array(pair.b.value)
    how_far = distance(other, one, Tolerance(0.0, 1e-4)) if one.shape == other.shape else None
    reason = result.reasons[0] if result.reasons else "the output differs"
    match = alignment.by_b.get(b.class_of(pair.b.value))
    if match is not None and match.a != a.class_of(pair.a.value):
        reason += "; B returns what A has earlier"
    where = f" at {places[1].frame}" if places[1] is not None and places[1].frame else ""
    return Divergence("order", f"{reason}{where}", places[0], places[1], how_far, (head(one), head(other)))
