"""A divergence is confirmed by making B's call on what A's was given."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import torcheer as tl


class Block(nn.Module):
    def __init__(self, function: str = "tanh") -> None:
        super().__init__()
        self.function = function
        self.lin, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, self.function)(self.norm(self.lin(x)))


@pytest.fixture
def pair() -> tuple[Block, Block]:
    torch.manual_seed(0)
    model = Block().eval()
    return model, copy.deepcopy(model)


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def confirmed(a: Block, b: Block) -> str:
    state, weights = torch.get_rng_state(), copy.deepcopy(b.state_dict())
    found = tl.compare(a, b, X)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in b.state_dict().items())
    assert found.first_divergence is not None
    assert found.first_divergence.confirmed in str(found)
    return found.first_divergence.confirmed


def test_a_call_with_other_arguments_differs_itself(pair: tuple[Block, Block]) -> None:
    pair[1].norm.eps = 0.1
    assert confirmed(*pair) == "Confirmed: given A's inputs, B's call gives B's result: the call itself differs."


def test_another_function_differs_itself(pair: tuple[Block, Block]) -> None:
    pair[1].function = "sigmoid"
    assert "gives B's result" in confirmed(*pair)


def test_a_call_that_reads_other_numbers_is_right_itself(pair: tuple[Block, Block]) -> None:
    with torch.no_grad():
        pair[1].norm.weight.mul_(2)
    text = confirmed(*pair)
    assert text == "Confirmed: given A's inputs, B's call gives A's result: what it was given differs."


def test_both_may_differ(pair: tuple[Block, Block]) -> None:
    pair[1].norm.eps = 0.1
    with torch.no_grad():
        pair[1].norm.weight.mul_(2)
    assert "neither side's result" in confirmed(*pair)


def test_recordings_confirm_nothing(pair: tuple[Block, Block], tmp_path: Path) -> None:
    pair[1].norm.eps = 0.1
    for name, model in zip("ab", pair, strict=True):
        tl.log_forward_pass(model, X).save(tmp_path / name)
    found = tl.compare(tmp_path / "a", tmp_path / "b").first_divergence
    assert found is not None
    assert found.confirmed == ""
