"""What cannot be compared is refused with a reason; recordings are compared like models."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl

X = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))


class Fn(nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Needs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def explode(x: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"boom at {tuple(x.shape)}")


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (nn.Identity(), Fn(explode), r"B \(Fn\) raised ValueError: boom"),
        (Fn(explode), nn.Identity(), r"A \(Fn\) raised ValueError: boom"),
        (nn.Identity(), Fn(lambda x: (x, x)), "different structures.*pick="),
        (Fn(lambda _: None), Fn(lambda _: None), "returned no tensor"),
        (nn.Identity(), Needs(), "missing a required argument: 'y'"),
        (3, nn.Identity(), "A int was given where a model is expected"),
    ],
)
def test_what_cannot_be_compared_is_refused(a: Any, b: Any, message: str) -> None:
    state = torch.get_rng_state()
    with pytest.raises(tl.TorcheerError, match=message):
        tl.compare(a, b, X)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_input_is_needed_and_two_of_a_kind() -> None:
    with pytest.raises(tl.TorcheerError, match="pass x"):
        tl.compare(nn.Identity(), nn.Identity())
    with pytest.raises(tl.TorcheerError, match="the other side is a recording"):
        tl.compare(tl.log_forward_pass(nn.Identity(), X), nn.Identity())
    with pytest.raises(tl.TorcheerError, match="weights is 'same'"):
        tl.compare(nn.Identity(), nn.Identity(), X, weights="same")


def test_nan_at_the_same_place_is_equal_and_elsewhere_is_not() -> None:
    def holed(row: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x.masked_fill((torch.arange(3) == row)[:, None], float("nan"))

    assert tl.compare(Fn(holed(0)), Fn(holed(0)), X)
    assert not tl.compare(Fn(holed(0)), Fn(holed(1)), X)


def test_integers_and_bools_are_compared_exactly() -> None:
    assert tl.compare(Fn(lambda x: (x.argmax(-1), x > 0)), Fn(lambda x: (x.argmax(-1), x > 0)), X)
    found = tl.compare(Fn(lambda x: (x.argmax(-1), x > 0)), Fn(lambda x: (x.argmin(-1), x > 0)), X)
    assert [one.verdict for one in found.outputs] == ["diverged", "equal"]


def test_outputs_are_picked() -> None:
    assert tl.compare(nn.Identity(), Fn(lambda x: (x, x * 2)), X, pick=(None, lambda out: out[0]))
    with pytest.raises(tl.TorcheerError, match="no tensor of the model's output"):
        tl.compare(nn.Identity(), Fn(lambda x: (x, x * 2)), X, pick=(None, lambda out: out[0] * 2))


def test_dropout_left_on_is_named() -> None:
    a = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1)).eval()
    b = copy.deepcopy(a).train()
    found = tl.compare(a, b, X)
    assert found.verdict == "diverged"
    assert "A ran in eval mode and B in training mode" in str(found)
    assert found.first_divergence is not None
    assert found.first_divergence.kind == "random"


def test_low_precision_is_compared_in_single() -> None:
    a = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    found = tl.compare(a, copy.deepcopy(a).bfloat16(), X)
    assert found
    assert "low precision" in str(found)


def test_other_weights_are_named_and_can_be_made_equal() -> None:
    a, b = (nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(2))
    found = tl.compare(a, b, X)
    assert found.first_divergence is not None
    assert found.first_divergence.kind == "param"
    before = copy.deepcopy(b.state_dict())
    assert tl.compare(a, b, X, weights="equal")
    assert tl.compare(a, b, X, weights="copy")
    assert all(torch.equal(tensor, before[name]) for name, tensor in b.state_dict().items())


def test_recordings_are_compared_like_models(tmp_path: Path) -> None:
    a = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    b = copy.deepcopy(a)
    b[1].eps = 0.1
    tl.log_forward_pass(a, X, save_to=tmp_path / "a")
    tl.log_forward_pass(b, X, save_to=tmp_path / "b")
    assert tl.compare(tmp_path / "a", tmp_path / "a")
    found = tl.compare(tmp_path / "a", tmp_path / "b")
    assert found.first_divergence is not None
    assert found.first_divergence.b is not None
    assert found.first_divergence.b.module == "1"
    data = json.loads(found.to_json())
    assert data["verdict"] == "diverged"
    assert data["first_divergence"]["b"]["aten"] == "native_layer_norm"
    page = found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page


def test_assert_equal() -> None:
    tl.assert_equal(nn.Identity(), nn.Identity(), X)
    with pytest.raises(AssertionError, match="DIVERGED"):
        tl.assert_equal(nn.Identity(), Fn(lambda x: x + 2), X)


class Two(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layers = {"swapped": (self.two, self.one), "reused": (self.one, self.one)}.get(self.bug, (self.one, self.two))
        x = torch.relu(layers[0](x))
        if self.bug == "item":
            x = torch.cat((x[:1], x[1:2] * 1.5, x[2:]))
        return layers[1](x)


@pytest.mark.parametrize("bug", ["swapped", "reused", "item"])
def test_mistakes_that_equal_attributes_hide_are_found(bug: str) -> None:
    a, b = Two(), Two(bug)
    b.load_state_dict(a.state_dict())
    found = tl.compare(a, b, X)
    assert found.verdict == "diverged"
    assert found.first_divergence is not None
    assert found.first_divergence.b is not None
    line = found.first_divergence.b.stack[0].text
    assert line == {"item": "x = torch.cat((x[:1], x[1:2] * 1.5, x[2:]))"}.get(bug, line)


class Returning(nn.Module):
    def __init__(self, model: nn.Module, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.model(x))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ((lambda y: y, lambda y: {"logits": y}), "A's tensor is compared with B's logits"),
        ((lambda y: {"a": y, "b": y + 1}, lambda y: {"a": y, "c": y + 1}), "A's b is compared with B's c"),
        ((lambda y: y.argmax(1), lambda y: y.argmax(1).float()), "A returns its output as int64, B as float32"),
    ],
)
def test_outputs_of_other_structures_or_kinds_are_compared_with_a_note(changes: Any, note: str) -> None:
    model = nn.Linear(4, 3)
    found = tl.compare(*(Returning(model, change) for change in changes), torch.randn(2, 4))
    assert found
    assert any(note in one for one in found.notes), found.notes


def test_models_that_compute_nothing_are_named_as_such() -> None:
    assert any(
        "neither model computes anything" in n for n in tl.compare(nn.Sequential(), nn.Identity(), torch.ones(2)).notes
    )


def test_weights_that_nobody_carried_over_are_named() -> None:
    found = tl.compare(nn.Linear(4, 3), nn.Linear(4, 3), torch.randn(2, 4))
    assert any("none of B's 2 params and buffers has the numbers" in note for note in found.notes)
    model = nn.Linear(4, 3)
    other = nn.Linear(4, 3)
    other.weight.data.copy_(model.weight)
    assert not any("none of B's" in note for note in tl.compare(model, other, torch.randn(2, 4)).notes)


def test_an_input_that_does_not_fit_says_whose_it_is() -> None:
    with pytest.raises(tl.TorcheerError, match=r"^B: Bilinear cannot be called.*pass x_b for B"):
        tl.compare(nn.Linear(4, 3), nn.Bilinear(4, 4, 3), torch.randn(2, 4))


def spoiled(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def spoil(y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y[0, 1] = number
        return y

    return spoil


def test_nan_and_infinities_of_one_side_are_said_without_a_warning() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    found = tl.compare(model, Returning(model, spoiled(float("nan"))), x)
    assert "NaN in one of the two" in str(found)
    up, down = (Returning(model, spoiled(number)) for number in (float("inf"), float("-inf")))
    assert not tl.compare(up, down, x)
