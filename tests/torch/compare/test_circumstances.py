"""What is said about the circumstances of two runs: gradients, dropout, precision, exported programs, no memory."""

from __future__ import annotations

import copy
from collections.abc import Callable

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
def test_gradients_of_two_biases_and_of_their_sum_hold_the_same_numbers(swapped: bool) -> None:
    torch.manual_seed(0)
    layer = nn.RNN(6, 8, batch_first=True)
    pair = (Cell(layer), layer) if swapped else (layer, Cell(layer))
    found = tl.compare(*pair, X, backward=True)
    assert found, str(found)
    cell = "AB"[not swapped]
    of_sum = next(one for one in found.gradients if "bias" in one.target)
    both = {*of_sum.sources, *of_sum.target.split(", ")}
    assert (of_sum.verdict, both) == ("equal", {"bias", "bias_ih_l0", "bias_hh_l0"})
    assert any(note.startswith(f"gradients of {cell}") and note.endswith(": unused") for note in found.notes)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(lambda bias: bias.detach(), "diverged"), (lambda bias: bias.detach() / 2 + bias / 2, "undetermined")],
)
def test_a_sum_that_is_not_trained_as_its_parts_is_not_called_equal(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor], verdict: str
) -> None:
    torch.manual_seed(0)
    layer = nn.RNN(6, 8, batch_first=True)
    cell = Cell(layer)
    bias = cell.bias
    del cell.bias
    cell.register_parameter("_bias", bias)
    monkeypatch.setattr(Cell, "bias", property(lambda self: change(self._bias)), raising=False)
    found = tl.compare(layer, cell, X, backward=True)
    assert (found.verdict, found.outputs[0].verdict) == (verdict, "equal")
    assert "_bias" in str(found)


class Rewritten(nn.Module):
    """A network of functions, whose tensors are named and ordered otherwise."""

    def __init__(self, other: nn.Module, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        for place, (name, tensor) in enumerate(reversed(other.state_dict().items())):
            setattr(self, f"t{place}", nn.Parameter(tensor.clone()) if tensor.is_floating_point() else None)
            if "running" in name:
                delattr(self, f"t{place}")
                self.register_buffer(f"t{place}", tensor.clone())
        self.places = {name: f"t{place}" for place, name in enumerate(reversed(other.state_dict()))}

    def of(self, name: str) -> list[torch.Tensor]:
        parts = ("running_mean", "running_var", "weight", "bias")
        return [getattr(self, self.places[f"{name}.{p}"]) for p in parts if f"{name}.{p}" in self.places]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.batch_norm(nn.functional.linear(x, *self.of("0")), *self.of("1"), True, 0.1)
        x = nn.functional.linear(x.relu(), *self.of("3"))
        return nn.functional.batch_norm(x, *self.of("4"), True, self.momentum)


@pytest.mark.parametrize("momentum", [0.1, 0.2])
def test_tensors_of_zeros_and_ones_are_told_apart_by_what_is_done_with_them(momentum: float) -> None:
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8))
    for bias in (a[0].bias, a[3].bias):
        nn.init.zeros_(bias)
    b = Rewritten(a, momentum)
    found = tl.compare(a, b, X[:, 0], steps=0 if momentum != 0.1 else 2)
    sources = {b.places[pair.sources[0]] == pair.target for pair in found.param_map.pairs}
    assert sources == {True}
    assert found.verdict == ("equal" if momentum == 0.1 else "diverged"), str(found)
    wrong = {one.target for one in found.weights if one.verdict == "diverged"}
    assert wrong == (set() if momentum == 0.1 else {b.places["4.running_mean"], b.places["4.running_var"]})


def test_noise_leaves_whole_numbers_alone_that_masks_are_made_of() -> None:
    class Regions(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.lin, self.scale = nn.Linear(6, 6), scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            label = torch.zeros(5)
            label[2:] = 3.0
            label = label + torch.arange(5.0).clamp(max=1) * 2
            scores = self.scale * self.lin(x) @ x.mT
            return scores.masked_fill(label[:, None] != label, -100.0).softmax(-1) @ x

    a, b, c = Regions(1.0), Regions(1.0), Regions(1.5)
    b.load_state_dict(a.state_dict())
    c.load_state_dict(a.state_dict())
    assert tl.compare(a, b, X)
    found = tl.compare(a, c, X)
    assert found.verdict == "diverged"
    assert found.outputs[0].tolerance < 1e-4


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


class Writes(nn.Module):
    """Its forward writes into what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x.mul_(2))


@pytest.mark.parametrize("options", [{}, {"backward": True}, {"steps": 2}])
def test_each_run_is_given_the_input_as_it_was(options: dict[str, int]) -> None:
    a, b, x = Writes(), Writes(), X.clone()
    b.load_state_dict(a.state_dict())
    assert tl.compare(a, b, x, **options)
    assert torch.equal(x, X)


@pytest.mark.parametrize("frozen", ["A", "B"])
@pytest.mark.parametrize("options", [{"backward": True}, {"steps": 1}])
def test_a_side_that_does_not_train_a_parameter_diverges(net: Net, frozen: str, options: dict[str, int]) -> None:
    other = copy.deepcopy(net)
    other.up.requires_grad_(requires_grad=False)
    found = tl.compare(*((net, other) if frozen == "B" else (other, net)), X, **options)
    assert found.verdict == "diverged"
    assert f"{frozen} does not train it: requires_grad is off" in str(found)
    assert {one.target for one in found.gradients if one.verdict == "diverged"} == {"up.weight", "up.bias"}
