"""Two implementations compared: equal ones are equal, and the first op that differs is named."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torcheer as tl


class Reference(nn.Module):
    """Attention and a feed-forward layer, of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, 16)
        x = self.norm(x + self.out(mixed))
        return x + self.down(F.gelu(self.up(x)))


class Rewritten(nn.Module):
    """The same of functions, with separate projections; ``bug`` plants a mistake."""

    def __init__(self, reference: Reference, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        weights, biases = reference.qkv.weight.detach().chunk(3), reference.qkv.bias.detach().chunk(3)
        self.weights = nn.ParameterList([weight.t().clone() for weight in weights])
        self.biases = nn.ParameterList([bias.clone() for bias in biases])
        self.rest = nn.ParameterDict(
            {
                name.replace(".", "_"): value.detach().clone()
                for name, value in reference.named_parameters()
                if "qkv" not in name
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        heads = [
            (x @ w + c).reshape(b, t, 2, 8).transpose(1, 2) for w, c in zip(self.weights, self.biases, strict=True)
        ]
        scores = heads[0] @ heads[1].mT
        if self.bug != "scale":
            scores = scores / 8**0.5
        mixed = scores.softmax(-1) @ heads[2]
        mixed = F.linear(mixed.transpose(1, 2).reshape(b, t, 16), self.rest["out_weight"], self.rest["out_bias"])
        x = mixed if self.bug == "residual" else x + mixed
        eps = 1e-2 if self.bug == "eps" else 1e-5
        x = F.layer_norm(x, (16,), self.rest["norm_weight"], self.rest["norm_bias"], eps)
        inner = F.linear(x, self.rest["up_weight"], self.rest["up_bias"])
        inner = F.gelu(inner, approximate="tanh" if self.bug == "gelu" else "none")
        x = x + F.linear(inner, self.rest["down_weight"], self.rest["down_bias"])
        return {"flip": x.flip(-1), "rows": x[[1, 0, 2]], "shift": x + 2}.get(self.bug, x)


@pytest.fixture
def reference() -> Reference:
    torch.manual_seed(0)
    return Reference()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))


def test_equal_models_written_differently_are_equal(reference: Reference, x: torch.Tensor) -> None:
    found = tl.compare(reference, Rewritten(reference), x)
    assert found
    assert found.verdict == "equal"
    assert found.first_divergence is None
    assert found.smallest_tolerance is not None
    assert found.smallest_tolerance < 1e-5


@pytest.mark.parametrize(
    ("bug", "line"),
    [
        ("scale", "scores = heads[0] @ heads[1].mT"),
        ("residual", "x = F.layer_norm(x, (16,)"),
        ("eps", "x = F.layer_norm(x, (16,)"),
        ("gelu", "inner = F.gelu(inner"),
        ("flip", "x.flip(-1)"),
        ("rows", "x.flip(-1)"),
        ("shift", "x.flip(-1)"),
    ],
)
def test_the_first_op_that_differs_is_named(reference: Reference, x: torch.Tensor, bug: str, line: str) -> None:
    found = tl.compare(reference, Rewritten(reference, bug), x)
    assert found.verdict == "diverged"
    first = found.first_divergence
    assert first is not None
    assert first.b is not None
    assert first.b.frame is not None
    assert line in first.b.frame.text


@pytest.mark.parametrize(("bug", "order"), [("flip", "flipped along axis 2"), ("rows", "rows (axis 0) 0 and 1")])
def test_a_permutation_is_named(reference: Reference, x: torch.Tensor, bug: str, order: str) -> None:
    found = tl.compare(reference, Rewritten(reference, bug), x)
    assert order in str(found)


def test_arguments_that_differ_are_named(reference: Reference, x: torch.Tensor) -> None:
    text = str(tl.compare(reference, Rewritten(reference, "eps"), x))
    assert text.startswith("DIVERGED")
    assert "1e-05" in text
    assert "0.01" in text


def test_a_tolerance_of_the_users_decides(reference: Reference, x: torch.Tensor) -> None:
    assert tl.compare(reference, Rewritten(reference, "eps"), x, atol=10.0)
    assert not tl.compare(reference, Rewritten(reference), x, atol=0.0, rtol=1e-12)


def test_models_and_random_state_are_as_before(reference: Reference, x: torch.Tensor) -> None:
    other = Rewritten(reference, "gelu").train()
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    state = torch.get_rng_state()
    tl.compare(reference, other, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in reference.state_dict().items())
    assert all(param.grad is None for param in [*reference.parameters(), *other.parameters()])
    assert not any(module._forward_hooks for module in reference.modules())


class Handing(nn.Module):
    """What does nothing hands its input on: dropout in evaluation, ``to`` with nothing to change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.out = nn.LayerNorm(16), nn.Dropout(0.5), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.out(self.norm(self.drop(x).to(x.dtype)))).contiguous()


def test_an_op_that_hands_its_input_on_hides_nothing() -> None:
    model, other = Handing().eval(), Handing().eval()
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 16)
    assert tl.compare(model, other, x).verdict == "equal"
    other.norm.eps = 1e-2
    found = tl.compare(model, other, x).first_divergence
    assert found is not None
    assert found.b is not None
    assert found.b.module == "norm"


def test_the_elements_shown_are_those_of_their_sides() -> None:
    model, other = Handing().eval(), Handing().eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.out.bias += 5
    found = tl.compare(model, other, torch.randn(2, 3, 16))
    first = found.first_divergence
    assert first is not None
    assert first.distance is not None
    assert first.distance.value_a is not None
    assert first.distance.value_b == pytest.approx(first.distance.value_a + 5, abs=1e-3)
    assert f"{first.distance.value_a:.6g} in A, {first.distance.value_b:.6g} in B" in str(found)


def test_every_op_of_equal_models_has_its_counterpart() -> None:
    model, other = Handing().eval(), Handing().eval()
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 16)
    found = tl.compare(model, other, x)
    labels = {layer.label for layer in tl.log_forward_pass(model, x)} - {"input_1_0", "output_1_8"}
    assert {(label, label) for label in labels} <= {(one.a, one.b) for one in found.matches}
    assert found.num_matched == found.num_ops == (len(labels), len(labels))
