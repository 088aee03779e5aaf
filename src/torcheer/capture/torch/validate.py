"""Proves a recording of a model on given inputs: runs it plainly, counted, looked at, and witnessed, and compares.

The recorded run must be the plain run bit for bit: outputs, random numbers, buffers. What the record says must
then hold by itself (``proof.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from torcheer.capture.torch.evidence import WitnessLevel, copied
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.leaf_proof import aten_calls, check_leaves, looked_at
from torcheer.capture.torch.private import TorchDispatchMode
from torcheer.capture.torch.proof import Check, Proof, check_proof
from torcheer.capture.torch.select import Everything
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.state import (
    RunState,
    host_random_state,
    random_state,
    same,
    same_host_random,
    same_structure,
)
from torcheer.units import counted_text


@dataclass(repr=False)
class Validation:
    """The result of ``validate``. True when every check passed."""

    checks: list[Check]

    def __bool__(self) -> bool:
        return all(not check.failures for check in self.checks)

    @property
    def failures(self) -> list[str]:
        """Everything that is wrong, check by check."""
        return [f"{check.name}: {failure}" for check in self.checks for failure in check.failures]

    def __str__(self) -> str:
        lines = ["Validation passed" if self else f"Validation FAILED: {len(self.failures)} findings"]
        for check in self.checks:
            verdict = "passed" if not check.failures else f"{len(check.failures)} FAILED"
            lines.append(f"  {check.name}: {verdict}, {check.tested} tested")
            lines += [f"    {failure}" for failure in check.failures[:10]]
            if len(check.failures) > 10:
                lines.append(f"    … and {len(check.failures) - 10} more: .failures lists them")
            lines += [f"    not tested: {count} × {reason}" for reason, count in check.not_tested.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        verdict = "passed" if self else f"FAILED, {counted_text(len(self.failures), 'finding')}"
        return f"<Validation {verdict}: {counted_text(len(self.checks), 'check')}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def validate_capture(model: Any, inputs: Inputs) -> Validation:
    """Record ``model`` on ``inputs`` and prove the record. Model and random numbers are left as they were."""
    state = RunState(model, inputs)
    try:
        plain_output = copied(model(*inputs.args, **inputs.kwargs))
        plain_effects, plain_random, plain_host = state.changed(), random_state(), host_random_state()
        state.restore()
        census = census_of(model, inputs)
        state.restore()
        looked = looked_at(model, inputs)
        state.restore()
        proof, output = witnessed_run(model, inputs, census)
        same_run = Check("same run", tested=4)
        if not same_structure(output, plain_output):
            same_run.failures.append("the outputs differ")
        if not all(same(one, other) for one, other in zip(plain_effects, state.changed(), strict=True)):
            same_run.failures.append("parameters, buffers or inputs were left different")
        if not all(torch.equal(a, b) for (_, a), (_, b) in zip(plain_random, random_state(), strict=True)):
            same_run.failures.append("the random number generator was left different")
        if not same_host_random(plain_host, host_random_state()):
            same_run.failures.append("the random numbers of Python or numpy were left different")
        return Validation([same_run, check_leaves(proof.aten_calls, looked), *check_proof(proof)])
    finally:
        state.restore()


class _Census(TorchDispatchMode):
    """Counts ATen calls, and does nothing else."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not str(func).startswith("profiler."):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def census_of(model: Any, inputs: Inputs) -> list[str]:
    census = _Census()
    with census:
        model(*inputs.args, **inputs.kwargs)
    return census.names


def witnessed_run(model: Any, inputs: Inputs, census: list[str]) -> tuple[Proof, Any]:
    session = TorchSession(model, inputs, Everything(), level=WitnessLevel)
    output = copied(session.run())
    record = session.record()
    level = session.function_level
    assert isinstance(level, WitnessLevel)
    ops = session.ops_by_event()
    calls = {ops[event]: call for event, call in level.calls.items() if event in ops}
    return Proof(record, session.payloads, calls, census, aten_calls(session.tape)), output
