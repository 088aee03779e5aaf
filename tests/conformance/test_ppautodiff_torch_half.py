"""PPAutoDiff's promises for two PyTorch models, one test per promise; layers and inputs that such tools trip over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import ComparisonError

Tensor = torch.Tensor
ROWS = np.random.default_rng(0).random((20, 100)).astype("float32")
WORDS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


class Simple(nn.Module):
    """The seed's example."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Linear(100, 100)
        self.linear2 = nn.Linear(100, 10)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        x = self.act(self.linear1(x))
        x = x + residual
        return self.linear2(x)


class HalfDetached(Simple):
    """Wrong in backward alone."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.act(self.linear1(x))
        hidden = hidden.detach() * 0.5 + hidden * 0.5
        return self.linear2(hidden + x)


def autodiff(a: nn.Module, b: nn.Module, inp: Any, **options: Any) -> Any:
    return tl.autodiff(a, b, inp, show=False, **options)


# -- the report, line by line ---------------------------------------------------------------------------------


def test_success_prints_the_largest_difference_and_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    report = tl.autodiff(Simple(), Simple(), ROWS, auto_weights=True, options={"atol": 1e-4})
    assert capsys.readouterr().out.splitlines() == [
        "Max output diff is 0.0",
        "forward 4 steps compared.",
        "backward 4 steps compared.",
        "SUCCESS !!!",
    ]
    assert report
    assert (report.max_output_diff, report.num_forward, report.num_backward, report.first) == (0.0, 4, 4, None)


@pytest.fixture(scope="module")
def failed() -> Any:
    torch.manual_seed(0)
    return autodiff(Simple(), Simple(), ROWS, auto_weights=False, options={"atol": 1e-4})


def test_failure_names_weights_and_gradients_after_training(failed: Any) -> None:
    lines = str(failed).splitlines()
    assert lines[0] == f"Max output diff is {failed.max_output_diff}"
    assert lines[1:4] == [
        "After training, weight value is different for param `weight`.",
        "torch A: at `Linear(in_features=100, out_features=100, bias=True)` (linear1.weight).",
        "torch B: at `Linear(in_features=100, out_features=100, bias=True)` (linear1.weight).",
    ]
    assert lines[5] == "After training, grad value is different for param `weight`."
    assert {(one.what, one.address_b) for one in failed.params} == {
        (what, f"linear{n}.{name}") for what in ("weight", "grad") for n in (1, 2) for name in ("weight", "bias")
    } - {("grad", "linear2.bias")}  # the same gradient goes into both outputs


def test_failure_names_the_first_difference_in_forward(failed: Any) -> None:
    text = str(failed)
    assert "FAILED !!!\n    Diff found in `Forward Stage` in step: 0, net_id is 1 vs 1\n" in text
    kind = "torch.nn.modules.linear.Linear (linear1)"
    assert f"Type of layer is: {kind} vs {kind}" in text
    assert "Not equal to tolerance rtol=1e-07, atol=0.0001" in text
    assert "Mismatched elements: " in text
    assert "Max absolute difference: " in text
    assert "Max relative difference: " in text
    assert failed.first.stage == "forward"
    assert failed.blamed == ("linear1", "linear1")
    assert not failed


def test_failure_shows_both_stacks_with_the_users_lines(failed: Any) -> None:
    text = str(failed)
    for side in ("A", "B"):
        stack = text.split(f"Torch {side} Stacks:\n=========================\n")[1]
        assert stack.startswith(f"    File {__file__}: ")
        lines = [line.strip() for line in stack.splitlines()]
        assert lines[0].endswith("failed")  # whoever called autodiff
        assert "autodiff(" in lines[1]
        forward = next(number for number, line in enumerate(lines) if line.endswith("Simple.forward"))
        assert lines[forward + 1] == "x = self.act(self.linear1(x))"


def test_a_difference_in_backward_alone() -> None:
    report = autodiff(Simple(), HalfDetached(), ROWS, options={"atol": 1e-6})
    text = str(report)
    assert not report
    assert report.max_output_diff < 1e-6
    assert "forward 4 steps compared.\nFAILED !!!\n    Diff found in `Backward Stage` in step: 0" in text
    assert {one.address_b for one in report.params} == {"linear1.weight", "linear1.bias"}
    assert "the gradient of what `act` returns differs, and every layer after it agrees" in text


def test_atol_decides() -> None:
    class Shifted(Simple):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1e-3

    assert not autodiff(Simple(), Shifted(), ROWS, options={"atol": 1e-4})
    assert autodiff(Simple(), Shifted(), ROWS, options={"atol": 1e-2})


# -- layers and inputs ------------------------------------------------------------------------------------------


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.attention(x, x, x, need_weights=False)[0] + x)


class ByHand(nn.Module):
    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.scale = scale
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = (self.scale * q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.fc(self.o(mixed.transpose(1, 2).flatten(2)) + x)


class Recurrent(nn.Module):
    def __init__(self, bidirectional: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=bidirectional)
        self.fc = nn.Linear(12 if bidirectional else 6, 3)

    def forward(self, x: Tensor) -> Any:
        out, (h, c) = self.lstm(x)
        return {"out": self.fc(out), "state": [h, c]}


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 6)
        for row in x.unbind(1):
            h = self.cell(row, h)
        return h


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[1][0]


class Normed(nn.Module):
    def __init__(self, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(5, 4, 3, bias=False)
        self.norm = nn.BatchNorm1d(4, eps, momentum)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


class Shared(nn.Module):
    def __init__(self, times: int = 3) -> None:
        super().__init__()
        self.fc, self.times = nn.Linear(8, 8), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.fc(x))
        return x


def dropped(p: float = 0.5) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(p))


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)


EQUAL: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "attention": (Packed, Packed),
    "packed-and-split-projections": (Packed, ByHand),
    "split-and-packed-projections": (ByHand, Packed),
    "encoder": (encoder, encoder),
    "lstm": (Recurrent, Recurrent),
    "both-directions": (lambda: Recurrent(True), lambda: Recurrent(True)),
    "cell-and-layer": (Cell, Gated),
    "batchnorm-training": (Normed, Normed),
    "batchnorm-eval": (lambda: Normed().eval(), lambda: Normed().eval()),
    "shared": (Shared, Shared),
    "dropout": (dropped, dropped),
    "float64": (lambda: Packed().double(), lambda: ByHand().double()),
    "bfloat16": (lambda: Packed().bfloat16(), lambda: Packed().bfloat16()),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_models_are_equal(name: str) -> None:
    a, b = (make() for make in EQUAL[name])
    x = WORDS.to(next(a.parameters()).dtype)
    report = autodiff(a, b, x, options={"atol": 1e-4, "steps": 2})
    assert report, str(report)
    assert report.num_forward
    assert report.num_backward


WRONG: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], str]] = {
    "attention-scale": (Packed, lambda: ByHand(1.0), ""),
    "batchnorm-eps": (Normed, lambda: Normed(eps=0.5), "norm"),
    "batchnorm-momentum": (Normed, lambda: Normed(momentum=0.3), "norm"),
    "batchnorm-mode": (Normed, lambda: Normed().eval(), "norm"),
    "one-call-less": (Shared, lambda: Shared(2), ""),
    "dropout": (dropped, lambda: dropped(0.1), "1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_models_are_found_at_their_layer(name: str) -> None:
    make_a, make_b, layer = WRONG[name]
    report = autodiff(make_a(), make_b(), WORDS)
    assert not report
    assert report.blamed is not None
    assert report.blamed[1] == layer, str(report)


class Masked(nn.Module):
    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8, padding_idx=padding_idx)

    def forward(self, ids: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        x = self.embed(ids) * scale
        return x if mask is None else x * mask[..., None]


IDS, MASK = torch.tensor([[1, 2, 0], [3, 4, 5]]), torch.tensor([[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    "inp",
    [IDS, IDS.numpy(), (IDS, MASK), {"ids": IDS, "mask": MASK.numpy(), "scale": 2.0}],
    ids=["ints", "array", "several", "dict"],
)
def test_inputs_of_every_kind(inp: Any) -> None:
    assert autodiff(Masked(), Masked(), inp)


def test_a_padding_row_is_seen_in_the_gradients_alone() -> None:
    report = autodiff(Masked(), Masked(padding_idx=0), IDS)
    assert not report
    assert report.max_output_diff == 0
    assert {one.address_b for one in report.params} == {"embed.weight"}
    assert report.first.stage == "backward"


def test_nan_on_both_sides_is_equal() -> None:
    class Broken(Shared):
        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            return torch.cat([x[..., :1] * float("nan"), x[..., 1:]], -1)

    assert autodiff(Broken(), Broken(), WORDS)
    assert not autodiff(Shared(), Broken(), WORDS)


def adamw(*models: nn.Module, **options: Any) -> tuple[torch.optim.Optimizer, ...]:
    return tuple(torch.optim.AdamW(model.parameters(), 1e-2, **options) for model in models)


def test_adam_on_gradients_that_are_zero_in_theory_is_not_a_difference() -> None:
    a, b = Packed(), ByHand()
    report = autodiff(a, b, WORDS, optimizers=adamw(a, b), options={"steps": 3})
    assert report, str(report)
    assert report.undetermined == ["k.bias"]
    assert "Not judged, their gradient is rounding alone: k.bias" in str(report)


def test_optimizers_that_differ() -> None:
    a, b = Shared(), Shared()
    optimizers = (*adamw(a, weight_decay=0.1), torch.optim.Adam(b.parameters(), 1e-2, weight_decay=0.1))
    assert not autodiff(a, b, WORDS, optimizers=optimizers, options={"steps": 2})
    a, b = Shared(), Shared()
    momenta = [torch.optim.SGD(m.parameters(), 0.1, momentum=p) for m, p in ((a, 0.9), (b, 0.5))]
    report = autodiff(a, b, WORDS, optimizers=momenta, options={"steps": 3, "atol": 1e-6})
    assert not report
    assert {one.step for one in report.params} == {1}  # the first step has no momentum yet


def test_layers_without_a_counterpart_are_named() -> None:
    with pytest.raises(
        ComparisonError, match=r"torch A has fc\.weight \(8, 8\), fc\.bias \(8,\); torch B has .*conv\.weight"
    ):
        autodiff(Shared(), Normed(), WORDS)


def test_both_models_are_left_as_they_were() -> None:
    models = (Normed(), Normed(eps=0.5))
    before = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in models]
    random = torch.get_rng_state()
    autodiff(*models, WORDS, options={"steps": 2})
    for model, kept in zip(models, before, strict=True):
        assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())
        assert all(param.grad is None for param in model.parameters())
        assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(random, torch.get_rng_state())
