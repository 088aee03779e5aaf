"""``validate`` passes on true records, and finds what is planted in them."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

import torcheer as tl
from torcheer.capture.torch import modes, validate
from torcheer.capture.torch.inputs import arrange
from torcheer.capture.torch.leaves import LEAVES
from torcheer.capture.torch.proof import Proof, check_proof
from torcheer.capture.torch.state import RunState
from torcheer.record.model import Edge

Tensor = torch.Tensor


class Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        a, b = y[0], y[1]
        a.mul_(2)
        b.add_(3)
        return y.sum(0).relu() * 2


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.cell = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.LSTMCell(4, 4)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        state = None
        for _ in range(3):
            state = self.cell(self.drop(self.norm(x)), state)
        assert state is not None
        return state[0]


def proof_of(model: nn.Module, *args: Any) -> Proof:
    inputs = arrange(model, args, {})
    state = RunState(model, inputs)
    census = validate.census_of(model, inputs)
    state.restore()
    proof, _ = validate.witnessed_run(model, inputs, census)
    state.restore()
    return proof


def failures(proof: Proof) -> dict[str, list[str]]:
    return {check.name: check.failures for check in check_proof(proof) if check.failures}


def test_a_true_record_passes_and_says_what_it_tested() -> None:
    result = tl.validate(Views(), torch.randn(3, 4))
    assert result
    assert result.failures == []
    assert {check.name for check in result.checks} == {"same run", "leaves", "census", "replay", "edges", "influence"}
    assert all(check.tested for check in result.checks)
    assert str(result).startswith("Validation passed")


def test_model_inputs_and_random_numbers_are_left_as_they_were() -> None:
    model, x = Trains(), torch.randn(5, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given, random = x.clone(), torch.get_rng_state()
    assert tl.validate(model, x)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.steps == 0
    assert torch.equal(x, given)
    assert torch.equal(torch.get_rng_state(), random)


def test_a_wrong_edge_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    assert failures(proof) == {}
    total = next(op for op in proof.record.ops if op.name == "sum")
    wrong = next(op for op in proof.record.ops if op.name == "getitem")
    total.parents = (Edge(wrong.index, wrong.outputs[0].value, "argument", "0"),)
    assert any("sum_1" in failure for failure in failures(proof)["edges"])


def test_a_missing_edge_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    total = next(op for op in proof.record.ops if op.name == "sum")
    total.parents = tuple(edge for edge in total.parents if edge.how == "argument")
    assert len(total.parents) == 1
    assert any("sum_1" in failure for failure in failures(proof)["edges"])


def test_a_stale_value_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    total = next(op for op in proof.record.ops if op.name == "sum")
    name = proof.record.saved[total.outputs[0].value]
    proof.contents = {**{key: proof.contents[key] for key in proof.contents}, name: proof.contents[name] + 1}
    found = failures(proof)
    assert any("sum_1" in failure for failure in found["replay"])
    assert any("relu_1" in failure for failure in found["edges"])


def test_a_missing_aten_call_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    gone = next(op for op in proof.record.aten if op.name == "sum")
    proof.record.aten = [op for op in proof.record.aten if op is not gone]
    assert any("aten.sum" in failure for failure in failures(proof)["census"])


def planted(monkeypatch: pytest.MonkeyPatch, func: Any, **changes: Any) -> None:
    monkeypatch.setitem(LEAVES, id(func), LEAVES[id(func)]._replace(**changes))


def no_view(kind: Any) -> Any:
    other = copy(kind)
    other.is_view = False
    return other


@pytest.mark.parametrize(
    ("func", "changes"),
    [
        (Tensor.neg, {"kind": LEAVES[id(Tensor.exp)].kind}),
        (Tensor.sub, {"arguments": lambda given: (given[0], given[1] + 0.0)}),
        (Tensor.sub, {"arguments": lambda given: given[:1]}),
        (Tensor.t, {"kind": no_view(LEAVES[id(Tensor.t)].kind)}),
    ],
    ids=["another operator", "another number", "an argument too few", "no view"],
)
def test_a_wrong_leaf_is_found(func: Any, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Tensor) -> Tensor:
        return x.neg().sub(1).t().add(2)

    assert tl.validate(model, torch.randn(3, 4))
    planted(monkeypatch, func, **changes)
    result = tl.validate(model, torch.randn(3, 4))
    assert next(check.name for check in result.checks if check.failures) == "leaves"
    name = LEAVES[id(func)].kind.name
    assert result.failures[0].startswith("leaves: ATen call ")
    assert f"was written down as {name}" in result.failures[0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, on first use
def test_a_leaf_that_is_more_than_one_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Tensor) -> Tensor:
        with dual_level():
            return unpack_dual(make_dual(x, torch.ones_like(x)) * 2).tangent.clone()

    assert tl.validate(model, torch.randn(3))
    monkeypatch.setattr(modes, "in_forward_ad", lambda: False)
    assert tl.validate(model, torch.randn(3)).failures[0].startswith("leaves: ATen call ")


def test_an_aten_call_without_an_owner_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    proof.record.aten[0].owner = None
    assert any("belongs to no op" in failure for failure in failures(proof)["census"])


def test_an_argument_that_changes_nothing_is_found() -> None:
    proof = proof_of(Views(), torch.randn(3, 4))
    product = next(op for op in proof.record.ops if op.name == "sum")
    call = proof.calls[product.index]
    call.func = lambda tensor, axis: torch.zeros(4)
    found = failures(proof)
    assert any("sum_1" in failure and "does not change it" in failure for failure in found["influence"])


def test_an_out_argument_says_where_the_result_goes() -> None:
    def model(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        torch.cumsum(x, 0, out=out)
        return out * 2

    validation = tl.validate(model, torch.rand(3, 2))
    assert validation, str(validation)
    assert "1 × the argument says where the result goes" in str(validation)


def test_a_run_that_is_not_the_plain_run_is_found() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return x * len(calls)

    calls: list[int] = []
    result = tl.validate(Moody(), torch.ones(2))
    assert not result
    assert any("outputs differ" in failure for failure in result.failures)
    assert "FAILED" in str(result)


@pytest.mark.parametrize("training", [True, False])
def test_a_network_with_everything_passes(training: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
    ).train(training)
    assert tl.validate(model, torch.randn(2, 3, 8, 8))
