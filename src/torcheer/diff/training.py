"""Backward passes and training steps of two models, compared tensor by tensor through the parameter map.

What is compared is what the map carries over. A gradient that is nothing but rounding (a key's bias under softmax) is
not judged, nor is what an optimizer makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.comparison import DIVERGED, EQUAL, UNDETERMINED, TensorResult
from torcheer.diff.numbers import Tolerance, distance
from torcheer.diff.param_map import ParamMap, ParamPair
from torcheer.diff.side import Side, Weights

_CLOSE = 1e-3  # of a gradient, against its root mean square: what rounding leaves of deep networks in single precision
_NOTHING = 1e-5  # of the usual gradient: below, it is rounding
_UPDATE = 1e-3  # of the change a step makes
_UNSURE = 1e-3  # gradients further apart than this, element by element, leave an optimizer's step open
_EPS = 2.0**-23
_UNTOLD = "which tensor of A it is cannot be told: several held the same numbers"

Gradients = Mapping[str, "Array | None"]


def compare_gradients(
    found: ParamMap, a: Gradients, b: Gradients, step: int = 0, given: Tolerance | None = None
) -> list[TensorResult]:
    """Judge the gradient of every parameter of B that the map knows."""
    usual = _usual(a)
    targets: dict[str, list[str]] = {}
    for pair in found.pairs:
        for source in pair.sources:
            targets.setdefault(source, []).append(pair.target)
    results = []
    for pair in found.pairs:
        if pair.target in b and all(source in a for source in pair.sources):
            results.append(_judge(pair, a, b, usual, given))
            results[-1].step = step
            others = [one for source in pair.sources for one in targets[source] if one != pair.target]
            if results[-1].verdict == DIVERGED and pair.how == "guess":
                results[-1].verdict, results[-1].reason = UNDETERMINED, _UNTOLD
            if results[-1].verdict == DIVERGED and others and len(pair.pieces) == 1:
                results[-1].reason = f"it is one tensor in A ({pair.sources[0]}), and in B apart from {others[0]}"
    return results


def _judge(pair: ParamPair, a: Gradients, b: Gradients, usual: float, given: Tolerance | None) -> TensorResult:
    result = TensorResult("gradient", pair.target, list(pair.sources), 0, EQUAL, None)
    parts = {source: a[source] for source in pair.sources}
    one = None if any(part is None for part in parts.values()) else pair.convert(parts)  # type: ignore[arg-type]
    other = b[pair.target]
    if one is None or other is None:
        there = one if other is None else other
        side = "B" if other is None else "A"
        if one is None and other is None:
            result.reason = "neither side has one"
        elif there is None or not np.any(there):
            result.reason = f"{side} has none, the other's is zero"
        else:
            result.verdict, result.reason = DIVERGED, f"{side} has none: nothing flows back to it"
        return result
    one = one.reshape(other.shape)
    size, result.error = _rms(one), _relative(one, other)
    if given is not None:
        result.verdict = EQUAL if distance(other, one, given).is_equal else DIVERGED
    elif size <= _NOTHING * usual and _rms(other) <= 10 * _NOTHING * usual:
        result.reason = "it is zero but for rounding"
    elif not np.isfinite(result.error) or result.error > _CLOSE:
        result.verdict = DIVERGED
    if result.verdict == DIVERGED:
        result.reason = _where(one, other)
    return result


def complete(found: ParamMap, gradients: Gradients, weights: Weights) -> dict[str, Array | None]:
    """A's gradients with zeros for tensors that nothing flows to, where others are joined with them in one of B's."""
    filled = dict(gradients)
    for pair in found.pairs:
        if any(gradients.get(source) is not None for source in pair.sources):
            for source in pair.sources:
                if source in filled and filled[source] is None:
                    filled[source] = np.zeros_like(weights[source])
    return filled


def _where(one: Array, other: Array) -> str:
    """How much of a tensor differs, and where most."""
    apart = np.abs(one - other)
    wrong = apart > _CLOSE * (np.abs(one) + _rms(one))
    rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1)) if wrong.ndim else np.zeros(0)
    shown = f", in rows {', '.join(map(str, rows[:6].tolist()))}" if 0 < len(rows) < len(one) / 2 else ""
    ratio = _rms(other) / _rms(one) if _rms(one) else float("inf")
    return f"{int(wrong.sum())} of {wrong.size} elements differ{shown}; B's is {ratio:.4g} times as large"


def _usual(gradients: Gradients) -> float:
    sizes = [size for one in gradients.values() if one is not None and (size := _rms(one)) > 0]
    return float(np.median(sizes)) if sizes else 0.0


def _rms(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0


def _relative(one: Array, other: Array) -> float:
    apart, size = _rms(one.astype(np.float64) - other), _rms(one)
    return apart / size if size else (0.0 if apart == 0 else float("inf"))


@dataclass
class Steps:
    """Training steps of both models, side by side."""

    a: Side
    b: Side
    found: ParamMap
    given: Tolerance | None = None
    results: list[TensorResult] = field(default_factory=list)
    unsure: dict[str, Array] = field(default_factory=dict)  # target → elements whose gradient is rounding
    before: tuple[dict[str, Array], dict[str, Array]] = field(default_factory=lambda: ({}, {}))

    def after_step(self, a: Gradients, b: Gradients, step: int) -> list[TensorResult]:
        """Judge gradients, then what the optimizers make of them. Both have just made their step."""
        new = compare_gradients(self.found, a, b, step, self.given)
        weights = self.a.weights(), self.b.weights()
        states = self.a.optimizer_state(), self.b.optimizer_state()
        for pair in self.found.pairs:
            if all(a.get(source) is not None for source in pair.sources) and b.get(pair.target) is not None:
                self._note_unsure(pair, a, b)
                new += self._judge_state(pair, states, a, step)
                new.append(self._judge_weight(pair, weights, step))
        self.before = weights
        self.results += new
        return [one for one in new if one.verdict == DIVERGED]

    def _note_unsure(self, pair: ParamPair, a: Gradients, b: Gradients) -> None:
        other = b[pair.target]
        assert other is not None
        one = pair.convert({name: array for name, array in a.items() if array is not None}).reshape(other.shape)
        usual = max(_usual(a), 1e-30)
        unsure = (np.abs(one - other) > _UNSURE * np.abs(one)) | (np.abs(one) < _NOTHING * usual)
        self.unsure[pair.target] = unsure | self.unsure.get(pair.target, False)

    def _judge_weight(self, pair: ParamPair, now: tuple[dict[str, Array], dict[str, Array]], step: int) -> TensorResult:
        result = TensorResult("weight", pair.target, list(pair.sources), step, EQUAL, None)
        other = now[1][pair.target].astype(np.float64)
        one = pair.convert(now[0]).reshape(other.shape).astype(np.float64)
        change_a = one - pair.convert(self.before[0]).reshape(other.shape)
        change_b = other - self.before[1][pair.target]
        sure = ~self.unsure[pair.target]
        rounding = 4 * _EPS * np.abs(one)
        apart = np.maximum(np.abs(change_a - change_b) - rounding, 0)[sure]
        if not sure.any():
            result.verdict, result.reason = UNDETERMINED, "its gradient is zero but for rounding"
            return result
        size = _rms(change_a[sure])
        result.error = _rms(apart) / size if size else (0.0 if not apart.any() else float("inf"))
        if result.error > _UPDATE:
            result.verdict = DIVERGED
            times = _rms(change_b[sure]) / size if size else float("inf")
            result.reason = f"the step changes it otherwise: by {times:.4g} times as much in B"
        return result

    def _judge_state(
        self, pair: ParamPair, states: tuple[dict[str, Array], dict[str, Array]], gradients: Gradients, step: int
    ) -> list[TensorResult]:
        own = {
            name.rpartition("/")[2]: array for name, array in states[1].items() if name.startswith(f"{pair.target}/")
        }
        of_a = [f"{source}/" for source in pair.sources]
        names = dict.fromkeys(n.rpartition("/")[2] for n in states[0] if n.startswith(tuple(of_a)))
        results = []
        for name in dict.fromkeys([*names, *own]):
            result = TensorResult("state", f"{pair.target}/{name}", list(pair.sources), step, EQUAL, None)
            parts = {s: states[0][f"{s}/{name}"] for s in pair.sources if f"{s}/{name}" in states[0]}
            for source in pair.sources if parts else ():
                gradient = gradients[source]
                if source not in parts and gradient is not None and not gradient.any():
                    parts[source] = np.zeros_like(gradient)  # it was never stepped, and nothing flowed to it
            if name not in own or len(parts) < len(pair.sources):
                result.verdict = DIVERGED
                result.reason = f"{'B' if name not in own else 'A'}'s optimizer keeps no {name}"
            elif own[name].ndim == 0:
                result.error = _relative(next(iter(parts.values())), own[name])
                result.verdict = EQUAL if result.error <= _UPDATE else DIVERGED
            else:
                sure = ~self.unsure[pair.target]
                one = pair.convert(parts).reshape(own[name].shape)
                result.error = _relative(one[sure], own[name][sure]) if sure.any() else 0.0
                result.verdict = EQUAL if result.error <= 4 * _UPDATE else DIVERGED
            results.append(result)
        return results


def compare_buffers(
    found: ParamMap, a: Mapping[str, Array], b: Mapping[str, Array], trained: set[str]
) -> list[TensorResult]:
    """Judge what the run itself wrote into the models: running statistics."""
    results = []
    for pair in found.pairs:
        if pair.target in trained or not all(source in a for source in pair.sources):
            continue
        other = b[pair.target]
        one = pair.convert(a).reshape(other.shape)
        if other.dtype.kind != "f":
            continue
        error = _relative(one, other)
        verdict = EQUAL if error <= _CLOSE else DIVERGED
        reason = "" if verdict == EQUAL else "the run leaves other numbers in it: " + _where(one, other)
        if verdict == DIVERGED and pair.how == "guess":
            verdict, reason = UNDETERMINED, _UNTOLD
        results.append(TensorResult("buffer", pair.target, list(pair.sources), 0, verdict, error, reason))
    return results
