"""What the last line of a cell shows: short text, a table or a picture, and nothing besides."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl
from examples.models import ResidualNet

X = torch.rand(2, 3, 8, 8)
RESULTS: dict[str, Callable[[nn.Module], Any]] = {
    "history": lambda model: tl.log_forward_pass(model, X),
    "layer": lambda model: tl.log_forward_pass(model, X)["head"],
    "picture": lambda model: tl.log_forward_pass(model, X).draw(),
    "profile": lambda model: tl.profile(model, X, repeats=1),
    "summary": lambda model: tl.summary(model, X),
    "comparison": lambda model: tl.compare(model, copy.deepcopy(model), X),
    "validation": lambda model: tl.validate(model, X),
    "leaves": lambda model: tl.ModelSummary(model),
    "equal leaves": lambda model: tl.ModelSummary(model).compare(tl.ModelSummary(copy.deepcopy(model))),
}


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich shows by itself what is printed in a notebook, where it finds one."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)


@pytest.mark.usefixtures("in_a_notebook")
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    result = RESULTS[name](ResidualNet().eval())
    page = result._repr_html_()
    assert page.startswith("<")
    assert len(page) < 100_000
    assert len(repr(result)) < 300
    assert len(str(result).splitlines()) >= 1
    assert str(result).strip()
    assert capsys.readouterr() == ("", "")
