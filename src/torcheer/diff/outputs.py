"""The outputs of two runs: which is which, and whether they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torcheer.diff.arrays import precision_of
from torcheer.diff.comparison import DIVERGED, EQUAL, UNDETERMINED, Comparison, OutputResult
from torcheer.diff.graph import Graph, Output
from torcheer.diff.layout import apart, name_order
from torcheer.diff.noise import CHAOTIC, Noise
from torcheer.diff.numbers import Tolerance, distance
from torcheer.errors import ComparisonError

_BEYOND_DOUBT = 2.0  # in units of precision: closer than one rounding at the end


@dataclass
class Pair:
    """One output of both sides."""

    a: Output
    b: Output


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


def notes_on(a: Graph, b: Graph, pairs: Sequence[Pair]) -> list[str]:
    """Outputs that are compared although their places or kinds of numbers differ, each in a sentence."""
    notes = []
    for pair in pairs:
        one, other = (path or "tensor" for path in (pair.a.path, pair.b.path))
        if pair.a.path != pair.b.path:
            notes.append(f"the structures of the outputs differ: A's {one} is compared with B's {other}")
        dtypes = a.value(pair.a.value).dtype, b.value(pair.b.value).dtype
        if dtypes[0] != dtypes[1] and not all(dtype.startswith(("float", "bfloat")) for dtype in dtypes):
            notes.append(f"A returns {pair.a.path or 'its output'} as {dtypes[0]}, B as {dtypes[1]}")
    if not a.nodes and not b.nodes:
        notes.append("neither model computes anything: both return what they are given")
    return notes


def _listed(graph: Graph) -> str:
    shown = [f"{one.path or 'a tensor'} {graph.value(one.value).shape}" for one in graph.outputs[:6]]
    return ", ".join(shown) + (", …" if len(graph.outputs) > 6 else "")


def are_beyond_doubt(a: Graph, b: Graph, pairs: Sequence[Pair], given: Tolerance | None) -> bool:
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


def judge(result: Comparison, a: Graph, b: Graph, pairs: Sequence[Pair], noise: Noise) -> None:
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
        finite = np.abs(one[np.isfinite(one)]).astype(np.float64)
        bound = close.peak * np.sqrt(np.mean(np.square(finite))) if finite.size else 0.0
        how_far = distance(other, one, Tolerance(float(bound), close.peak))
        if verdict == EQUAL and not noise.is_sure(pair.a.value, rms):
            verdict = UNDETERMINED
    reason = ""
    if verdict == UNDETERMINED:
        reason = f"{path}: apart by {rms:.1g} of its size, which rounding may do to A as well"
    if verdict == DIVERGED:
        order = name_order(one, other, close)
        reason = f"{path} differs" + (f": {order}" if order else "")
    error = apart(one, other)[0]
    dtypes = {"A": a.value(pair.a.value).dtype, "B": b.value(pair.b.value).dtype}
    low = [f"{side}'s is {dtype}" for side, dtype in dtypes.items() if precision_of(dtype) > 1e-5]
    if verdict == DIVERGED and noise.given is None and (noise.of(pair.a.value).rms > CHAOTIC or (low and error < 0.5)):
        verdict = UNDETERMINED
        reason = f"{path}: rounding alone changes A by {noise.of(pair.a.value).rms:.1g} of its size"
        if len(low) == 1:
            reason = f"{path}: {low[0]}, too coarse to tell rounding from a difference of {error:.1g} of its size"
    return OutputResult(
        pair.a.path, pair.b.path, verdict, how_far, close.rms, reason, error if np.isfinite(error) else None
    )
