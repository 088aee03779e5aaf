"""Fake execution: the same shapes, FLOPs and memory as a real run, and nothing computed."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from examples.models import ResidualNet, TinyGPT

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def both(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    options = {"backward": True, "measure": ("memory", "flops")}
    return (
        tl.profile(model, *args, **options, **kwargs),
        tl.profile(model, *args, **options, execution="fake", **kwargs),
    )


MODELS = {
    "resnet": lambda: (ResidualNet(), torch.rand(2, 3, 16, 16)),
    "gpt": lambda: (TinyGPT(), torch.randint(0, 50, (2, 16))),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_fake_equals_real(make: Any) -> None:
    real, fake = both(*make())
    assert fake.totals.figures == real.totals.figures
    assert fake.totals.peak_bytes == real.totals.peak_bytes
    assert fake.totals.held_bytes == real.totals.held_bytes
    assert fake.totals.at_peak == real.totals.at_peak
    assert [row.memory for row in fake.rows] == [row.memory for row in real.rows]


def test_llama_takes_the_path_it_takes_for_real() -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    real, fake = both(transformers.LlamaForCausalLM(config), torch.randint(0, 100, (1, 32)))
    assert fake.totals.figures.flops_forward == real.totals.figures.flops_forward
    assert fake.totals.peak_bytes == pytest.approx(real.totals.peak_bytes, rel=0.02)


def test_a_model_on_meta_is_enough_and_stays_as_it_is() -> None:
    with torch.device("meta"):
        model = TinyGPT()
    report = tl.profile(model, torch.randint(0, 50, (2, 16), device="meta"), backward=True, execution="fake")
    assert all(param.is_meta and param.grad is None for param in model.parameters())
    assert report.totals.figures.flops_backward == 2 * report.totals.figures.flops_forward
    assert report.totals.figures.forward_ns is None
    assert "predicted" in str(report)
    assert report.to_dict()["metrics"]["memory"]["status"] == "predicted"


def test_tied_weights_stay_tied() -> None:
    with torch.device("meta"):
        model = TinyGPT()
    report = tl.profile(model, torch.randint(0, 50, (2, 16)), execution="fake")
    assert report.rows[0].num_params == sum(param.numel() for param in model.parameters())


class Asks(nn.Module):
    """Goes another way when all tokens are attended to, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = nn.Linear(4, 4), nn.Linear(4, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        longest = int(mask.sum(1).max())
        return self.short(x[:, :longest]) if mask.all() else self.long(x[:, :longest])


@pytest.mark.parametrize(("hidden", "width", "length"), [(0, 4, 6), (2, 8, 6)])
def test_small_integers_are_computed(hidden: int, width: int, length: int) -> None:
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[0, 6 - hidden :] = 0
    report = tl.profile(Asks(), torch.rand(2, 6, 4), mask, execution="fake")
    assert report.calls[0].outputs[0][0] == (2, length, width)


def test_a_path_that_depends_on_numbers_is_told() -> None:
    class Depends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(tl.TorcheerError, match="With execution='fake' no numbers exist, and this model asks for some"):
        tl.profile(Depends(), torch.rand(3), execution="fake")


def test_a_grouped_product_that_has_no_fake_kernel_is_told() -> None:
    class Experts(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 16, 32, dtype=dtype))

        def forward(self, x: Tensor, ends: Tensor) -> Tensor:
            return torch._grouped_mm(x, self.weight, offs=ends)

    ends = torch.tensor([3, 8], dtype=torch.int32)
    x = torch.rand(8, 16)
    real = tl.profile(Experts(torch.float32), x, ends, measure="flops")
    assert (real.totals.figures.flops_forward, real.is_partial) == (2 * 8 * 16 * 32, False)
    with pytest.raises(tl.TorcheerError, match=r"knows bfloat16 alone, and this model computes them in float32"):
        tl.profile(Experts(torch.float32), x, ends, execution="fake")
    half = tl.profile(Experts(torch.bfloat16), x.bfloat16(), ends, execution="fake")
    assert half.totals.figures.flops_forward == real.totals.figures.flops_forward


def test_what_fake_kernels_do_not_know_of_is_told() -> None:
    real = tl.profile(nn.LSTM(8, 8), torch.rand(4, 2, 8), backward=True, measure="memory")
    assert any(note.startswith("Memory is partial: the CPU's LSTM kernel") for note in real.notes)
    report = tl.profile(nn.LSTM(8, 8), torch.rand(4, 2, 8), backward=True, execution="fake")
    assert any("lacks the workspace of the CPU's LSTM kernel" in note for note in report.notes)


def test_summary_of_a_model_without_an_input() -> None:
    report = tl.summary(ResidualNet())
    assert report.rows[0].num_params == 2682
    assert report["blocks.0.conv1"].num_params == 576
    assert "Nothing was run" in str(report)
    assert "output" not in str(report).splitlines()[0]


def test_summary_takes_an_input_a_size_or_a_model_on_meta() -> None:
    with torch.device("meta"):
        meta = ResidualNet()
    x = torch.rand(2, 3, 16, 16)
    wanted = tl.summary(ResidualNet(), x).totals.figures.flops_forward
    assert wanted == tl.summary(ResidualNet(), input_size=(2, 3, 16, 16)).totals.figures.flops_forward
    assert wanted == tl.summary(meta, x).totals.figures.flops_forward > 0
    with pytest.raises(tl.TorcheerError, match="not both"):
        tl.summary(ResidualNet(), x, input_size=(1,))
    with pytest.raises(tl.TorcheerError, match="summary takes a module, and a function is none"):
        tl.summary(lambda x: x)
