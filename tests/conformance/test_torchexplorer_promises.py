"""The TorchExplorer seed, statement by statement: what it supports holds, and what it lists as unsupported works."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.watching.nets import names, rows, train
from torcheer.watching.watch import all_watches

Start = Callable[..., Any]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Start]:
    torch.manual_seed(0)
    yield lambda model, **options: tl.watch(
        model, **{"log_freq": 1, "backend": "store", "dir": tmp_path, "verbose": False, **options}
    )
    for one in all_watches():
        one.stop()


class SeedModule(nn.Module):
    """The seed's TestModule."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(20, 20)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.fc(x)
        return self.activation(x1)


def _batch() -> Tensor:
    return torch.randn(6, 20)


# -- what it promises ------------------------------------------------------------------------------


def test_names_and_defaults_of_the_published_version() -> None:
    """torchexplorer 1.1.2, api/api.py. Its README says sample_n=100; its code, and so this, 1000."""
    parameters = inspect.signature(tl.watch).parameters
    defaults = {
        "log": ["io", "io_grad", "params", "params_grad"], "log_freq": 500, "ignore_io_grad_classes": [],
        "disable_inplace": False, "bins": 30, "sample_n": 1000, "reject_outlier_proportion": 0.1, "verbose": True,
    }  # fmt: skip
    for name, default in defaults.items():
        given = parameters[name].default
        assert (list(given) if isinstance(given, tuple) else given) == default, name
    assert {"time_log", "delay_log_multi_backward", "delay_log_multibackward", "backend", "standalone_dir",
            "standalone_port"} <= set(parameters)  # fmt: skip
    assert list(inspect.signature(tl.attach).parameters) == ["tensor", "parent_module", "name"]
    assert inspect.signature(tl.setup).parameters["ulimit"].default == 50_000


def test_its_own_calls_with_positions(watch: Start) -> None:
    """log, log_freq and what follows may be given by position."""
    model = SeedModule()
    folder = watch(nn.Linear(1, 1)).folder.parent
    watching = tl.watch(model, ["io"], 1, [], False, 10, None, backend="store", dir=folder, verbose=False)
    train(model, _batch, 1)
    assert rows(watching, "fc:1/output/0").counts.shape == (1, 10)


def test_intermediate_tensors(watch: Start) -> None:
    class Attached(SeedModule):
        def forward(self, x: Tensor) -> Tensor:
            x1 = tl.attach(self.fc(x), self, "intermediate")
            assert isinstance(x1, Tensor)
            return self.activation(x1)

    model = Attached()
    watching = watch(model)
    train(model, _batch, 1)
    assert {"(model):1/attached/intermediate", "(model):1/attached_grad/intermediate"} <= names(watching)


def test_inputs_and_outputs_of_the_example(watch: Start) -> None:
    model, x = SeedModule(), _batch()
    watching = watch(model, sample_n=None)
    with torch.no_grad():
        x1 = model.fc(x)
    train(model, lambda: x, 1)
    assert rows(watching, "fc:1/input/0")["mean"][0] == pytest.approx(x.mean().item(), abs=1e-5)
    assert rows(watching, "fc:1/output/0")["mean"][0] == pytest.approx(x1.mean().item(), abs=1e-5)
    assert rows(watching, "activation:1/input/0").counts.tolist() == rows(watching, "fc:1/output/0").counts.tolist()


def test_gradient_norms_populate_the_histogram(watch: Start) -> None:
    """Dimension b × d1 × d2: a vector of length b."""
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
    watching = watch(model, reject_outlier_proportion=0.0)
    train(model, lambda: torch.randn(7, 3, 5), 1)
    found = rows(watching, "0:1/output_grad/0")
    assert found["count"][0] == found.counts[0].sum() == 7


def test_only_immediate_parameters(watch: Start) -> None:
    model = SeedModule()
    watching = watch(model)
    train(model, _batch, 1)
    assert {name for name in names(watching) if "/param" in name} == {
        "fc/param/weight", "fc/param/bias", "fc/param_grad/weight", "fc/param_grad/bias"
    }  # fmt: skip


def test_several_calls_of_a_module(watch: Start) -> None:
    class Twice(SeedModule):
        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.fc(self.activation(x)))

    model = Twice()
    watching = watch(model)
    train(model, _batch, 1)
    assert {"activation:1/output/0", "activation:2/output/0"} <= names(watching)
    edges = {(edge["from"], edge["to"]) for edge in watching.structure["edges"] if edge["parent"] == 0}
    assert edges == {("input:0", 1), (1, 2), (2, 3), (3, "output:0")}


def test_nondifferentiable_operations(watch: Start) -> None:
    class Cut(SeedModule):
        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.fc(x.detach().round()))

    model = Cut()
    watching = watch(model)
    train(model, _batch, 2)
    assert len(rows(watching, "fc:1/output_grad/0")) == 2
    assert ("input:0", 1) in {(edge["from"], edge["to"]) for edge in watching.structure["edges"]}, "and it is joined"


def test_multiple_inputs_and_outputs(watch: Start) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(20, 2)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return self.fc(x), self.fc(y)

    model = Pair()
    watching = watch(model)
    first, second = model(_batch(), _batch())
    (first + second).sum().backward()
    assert {"(model):1/input/0", "(model):1/input/1", "(model):1/output/0", "(model):1/output/1"} <= names(watching)


@pytest.mark.parametrize("option", [{}, {"delay_log_multibackward": True}, {"delay_log_multi_backward": True}])
def test_forward_several_times_before_backward(watch: Start, option: dict[str, bool]) -> None:
    """With its option, and without."""
    module = SeedModule()
    watching = watch(module, sample_n=None, **option)
    y1, y2 = torch.zeros(6, 20), torch.ones(6, 20)
    for _ in range(2):
        y_hat1 = module(_batch())
        y_hat2 = module(_batch())
        loss = (y_hat1 - y1).abs().sum() + (y_hat2 - y2).abs().sum()
        loss.backward()
    found = rows(watching, "(model):1/output/0")
    assert found["count"].tolist() == [240, 240], "the superposition across the calls"
    assert rows(watching, "(model):1/output_grad/0")["count"].tolist() == [12, 12]


# -- what it lists as unsupported ------------------------------------------------------------------


def test_eval_mode_is_logged_apart(watch: Start) -> None:
    model = SeedModule()
    watching = watch(model)
    train(model, _batch, 2)
    model.eval()
    with torch.no_grad():
        model(_batch() + 50)
    assert rows(watching, "fc:1/input/0", "eval")["mean"][0] > 40
    assert np.abs(rows(watching, "fc:1/input/0", "train")["mean"]).max() < 5


def test_recursive_operations(watch: Start) -> None:
    class Recursive(SeedModule):
        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            x = self.activation(self.fc(x))
            return self(x, depth - 1) if depth else x

    model = Recursive()
    watching = watch(model)
    train(model, _batch, 2)
    assert {"fc:3/output_grad/0", "(model):3/output/0"} <= names(watching)


def test_control_flow_that_changes_over_training(watch: Start) -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module1, self.module2 = nn.Linear(20, 2), nn.Linear(20, 2)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.module1(x)
            return self.module2(x)

    model = Branch()
    watching = watch(model)
    signs = iter([1, -1, 1])
    train(model, lambda: torch.ones(2, 20) * next(signs), 3)
    assert rows(watching, "module1:1/output_grad/0").steps.tolist() == [0, 2]
    assert rows(watching, "module2:1/output_grad/0").steps.tolist() == [1]


def test_inplace_operations_without_an_option(watch: Start) -> None:
    class Inplace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.relu = nn.Linear(20, 20), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            out = self.fc(x)
            out += x
            return self.relu(out)

    model = Inplace()
    watching = watch(model)
    train(model, _batch, 2)
    assert {"fc:1/output_grad/0", "relu:1/output_grad/0", "relu:1/input_grad/0"} <= names(watching)


def test_keyword_tensor_arguments(watch: Start) -> None:
    class Masked(SeedModule):
        def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
            return self.activation(self.fc(x) * mask)

    model = Masked()
    watching = watch(model)
    model(x=_batch(), mask=torch.ones(6, 20, requires_grad=True)).sum().backward()
    assert {"(model):1/input/x", "(model):1/input/mask", "(model):1/input_grad/mask"} <= names(watching)


def test_stopping_and_resuming(watch: Start) -> None:
    model = SeedModule()
    first = watch(model, name="run")
    train(model, _batch, 3)
    first.stop()
    again = watch(model, name="run", resume=True)
    train(model, _batch, 2)
    assert rows(again, "fc/param/weight").steps.tolist() == [0, 1, 2, 3, 4]


def test_module_forward_called_directly(watch: Start) -> None:
    """It asks not to; here parameters and gradients are logged all the same, and a note says what is missing."""
    model = SeedModule()
    watching = watch(model)
    for _ in range(2):
        model.forward(_batch()).sum().backward()
    assert len(rows(watching, "fc/param_grad/weight")) == 2
    with watching.open() as run:
        (note,) = run.notes()
    assert "call model(x) instead of model.forward(x)" in note.message
