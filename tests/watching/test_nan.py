"""``tl.watch(…, nan=…)``: the operation in which NaN is born, in any step, logged or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.watching.nets import rows, train
from torcheer.errors import NonFiniteError


class Logs(nn.Module):
    """Takes a logarithm of what may be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(x).abs().add(x.sum() * 0).sub(x.mean().clamp(min=0)).log())


def _good() -> Tensor:
    return torch.randn(3, 4) - 10


def _bad() -> Tensor:
    return torch.randn(3, 4) + 1e6


@pytest.mark.parametrize("log_freq", [1, 1000])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_stop_raises_with_the_operation(watch: Any, log_freq: int, steps_before: int) -> None:
    model = Logs()
    watching = watch(model, nan="stop", log_freq=log_freq)
    train(model, _good, steps_before)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with pytest.raises(NonFiniteError, match=r"NaN.*came from aten\.log.*test_nan\.py"):
        train(model, _bad, 1)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert watching.step == steps_before
    with watching.open() as run:
        births = [alert for alert in run.alerts() if "aten.log" in alert.message]
        assert [(alert.rule, alert.step) for alert in births] == [("nan", steps_before)]
        calls = run.structure()["calls"] if run.structure() else []  # type: ignore[index]
    assert {call["call"] for call in calls} <= {1}, "what was run again is not another call"


def test_warn_goes_on(watch: Any) -> None:
    model = Logs()
    watching = watch(model, nan="warn")
    train(model, _good, 2)
    with pytest.warns(RuntimeWarning, match=r"NaN.*came from aten\.log"):
        model(_bad()).sum().backward()
    model.zero_grad()
    with pytest.warns(RuntimeWarning, match=r"aten\.log"):
        model(_bad()).sum().backward()
    watching.stop()
    assert rows(watching, "fc1:1/output/0").steps.tolist() == [0, 1, 2, 3]
    assert "nan" in {alert.rule for alert in watching.open().alerts()}


def test_born_in_the_backward_pass(watch: Any) -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.scale).sqrt()

    watch(model := Root(), nan="stop")
    model(torch.ones(3)).sum().backward()
    with pytest.raises(NonFiniteError, match=r"Inf.*backward"):
        model(torch.zeros(3)).sum().backward()


def test_the_same_to_the_bit_with_the_check(watch: Any) -> None:
    def weights(nan: str | None) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2))
        watching = watch(model, nan=nan)
        train(model, lambda: torch.randn(6, 4), 6)
        watching.stop()
        return [one.clone() for one in model.state_dict().values()]

    assert all(torch.equal(one, other) for one, other in zip(weights(None), weights("stop"), strict=True))
