"""Two models side by side: forward, backward and training steps, and what differs first.

Works on two ``Side``s, of whichever frameworks. The report prints what PPAutoDiff's does and is an object as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.autodiff_blame import Seen, first_in_backward, first_in_forward
from torcheer.diff.autodiff_noise import NoiseFloor
from torcheer.diff.autodiff_single import single_steps
from torcheer.diff.autodiff_steps import Stack, pair_steps, replaced, stack_of
from torcheer.diff.autodiff_text import describe
from torcheer.diff.forms import VARIANCES
from torcheer.diff.numbers import Distance, Tolerance, distance
from torcheer.diff.param_map import ParamMap, check_complete
from torcheer.diff.seeding import carried_weights
from torcheer.diff.side import Leaf, Recording, Side
from torcheer.errors import ComparisonError

DEFAULT_ATOL = 1e-4  # of PPAutoDiff's example; single precision through some dozen layers stays below it
DEFAULT_RTOL = 1e-7
HEAD_LINES = 5  # of a tensor shown in the report
_ABOUT_VARIANCES = (
    "running variances are not judged after training: PyTorch averages estimates with n - 1, Paddle with n"
)


@dataclass(slots=True)
class ParamDifference:
    """A parameter whose weight or gradient differs after training steps."""

    what: str  # "weight" | "grad" | "state"
    name: str  # own name: "weight"
    address_a: str  # "fc.weight"
    address_b: str
    layer_a: str  # the module as its framework prints it
    layer_b: str
    distance: Distance | None  # None: one side has none
    step: int = 0  # training step it was first seen in
    reason: str = ""  # where one side has none: which


@dataclass(slots=True)
class StepDifference:
    """The first module call whose tensors differ."""

    stage: str  # "forward" | "backward"
    step: int  # training step
    net_ids: tuple[int, int]  # positions of the modules in their models
    types: tuple[str, str]  # their classes
    addresses: tuple[str, str]
    distance: Distance | None  # None: the shapes differ, or one side has none
    heads: tuple[str, str]  # the tensors, abbreviated; "none" where there is none
    stacks: tuple[Stack, Stack]  # calls, outermost first
    blamed: tuple[str, str] = ("", "")  # addresses of the layers the difference comes from
    why: str = ""  # what tells so


@dataclass(slots=True, repr=False)
class AutodiffReport:
    """What ``autodiff`` found. True when nothing differs."""

    frameworks: tuple[str, str]
    tolerance: Tolerance
    max_output_diff: float
    num_forward: int = 0  # module calls compared in the forward passes
    num_backward: int = 0  # and in the backward passes
    num_steps: int = 1  # training steps run
    params: list[ParamDifference] = field(default_factory=list)
    first: StepDifference | None = None
    outputs_differ: bool = False
    undetermined: list[str] = field(default_factory=list)  # gradients at the level of noise, not judged
    param_map: ParamMap = field(default_factory=ParamMap)
    notes: list[str] = field(default_factory=list)
    called_from: Stack = ()  # the user's own lines that led to the comparison, outermost first

    def __bool__(self) -> bool:
        return self.first is None and not self.params and not self.outputs_differ and not self.param_map.uneven

    @property
    def names(self) -> tuple[str, str]:
        """What the two sides are called in the text: their frameworks, where these tell them apart."""
        a, b = self.frameworks
        return (a, b) if a != b else (f"{a} A", f"{b} B")

    @property
    def blamed(self) -> tuple[str, str] | None:
        """Addresses of the two layers that the first difference comes from; None where nothing differs."""
        if self.first is not None:
            return self.first.blamed
        if self.params:
            return tuple(one.rpartition(".")[0] for one in (self.params[0].address_a, self.params[0].address_b))  # type: ignore[return-value]
        for tensor in self.param_map.uneven:
            layer = tensor.partition("'s ")[2].rpartition(".")[0]
            return next((pair for pair in self.param_map.layers if layer in pair), None)
        return None

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        verdict = "equal" if self else f"differs at {self.blamed}"
        return f"<AutodiffReport of {' and '.join(self.frameworks)}: {verdict}>"


_CHOICES: dict[str, tuple[Any, ...]] = {
    "compare_mode": ("strict", "mean"),
    "diff_phase": ("both", "forward", "backward"),
    "single_step": (True, False),
}


def _one_of(choices: tuple[Any, ...]) -> str:
    return " or ".join(map(repr, choices))


@dataclass(frozen=True, slots=True)
class AutodiffOptions:
    """The ``options`` of ``autodiff``."""

    atol: float = DEFAULT_ATOL
    rtol: float = DEFAULT_RTOL
    seed: int = 0  # of the weights and of the gradients given to the outputs
    steps: int = 1
    compare_mode: str = "strict"  # "strict": every element; "mean": the means of two tensors alone
    diff_phase: str = "both"  # "both" | "forward" | "backward"
    single_step: bool = False  # give each layer of the second model what the first model's layer was given

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AutodiffOptions:
        """Check the user's options."""
        known = {name: field_.default for name, field_ in cls.__dataclass_fields__.items()}
        for name, value in options.items():
            if name not in known:
                raise ComparisonError(f"options has no {name!r}. It takes {', '.join(map(repr, known))}.")
            if name in _CHOICES:
                if value not in _CHOICES[name]:
                    raise ComparisonError(f"options[{name!r}] is {value!r}. It takes {_one_of(_CHOICES[name])}.")
                continue
            is_count = name in ("steps", "seed")
            if isinstance(value, bool) or not isinstance(value, int if is_count else (int, float)) or value < 0:
                raise ComparisonError(f"options[{name!r}] is {value!r}. It takes a number that is not negative.")
        return cls(**options)


def autodiff(
    side_a: Side,
    side_b: Side,
    *,
    auto_weights: bool = True,
    options: Mapping[str, Any] | None = None,
    param_map: ParamMap,
) -> AutodiffReport:
    """Run both sides forward, backward and through training steps, and report what differs."""
    chosen = AutodiffOptions.of(options or {})
    tolerance = Tolerance(chosen.atol, chosen.rtol, chosen.compare_mode == "mean")
    leaves = side_a.leaves(), side_b.leaves()
    report = AutodiffReport(
        (side_a.framework, side_b.framework),
        tolerance,
        0.0,
        num_steps=1 if chosen.single_step else max(1, chosen.steps),
    )
    report.param_map = param_map
    try:
        if auto_weights:
            check_complete(param_map, report.names, (side_a.weights(), side_b.weights()))
            carried_weights(param_map, side_a, side_b, chosen.seed)
        noise = NoiseFloor()
        for step in range(report.num_steps):
            _training_step(report, (side_a, side_b), leaves, step, chosen, noise)
            if not report:
                break
    finally:
        side_a.restore()
        side_b.restore()
    return report


def _training_step(
    report: AutodiffReport,
    sides: tuple[Side, Side],
    leaves: tuple[list[Leaf], list[Leaf]],
    step: int,
    options: AutodiffOptions,
    noise: NoiseFloor,
) -> None:
    side_a, side_b = sides
    run_a, run_b = side_a.record_forward(), side_b.record_forward()
    outputs_a, outputs_b = outputs_of(run_a), outputs_of(run_b)
    _compare_outputs(report, outputs_a, outputs_b)
    pairs = pair_steps(run_a, run_b, report.param_map)
    report.num_forward += sum(bool(pair.tensors("forward")) for pair in pairs)
    if options.single_step:
        seen, note = single_steps(pairs, side_b, report.tolerance)
        report.first = _as_difference(seen, "forward", step)
        report.outputs_differ = False
        report.notes += note
        return
    forward = _as_difference(first_in_forward(pairs, report.tolerance, replaced(run_a, run_b, pairs)), "forward", step)
    if options.diff_phase == "backward":
        forward, report.outputs_differ = None, False
    report.first = report.first or forward
    if options.diff_phase == "forward":
        return
    if len(outputs_a) != len(outputs_b) or any(a.shape != b.shape for a, b in zip(outputs_a, outputs_b, strict=True)):
        report.first = report.first or forward
        report.notes.append("outputs differ in number or shape, so no backward pass was compared")
        return
    cotangents = _cotangents(outputs_a, options.seed)
    gradients_a, gradients_b = side_a.backward(cotangents), side_b.backward(cotangents)
    report.num_backward += sum(bool(pair.tensors("backward")) for pair in pairs)
    _compare_params(report, leaves, "grad", (gradients_a, gradients_b), step)
    noise.add(report.param_map.pairs, gradients_a, gradients_b)
    report.first = report.first or forward
    if report.first is None:
        seen = first_in_backward(pairs, report.tolerance, _equal_grads(report))
        report.first = _as_difference(seen, "backward", step)
    side_a.step()
    side_b.step()
    weights: tuple[Any, Any] = side_a.weights(), side_b.weights()
    _compare_params(report, leaves, "weight", weights, step, noise)


def outputs_of(run: Recording) -> list[Array]:
    """The model's outputs, in order."""
    record, payloads = run
    return [
        as_array(payloads[record.saved[op.outputs[0].value]])
        for op in record.ops
        if op.kind == "output" and op.outputs and op.outputs[0].value in record.saved
    ]


def _compare_outputs(report: AutodiffReport, outputs_a: list[Array], outputs_b: list[Array]) -> None:
    if len(outputs_a) != len(outputs_b):
        report.outputs_differ = True
        report.notes.append(f"the models return {len(outputs_a)} and {len(outputs_b)} tensors")
    for a, b in zip(outputs_a, outputs_b, strict=False):
        if a.shape != b.shape:
            report.outputs_differ = True
            report.notes.append(f"outputs have shapes {a.shape} and {b.shape}")
            continue
        apart = distance(a, b, report.tolerance)
        if not apart.max_abs <= report.max_output_diff:  # NaN, which equals nothing, included
            report.max_output_diff = apart.max_abs
        report.outputs_differ |= not apart.is_equal


def _cotangents(outputs: list[Array], seed: int) -> list[Array]:
    """A gradient for each output that no symmetry of the model cancels, as the gradient of a sum would be by a norm."""
    source = np.random.default_rng(seed)
    return [
        source.standard_normal(output.shape).astype(np.float32) / np.float32(max(1, output.size) ** 0.5)
        for output in outputs
        if output.dtype.kind in "fc"
    ]


def _as_difference(seen: Seen | None, stage: str, step: int) -> StepDifference | None:
    if seen is None:
        return None
    pair, (a, b) = seen.pair, seen.arrays
    heads = _head(a), _head(b)
    stacks = (stack_of(pair.run_a.record, pair.call_a), stack_of(pair.run_b.record, pair.call_b))
    return StepDifference(
        stage, step, pair.net_ids, pair.types, pair.addresses, seen.distance, heads, stacks, seen.blamed, seen.why
    )


def _head(array: Array | None) -> str:
    if array is None:
        return "none"
    lines = np.array2string(array, threshold=8, edgeitems=2, prefix=" x: ").splitlines()
    return "\n".join(lines if len(lines) <= HEAD_LINES else [*lines[:HEAD_LINES], " ..."])


def _equal_grads(report: AutodiffReport) -> dict[str, bool]:
    """By layer of A: whether the gradients of its parameters agree."""
    equal: dict[str, bool] = {}
    wrong = {difference.address_a for difference in report.params if difference.what == "grad"}
    for pair in report.param_map.pairs:
        for source in pair.sources:
            layer = source.rpartition(".")[0]
            equal[layer] = equal.get(layer, True) and ", ".join(pair.sources) not in wrong
    return equal


def _compare_params(
    report: AutodiffReport,
    leaves: tuple[list[Leaf], list[Leaf]],
    what: str,
    arrays: tuple[dict[str, Array | None], dict[str, Array | None]],
    step: int,
    noise: NoiseFloor | None = None,
) -> None:
    owners = [{f"{leaf.address}.{name}".lstrip("."): leaf for leaf in side for name in leaf.tensors} for side in leaves]
    for pair in report.param_map.pairs:
        given = {source: arrays[0].get(source) for source in pair.sources}
        other = arrays[1].get(pair.target)
        if what == "grad" and pair.target not in arrays[1] and all(name not in arrays[0] for name in given):
            continue  # a buffer on both sides
        missing = [name for name, array in given.items() if array is None]
        layers = (owners[0].get(pair.sources[0]), owners[1].get(pair.target))
        difference = ParamDifference(
            what,
            pair.target.rsplit(".", 1)[-1],
            ", ".join(pair.sources),
            pair.target,
            layers[0].description if layers[0] else "",
            layers[1].description if layers[1] else "",
            None,
            step,
        )
        if missing or other is None:
            if bool(missing) != (other is None):
                difference.reason = f"{'A' if missing else 'B'} has none"
                report.params.append(difference)
            continue
        expected = pair.convert({name: array for name, array in given.items() if array is not None})
        expected = expected.reshape(other.shape)
        apart = distance(expected, other, report.tolerance)
        if apart.is_equal:
            continue
        if report.frameworks[0] != report.frameworks[1] and difference.name in VARIANCES:
            report.notes = list(dict.fromkeys([*report.notes, _ABOUT_VARIANCES]))
            continue
        if noise is not None:
            apart = distance(noise.without(pair.target, expected, other), other, report.tolerance)
            if apart.is_equal:
                report.undetermined = list(dict.fromkeys([*report.undetermined, pair.target]))
                continue
        difference.distance = apart
        report.params.append(difference)
