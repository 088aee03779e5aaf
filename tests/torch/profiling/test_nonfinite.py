"""NaN and Inf are found where they are born; what healthy models do on purpose raises no alarm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl
from benchmarks.healthy_nets import healthy
from benchmarks.sick_nets import CASES, Case, with_bad_input, with_bad_param


def guarded(model: nn.Module, *args: Any, loss: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    with tl.InspectorGadgets(model, measure="nan", **options) as inspector:
        out = model(*args)
        (loss(out) if loss else out).backward()
    return inspector.report


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_profile_finds_the_birth(case: Case) -> None:
    torch.manual_seed(0)
    model, x = case.make()
    report = tl.profile(model, x, backward=True, measure="nan")
    first = report.alarms[0]
    assert (first.phase, first.function, first.module, first.kind) == (
        case.phase, case.function, case.module, case.kind,
    ), str(report)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_guard_finds_the_birth(case: Case) -> None:
    torch.manual_seed(0)
    model, x = case.make()
    first = guarded(model, x).alarms[0]
    assert (first.phase, first.function, first.module, first.kind) == (
        case.phase, case.function, case.module, case.kind,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replay_finds_the_birth_and_changes_nothing(case: Case) -> None:
    torch.manual_seed(0)
    model, x = case.make()
    plain = model(x)
    plain.backward()
    gradients = [param.grad for param in model.parameters()]
    random = torch.get_rng_state()
    model.zero_grad()
    with tl.InspectorGadgets(model, measure="nan", replay=True) as inspector:
        out = model(x)
        out.backward()
    first = inspector.report.alarms[0]
    assert (first.phase, first.function, first.module, first.kind) == (
        case.phase, case.function, case.module, case.kind,
    )  # fmt: skip
    torch.testing.assert_close(out, plain, rtol=0, atol=0, equal_nan=True)
    for param, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(param.grad, gradient, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.get_rng_state(), random)


class Drops(nn.Module):
    """Divides by zero where dropout leaves nothing: another step, another place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout, self.norm = nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.norm(self.linear(x)))
        return x / x.norm(dim=-1, keepdim=True)


def test_replay_draws_the_same_random_numbers_and_runs_only_on_a_hit() -> None:
    torch.manual_seed(0)
    model = Drops()
    hits, said = [], []
    with tl.InspectorGadgets(model, measure="nan", nan="warn", replay=True) as inspector:
        for turn in range(12):
            model.zero_grad()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out = model(torch.rand(3, 4))
                out.sum().backward()
            hits.append(bool(out.isnan().any()))
            said.append(any("came from aten.div.Tensor" in str(one.message) for one in caught))
            assert model.norm.num_batches_tracked == turn + 1
    assert said == hits
    assert 0 < sum(hits) < 12
    assert inspector.report.alarms[0].module == ""


def test_a_loss_that_is_not_the_models_is_told_from_it() -> None:
    model = nn.Linear(2, 2)
    with (
        pytest.raises(tl.TorcheerError, match="NaN or Inf in the loss, and none in the model"),
        tl.InspectorGadgets(model, measure="nan", nan="stop", replay=True),
    ):
        (model(torch.rand(1, 2)).sum() * float("nan")).backward()


@pytest.mark.parametrize("make", [with_bad_input, with_bad_param])
def test_what_came_in_is_told_from_what_was_born(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    for report in (tl.profile(*make(), backward=True, measure="nan"), guarded(*make())):
        assert report.alarms[0].kind == "given"
        assert report.alarms[0].module == ("first" if make is with_bad_input else "last")


def test_source_line_and_inputs_are_told() -> None:
    torch.manual_seed(0)
    model, x = CASES[0].make()
    finding = tl.profile(model, x, measure="nan").alarms[0]
    assert finding.source.startswith("sick_nets.py:")
    assert [(one.smallest, one.largest) for one in finding.inputs] == [(0.0, 0.0), (0.0, 0.0)]
    assert finding.facts.nan == 32


def test_stop_raises_at_the_birth_and_leaves_nothing_behind() -> None:
    torch.manual_seed(0)
    model, x = CASES[0].make()
    call = nn.Module.__call__
    with pytest.raises(
        tl.TorcheerError, match=r"32 NaN of 32 numbers came from aten.div.Tensor \(forward\) in module 'sick'"
    ):
        guarded(model, x, nan="stop")
    assert nn.Module.__call__ is call
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.zeros(1) / torch.zeros(1)


def test_warn_warns_once_per_birth() -> None:
    torch.manual_seed(0)
    model, x = CASES[5].make()
    with pytest.warns(RuntimeWarning, match=r"NaN of 32 numbers came from aten.log.default") as caught:
        report = guarded(model, x, nan="warn")
    assert len(caught) == len(report.alarms)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "encoder"])
def test_healthy_models_raise_no_alarm(name: str) -> None:
    torch.manual_seed(0)
    model, args, kwargs = healthy()[name]()
    report = tl.profile(model, *args, backward=True, measure="nan", **kwargs)
    assert [finding.text for finding in report.alarms] == []
    for replay in (False, True):
        with tl.InspectorGadgets(model, measure="nan", nan="stop", replay=replay) as inspector:
            out = model(*args, **kwargs)
            (out.loss if hasattr(out, "loss") else out.mean()).backward()
        assert inspector.report.alarms == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_sums_tell_as_much_as_isfinite(dtype: torch.dtype) -> None:
    from torcheer.capture.torch.finite import facts_of, is_finite

    generator = torch.Generator().manual_seed(0)
    for turn in range(60):
        tensor = torch.randn(1 + turn, generator=generator).to(dtype) * (100 if turn % 2 else 1)
        for place, bad in ((turn // 2, "nan"), (turn // 3, "inf"), (turn // 5, "-inf")):
            assert is_finite(tensor)
            sick = tensor.clone()
            sick[place] = float(bad)
            assert not is_finite(sick)
            facts = facts_of("output", sick)
            assert facts.nan + facts.pos_inf + facts.neg_inf == 1
        both = tensor.clone()
        both[0], both[-1] = float("inf"), float("-inf")
        assert not is_finite(both)
