"""What is said about the circumstances of two runs: gradients, dropout, precision, exported programs, no memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torcheer as tl

X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
NOT_COMPARED = "gradients were not compared: backward=True compares them"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(x)).relu())


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def test_gradients_that_were_not_compared_are_named(net: Net) -> None:
    other = copy.deepcopy(net)
    found = tl.compare(net, other, X)
    assert NOT_COMPARED in found.notes
    assert not found.gradients
    assert NOT_COMPARED not in tl.compare(net, other, X, backward=True).notes
    assert NOT_COMPARED not in tl.compare(net, other, X, backward=False).notes
    assert NOT_COMPARED not in tl.compare(net.requires_grad_(requires_grad=False), other, X).notes


class Cell(nn.Module):
    """A recurrent layer with one bias where torch's has two."""

    def __init__(self, other: nn.RNN) -> None:
        super().__init__()
        self.wx, self.wh = (nn.Parameter(w.detach().T.clone()) for w in (other.weight_ih_l0, other.weight_hh_l0))
        self.bias = nn.Parameter((other.bias_ih_l0 + other.bias_hh_l0).detach())
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, found = x.new_zeros(x.shape[0], 8), []
        for step in x.unbind(1):
            h = torch.tanh(step @ self.wx + h @ self.wh + self.bias)
            found.append(h)
        return torch.stack(found, 1), h[None]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_gradient_of_a_sum_is_named_as_not_compared(swapped: bool) -> None:
    torch.manual_seed(0)
    layer = nn.RNN(6, 8, batch_first=True)
    pair = (Cell(layer), layer) if swapped else (layer, Cell(layer))
    found = tl.compare(*pair, X, backward=True)
    assert found, str(found)
    cell, rnn = "AB" if swapped else "BA"
    text = f"{cell}'s bias was not compared: the tensor is the sum of {rnn}'s bias_ih_l0 and bias_hh_l0"
    assert any(text in note for note in found.notes), found.notes
    assert any(note.startswith(f"gradients of {cell}") and note.endswith(": unused") for note in found.notes)


class Dropping(nn.Module):
    def __init__(self, p: float, *, draws: bool = False) -> None:
        super().__init__()
        self.lin, self.p, self.draws = nn.Linear(6, 6), p, draws

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.draws:
            torch.rand(3)
        return nn.functional.dropout(self.lin(x), self.p, self.training).relu()


def test_other_masks_of_one_dropout_tell_nothing() -> None:
    a, b = Dropping(0.5), Dropping(0.5, draws=True)
    b.load_state_dict(a.state_dict())
    found = tl.compare(a, b, X)
    assert found.verdict == "undetermined"
    assert not found
    assert any("both sides draw random numbers" in reason for reason in found.reasons)
    assert tl.compare(a.eval(), b.eval(), X)


@pytest.mark.parametrize(("p", "trains"), [(0.2, True), (0.5, False)])
def test_a_dropout_of_one_side_or_of_another_probability_diverges(p: float, trains: bool) -> None:
    a, b = Dropping(0.5).train(trains), Dropping(p, draws=True)
    b.load_state_dict(a.state_dict())
    found = tl.compare(a, b, X)
    assert found.verdict == "diverged"
    assert found.first_divergence is not None
    assert found.first_divergence.kind == "random"


@pytest.mark.parametrize("options", [{}, {"loss": lambda out: out.float().square().mean()}])
@pytest.mark.parametrize("own", [X, X.bfloat16()])
def test_a_rounded_copy_is_equal(net: Net, options: dict[str, object], own: torch.Tensor) -> None:
    found = tl.compare(net, copy.deepcopy(net).bfloat16(), X, x_b=own, **options)  # type: ignore[arg-type]
    assert found, str(found)
    assert any("weights rounded alike" in note for note in found.notes)


def test_recordings_of_which_one_is_rounded_are_not_judged(net: Net) -> None:
    one, other = tl.log_forward_pass(net, X), tl.log_forward_pass(copy.deepcopy(net).bfloat16(), X.bfloat16())
    found = tl.compare(one, other)
    assert found.verdict == "undetermined"
    assert "B's is bfloat16" in found.reasons[0]


def test_an_exported_program_has_no_mode(net: Net) -> None:
    program = torch.export.export(net, (X,))
    for pair in ((net, program), (program, net)):
        found = tl.compare(*pair, X)
        assert found
        assert not any("mode" in note for note in found.notes), found.notes


def test_a_model_without_memory_is_refused(net: Net) -> None:
    with torch.device("meta"):
        empty = Net()
    with pytest.raises(
        tl.TorcheerError, match=r"Net is on the meta device \(up.weight, up.bias, norm.weight, …\).*to_empty"
    ):
        tl.compare(net, empty, X)
    with pytest.raises(tl.TorcheerError, match="input of Net is on the meta device"):
        tl.compare(net, net, X.to("meta"))
