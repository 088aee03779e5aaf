"""After the forward passes agree: buffers, backward, and training steps, and the place of the first that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torcheer.diff.alike import settle
from torcheer.diff.arrays import Array
from torcheer.diff.comparison import DIVERGED, EQUAL, UNDETERMINED, Comparison, Divergence, TensorResult
from torcheer.diff.graph import Graph
from torcheer.diff.numbers import Tolerance
from torcheer.diff.outputs import pair_outputs
from torcheer.diff.param_map import ParamMap
from torcheer.diff.place import Place, place_of
from torcheer.diff.side import Side
from torcheer.diff.training import Gradients, Steps, compare_buffers, compare_gradients, complete
from torcheer.diff.unmapped import compare_unmapped
from torcheer.diff.value_map import weights_of

_DIFFERENTIABLE = ("float", "bfloat", "complex")


@dataclass(frozen=True)
class Learning:
    """What of learning is compared."""

    backward: bool = True
    steps: int = 0  # training steps
    has_loss: bool = False
    given: Tolerance | None = None  # the user's
    is_asked: bool = True  # by the user, and so to be judged in full
    is_fresh: bool = True  # the last run of both sides is the one to go backward through


def compare_learning(
    result: Comparison, sides: tuple[Side, Side], graphs: tuple[Graph, Graph], found: ParamMap, wanted: Learning
) -> None:
    """Compare what the runs wrote, their gradients, and training steps; stops at the first that differs."""
    a, b = sides
    trained = {address for side in sides for leaf in side.leaves() for address in _trained(leaf.address, leaf.trained)}
    if not wanted.is_fresh:
        a.record_forward()
        b.record_forward()
    if graphs[0].record.run.training or graphs[1].record.run.training:
        after = a.weights(), b.weights()
        found = settle(found, weights_of(graphs[0].recording), *after)
        result.weights += compare_buffers(found, *after, trained)
        if _first(result, result.weights, graphs, "buffer"):
            return
    if wanted.steps:
        _train(result, sides, graphs, found, wanted)
    elif wanted.backward:
        gradients = _backward(a, b, graphs, wanted)
        if gradients is not None:
            found, gradients = _sorted_out(found, gradients, a)
            result.gradients = compare_gradients(found, *gradients, given=wanted.given)
            result.gradients += _unmapped(found, *gradients)
            if wanted.is_asked:
                result.gradients += _frozen(found, *gradients)
            _first(result, result.gradients, graphs, "gradient")
    if result.gradients:
        result.notes += _left_out(result.gradients, found, trained)
        open_ones = [one for one in result.gradients if one.verdict == UNDETERMINED]
        if result.verdict == EQUAL and open_ones and wanted.is_asked:
            result.verdict = UNDETERMINED
            result.reasons += [
                f"the outputs agree; the gradient of B's {one.target}: {one.reason}" for one in open_ones
            ]


def _sorted_out(
    found: ParamMap, gradients: tuple[Gradients, Gradients], a: Side
) -> tuple[ParamMap, tuple[Gradients, Gradients]]:
    """The map with what the gradients tell of tensors that began alike, and A's gradients with zeros where B joins."""
    weights = a.weights()
    own = complete(found, gradients[0], weights)
    return settle(found, weights, own, gradients[1]), (own, gradients[1])


def _frozen(found: ParamMap, a: Gradients, b: Gradients) -> list[TensorResult]:
    """Tensors that one side trains and the other does not."""
    results = []
    for pair in found.pairs:
        trained = all(source in a for source in pair.sources), pair.target in b
        own = [b.get(pair.target)] if trained[1] else [a[source] for source in pair.sources if source in a]
        if trained[0] != trained[1] and any(one is not None and one.any() for one in own):
            reason = f"{'BA'[trained[1]]} does not train it: requires_grad is off"
            results.append(TensorResult("gradient", pair.target, list(pair.sources), 0, DIVERGED, None, reason))
    return results


def _unmapped(found: ParamMap, a: Gradients, b: Gradients) -> list[TensorResult]:
    """The gradients of trained tensors that the map does not know."""
    left = [name for name in found.only_a if name in a], [name for name in found.only_b if name in b]
    result = compare_unmapped(*left, a, b)
    return [] if result is None else [result]


def _left_out(results: Sequence[TensorResult], found: ParamMap, trained: set[str]) -> list[str]:
    """Trained tensors whose gradients were not compared, and why."""
    compared = {name for one in results for name in (*one.target.split(", "), *one.sources)}
    left = [
        [name for name in names if name in trained and name not in compared] for names in (found.only_a, found.only_b)
    ]
    notes = []
    for side, rest in zip("AB", left, strict=True):
        if rest:
            shown = ", ".join(rest[:5]) + (f" and {len(rest) - 5} more" if rest[5:] else "")
            notes.append(f"gradients of {side} were not compared where no tensor of the other has the numbers: {shown}")
    return notes


def _trained(address: str, names: Sequence[str]) -> list[str]:
    return [f"{address}.{name}" if address else name for name in names]


def _backward(a: Side, b: Side, graphs: tuple[Graph, Graph], wanted: Learning) -> tuple[Gradients, Gradients] | None:
    """Gradients of both sides, from the loss or from the same random gradients of the outputs."""
    if not wanted.has_loss and not any(g.value(o.value).requires_grad for g in graphs for o in g.outputs):
        return None
    given: tuple[list[Array], list[Array]] = ([], [])
    pairs = pair_outputs(*graphs)
    for side, graph in enumerate(graphs):
        places = {(pair.a, pair.b)[side].path: place for place, pair in enumerate(pairs)}
        for output in graph.every_output:
            entry = graph.value(output.value)
            if entry.dtype.startswith(_DIFFERENTIABLE):
                place = places.get(output.path)
                drawn = np.random.default_rng([11, place or 0]).standard_normal(entry.shape)
                given[side].append((drawn if place is not None else np.zeros(entry.shape)).astype(np.float32))
    return a.backward(given[0]), b.backward(given[1])


def _train(
    result: Comparison, sides: tuple[Side, Side], graphs: tuple[Graph, Graph], found: ParamMap, wanted: Learning
) -> None:
    a, b = sides
    steps = Steps(a, b, found, wanted.given, before=(a.weights(), b.weights()))
    for step in range(wanted.steps):
        if step:
            a.record_forward()
            b.record_forward()
        gradients = _backward(a, b, graphs, wanted)
        if gradients is None:
            return
        a.step()
        b.step()
        if not step:
            steps.found, gradients = _sorted_out(found, gradients, a)
        else:
            gradients = complete(steps.found, gradients[0], steps.before[0]), gradients[1]
        wrong = steps.after_step(*gradients, step)
        left = _unmapped(steps.found, *gradients) + ([] if step else _frozen(steps.found, *gradients))
        steps.results += left
        if wrong or any(one.verdict == DIVERGED for one in left):
            break
    result.gradients = [one for one in steps.results if one.what == "gradient"]
    result.weights += [one for one in steps.results if one.what != "gradient"]
    gradient_wrong = any(one.verdict == DIVERGED for one in result.gradients)
    results = result.gradients if gradient_wrong else sorted(result.weights, key=lambda one: one.what != "state")
    _first(result, results, graphs, "gradient" if gradient_wrong else "weight")


def _first(result: Comparison, results: Sequence[TensorResult], graphs: tuple[Graph, Graph], kind: str) -> bool:
    """Make the first tensor that differs the first divergence; backward it is the one used last in forward."""
    wrong = [one for one in results if one.verdict == DIVERGED]
    if not wrong:
        return False
    places = {id(one): _reader(graphs[1], _first_name(one.target)) for one in wrong}
    if kind == "gradient":
        wrong.sort(key=lambda one: -(places[id(one)] or 0))
    divergences = []
    for one in wrong[:5]:
        target = _first_name(one.target)
        a = _place(graphs[0], one.sources[0] if one.sources else "")
        b = _place(graphs[1], target)
        when = f" in training step {one.step}" if one.step else ""
        line = f" (used at {b.frame.where})" if b is not None and b.frame else ""
        headline = f"the {one.what} of B's {one.target}{line} differs{when}: {one.reason or f'by {one.error:.3g}'}"
        divergences.append(Divergence(one.what, headline, a, b))
    result.verdict = DIVERGED
    result.reasons.append(f"the outputs agree; {len(wrong)} of {len(results)} {kind}s differ")
    result.first_divergence, result.candidates = divergences[0], divergences[1:]
    return True


def _first_name(target: str) -> str:
    """The tensor of ``weight/exp_avg``; the first of ``a, b``."""
    return target.partition("/")[0].partition(", ")[0]


def _reader(graph: Graph, address: str) -> int | None:
    """The first op that reads a parameter."""
    record = graph.record
    for value in record.values:
        if value.param is not None and record.params[value.param].address == address:
            for node in graph.nodes:
                if not node.is_layout and any(
                    graph.class_of(read) == graph.class_of(value.index) for read in node.inputs
                ):
                    return node.index
    return None


def _place(graph: Graph, address: str) -> Place | None:
    index = _reader(graph, address)
    return None if index is None else place_of(graph, graph.nodes[index])
