"""Where outputs agree: gradients, buffers, training steps, and the parameter map they go by."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torcheer as tl


class Split(nn.Module):
    """Attention of three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(11, 8, padding_idx=0)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tok(ids)
        mixed = (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)
        return self.norm(self.out(mixed).mT)


class Fused(nn.Module):
    """The same with one projection, whose weight lies the other way round."""

    def __init__(self, other: Split, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.words = nn.Embedding(11, 8, padding_idx=None if bug == "padding_idx" else 0)
        self.qkv = nn.Parameter(torch.cat([other.q.weight, other.k.weight, other.v.weight]).detach().t().clone())
        self.bias = nn.Parameter(torch.cat([other.q.bias, other.k.bias, other.v.bias]).detach().clone())
        self.out = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8, momentum=0.3 if bug == "momentum" else 0.1)
        self.words.load_state_dict(other.tok.state_dict())
        self.out.load_state_dict(other.out.state_dict())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.words(ids) @ self.qkv + self.bias).chunk(3, -1)
        scores = q @ k.mT
        if self.bug == "detached":
            v = v.detach()
        return self.norm(F.linear(scores.softmax(-1) @ v, self.out.weight, self.out.bias).transpose(1, 2))


@pytest.fixture
def model() -> Split:
    torch.manual_seed(0)
    return Split()


IDS = torch.tensor([[1, 2, 0, 4], [5, 0, 7, 8], [9, 10, 1, 3]])


def test_equal_models_learn_equally(model: Split) -> None:
    found = tl.compare(model, Fused(model), IDS)
    assert found, str(found)
    assert {one.target for one in found.gradients} == {
        "words.weight",
        "qkv",
        "bias",
        "out.weight",
        "out.bias",
        "norm.weight",
        "norm.bias",
    }
    assert any(one.target == "norm.running_mean" for one in found.weights)


@pytest.mark.parametrize(
    ("bug", "target"), [("padding_idx", "words.weight"), ("detached", "qkv"), ("momentum", "norm.running_mean")]
)
def test_the_tensor_that_learns_otherwise_is_named(model: Split, bug: str, target: str) -> None:
    found = tl.compare(model, Fused(model, bug), IDS)
    assert found.verdict == "diverged"
    assert found.first_divergence is not None
    assert target in found.first_divergence.headline
    assert found.outputs[0].verdict == "equal"


def test_the_parameter_map_converts_a_state_dict(model: Split) -> None:
    other = Fused(model)
    found = tl.compare(model, other, IDS, backward=False)
    assert "qkv" in str(found.param_map)
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1.5)
    other.load_state_dict(found.convert_state_dict(model.state_dict()), strict=False)
    assert tl.compare(model, other, IDS)


def steps(model: Split, other: Fused, make_a: object, make_b: object, count: int = 3) -> tl.Comparison:
    optimizers = make_a(model.parameters()), make_b(other.parameters())  # type: ignore[operator]
    return tl.compare(
        model,
        other,
        IDS,
        steps=count,
        loss=lambda out: (2 * out).sigmoid()[:, :, 1:].square().mean(),
        optimizers=optimizers,
    )


def adam(**options: float) -> object:
    return lambda params: torch.optim.AdamW(params, lr=1e-2, **options)


def test_equal_optimizers_make_equal_steps(model: Split) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = steps(model, Fused(model), adam(), adam())
    assert found, str(found)
    assert {one.step for one in found.weights} >= {0, 1, 2}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("make_b", "step", "what"),
    [
        (adam(weight_decay=0.3), 0, "weight"),
        (adam(eps=1e-2), 0, "weight"),
        (adam(betas=(0.8, 0.999)), 0, "state"),
        (lambda params: torch.optim.Adam(params, lr=1e-2, weight_decay=0.01), 0, "state"),
        (lambda params: torch.optim.SGD(params, lr=1e-2), 0, "state"),
    ],
)
def test_optimizers_that_differ_are_found(model: Split, make_b: object, step: int, what: str) -> None:
    found = steps(model, Fused(model), adam(), make_b)
    assert found.verdict == "diverged"
    wrong = [one for one in found.weights if one.verdict == "diverged"]
    assert wrong[0].step == step
    assert found.first_divergence is not None
    assert found.first_divergence.kind == what


def test_momentum_shows_in_the_second_step(model: Split) -> None:
    plain, nesterov = ({"lr": 1e-1, "momentum": value} for value in (0.9, 0.5))
    found = steps(model, Fused(model), lambda p: torch.optim.SGD(p, **plain), lambda p: torch.optim.SGD(p, **nesterov))
    assert found.verdict == "diverged"
    assert next(one.step for one in found.weights if one.verdict == "diverged") == 1
