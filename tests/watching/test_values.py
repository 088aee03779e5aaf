"""What is logged is what was there: values, gradients, parameters and histograms against plain PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.watching.nets import Net, names, rows, train


class Seen(Net):
    """Keeps its own intermediate tensors, to compare with."""

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        self.h = self.fc1(x)
        tl.attach(self.h, self, "intermediate")
        self.y = self.fc2(self.h)
        for one in (self.h, self.y):
            one.retain_grad()
        return self.y


@pytest.fixture
def step(watch: Any) -> tuple[Any, Seen, dict[str, Tensor]]:
    """One step of a model whose tensors are known, without sampling or rejection."""
    model = Seen()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    watching = watch(model, sample_n=None, reject_outlier_proportion=0.0)
    train(model, lambda: torch.randn(5, 10), steps=1)
    return watching, model, before


def test_inputs_and_outputs(step: Any) -> None:
    watching, model, _ = step
    for name, tensor in {
        "(model):1/input/0": model.x, "fc1:1/input/0": model.x, "fc1:1/output/0": model.h,
        "(model):1/attached/intermediate": model.h, "fc2:1/input/0": model.h, "fc2:1/output/0": model.y,
        "(model):1/output/0": model.y,
    }.items():  # fmt: skip
        _same(rows(watching, name), tensor)


def test_gradient_norms_are_of_each_sample(step: Any) -> None:
    watching, model, _ = step
    for name, tensor in {
        "fc1:1/output_grad/0": model.h,
        "fc2:1/input_grad/0": model.h,
        "fc2:1/output_grad/0": model.y,
    }.items():
        assert tensor.grad is not None
        found = rows(watching, name)
        _same(found, tensor.grad.flatten(1).norm(dim=1))
        assert found["count"] == 5
    _same(rows(watching, "(model):1/attached_grad/intermediate"), model.h.grad.flatten(1).norm(dim=1))


def test_gradient_norms_of_more_dimensions(watch: Any) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh())
    watching = watch(model, sample_n=None)
    out = None

    def loss(given: Tensor) -> Tensor:
        nonlocal out
        out = given
        out.retain_grad()
        return out.square().sum()

    train(model, lambda: torch.randn(4, 2, 6, 6), 1, loss)
    _same(rows(watching, "1:1/output_grad/0"), out.grad.reshape(4, -1).norm(dim=1))  # type: ignore[union-attr]


def test_gradients_of_inputs_that_are_leaves(watch: Any) -> None:
    model = nn.Linear(4, 2)
    watching = watch(model)
    for _ in range(3):
        x = torch.randn(5, 4, requires_grad=True)
        model(x).square().sum().backward()
        assert x.grad is not None
        norm = x.grad.norm().item()
    found = rows(watching, "(model):1/input_grad/0")
    assert found.steps.tolist() == [0, 1, 2]
    assert found["norm"][-1] == pytest.approx(norm, rel=1e-4)


def test_parameters_are_those_the_forward_used(step: Any) -> None:
    watching, _, before = step
    for module in ("fc1", "fc2"):
        for part in ("weight", "bias"):
            _same(rows(watching, f"{module}/param/{part}"), before[f"{module}.{part}"])


def test_gradients_of_parameters_are_values_not_norms(step: Any) -> None:
    watching, model, _ = step
    for name, parameter in model.named_parameters():
        module, _, part = name.partition(".")
        assert parameter.grad is not None
        _same(rows(watching, f"{module}/param_grad/{part}"), parameter.grad)


def test_update_to_weight_ratio(step: Any) -> None:
    watching, model, before = step
    change = (model.fc1.weight.detach() - before["fc1.weight"]).norm() / before["fc1.weight"].norm()
    assert rows(watching, "fc1/param/weight")["update"][0] == pytest.approx(change.item(), rel=1e-4)


def test_immediate_parameters_only(watch: Any) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.scale

    model = Scaled()
    watching = watch(model)
    train(model, lambda: torch.randn(4, 3), 1)
    found = {name for name in names(watching) if "/param/" in name}
    assert found == {"(model)/param/scale", "inner.0/param/weight", "inner.0/param/bias"}


def test_each_call_of_a_module_apart(watch: Any) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.activation = nn.Linear(20, 20), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.fc(self.activation(x)))

    model = Twice()
    watching = watch(model, sample_n=None)
    x = torch.randn(6, 20)
    with torch.no_grad():
        first, last = x.relu(), model.fc(x.relu()).relu()
    train(model, lambda: x, 1)
    _same(rows(watching, "activation:1/output/0"), first)
    _same(rows(watching, "activation:2/output/0"), last)
    assert len({name for name in names(watching) if "/param/" in name}) == 2
    calls = [(call["module"], call["call"]) for call in watching.structure["calls"]]
    assert calls == [("", 1), ("activation", 1), ("fc", 1), ("activation", 2)]


def test_tooltips_come_from_extra_repr(watch: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, kernel_size=(3, 3), padding=1), nn.Flatten())
    watching = watch(model)
    train(model, lambda: torch.randn(2, 3, 5, 5), 1)
    conv = next(one for one in watching.structure["modules"] if one["address"] == "0")
    assert conv["extra"] == [
        ["", "3"], ["", "8"], ["kernel_size", "(3, 3)"], ["stride", "(1, 1)"], ["padding", "(1, 1)"],
    ]  # fmt: skip
    call = next(one for one in watching.structure["calls"] if one["module"] == "0")
    assert [tensor["shape"] for tensor in call["inputs"]] == [[2, 3, 5, 5]]
    assert [tensor["shape"] for tensor in call["outputs"]] == [[2, 8, 5, 5]]


@pytest.mark.parametrize(("log", "kinds"), [
    (["io"], {"input", "output", "attached"}),
    (["io_grad"], {"output_grad", "input_grad", "attached_grad"}),
    (["params"], {"param"}),
    (["params_grad"], {"param_grad"}),
    ([], set()),
])  # fmt: skip
def test_log_chooses(watch: Any, log: list[str], kinds: set[str]) -> None:
    model = Net()
    watching = watch(model, log=log)
    train(model, lambda: torch.randn(5, 10), 2)
    assert {name.split("/")[1] for name in names(watching)} == kinds
    assert watching.structure is not None, "the structure is there in any case"


def test_sample_bins_and_rejection(watch: Any) -> None:
    model = nn.Linear(100, 100)
    watching = watch(model, sample_n=50, bins=7, reject_outlier_proportion=0.2)
    train(model, lambda: torch.randn(32, 100), 1)
    found = rows(watching, "(model)/param/weight")
    assert 40 <= found["count"][0] <= 50
    assert found.counts.shape == (1, 7)
    rejected = found["below"][0] + found["above"][0]
    assert rejected == np.floor(0.2 * found["count"][0])
    assert found.counts.sum() + rejected == found["count"][0]


def test_ignored_classes_have_no_gradients(watch: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    watching = watch(model, ignore_io_grad_classes=[nn.Tanh])
    train(model, lambda: torch.randn(3, 4), 1)
    found = names(watching)
    assert "1:1/output/0" in found
    assert not {name for name in found if name.startswith("1:") and "_grad" in name}
    assert "0:1/output_grad/0" in found


def test_inplace_is_switched_off_only_while_it_is_asked_for(watch: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.ReLU())
    watching = watch(model, disable_inplace=True)
    assert not model[1].inplace
    watching.stop()
    assert model[1].inplace
    assert not model[2].inplace


def test_time_log_is_kept_beside_the_step(watch: Any) -> None:
    model = nn.Linear(4, 4)
    watching = watch(model, time_log=("epoch", lambda module, step: step / 2))
    train(model, lambda: torch.randn(3, 4), 4)
    with watching.open() as run:
        assert run.scalars("epoch").values.tolist() == [0, 0.5, 1.0, 1.5]


def test_dead_and_saturated(watch: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())
    with torch.no_grad():
        model[0].bias[:4] = -100
        model[2].weight.mul_(1000)
    watching = watch(model)
    train(model, lambda: torch.randn(16, 4), 1)
    assert rows(watching, "1:1/output/0")["dead"][0] >= 0.5
    assert rows(watching, "3:1/output/0")["saturated"][0] > 0.9
    assert np.isnan(rows(watching, "0:1/output/0")["dead"]).all()


def _same(found: Any, tensor: Tensor) -> None:
    """All statistics of the one row there is, and its histogram, against the tensor."""
    assert len(found) == 1
    values = tensor.detach().double().flatten()
    for name, expected in {
        "count": values.numel(), "mean": values.mean(), "std": values.std(correction=0), "min": values.min(),
        "max": values.max(), "norm": values.norm(), "zeros": (values == 0).double().mean(), "nan": 0, "inf": 0,
    }.items():  # fmt: skip
        assert found[name][0] == pytest.approx(float(expected), rel=1e-4, abs=1e-5), name
    if not found["below"][0] and not found["above"][0]:
        expected_counts, _ = np.histogram(values.float().numpy(), 30, (values.min().item(), values.max().item()))
        assert found.counts.sum() == values.numel()
        # A value at an edge may fall to either side of it.
        assert np.abs(np.cumsum(found.counts[0].astype(int)) - np.cumsum(expected_counts)).max() <= 2
