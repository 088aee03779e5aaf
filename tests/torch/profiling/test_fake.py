"""Fake execution: the same shapes, FLOPs and memory as a real run, and nothing computed."""

from __future__ import annotations

import os
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

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


@torch.library.custom_op("torcheer_fake_test::unsaid", mutates_args=())
def unsaid(x: Tensor) -> Tensor:
    return x.clone()


@torch.library.custom_op("torcheer_fake_test::said", mutates_args=())
def said(x: Tensor) -> Tensor:
    return x.clone()


@said.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Calls(nn.Module):
    """Its forward is a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


ENDS = {
    "item": (lambda x: x * x.max().item(), "asks for some: a number out of a tensor"),
    "random": (lambda x: x[: int(torch.randint(1, 3, (1,)))], "what its own layers or random numbers came to"),
    "mask": (lambda x: x[x > 0.5], "the size of what aten.nonzero.default returns depends on them"),
    "unique": (torch.unique, "the size of what aten._unique2.default returns depends on them"),
    "numpy": (lambda x: x * float(x.numpy().sum()), "hands a tensor to NumPy"),
    "custom operator": (lambda x: unsaid(x), "a custom operator that does not say what shapes it returns"),
    "cond": (
        lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
        "torch.cond or another operator that takes functions",
    ),
}


@pytest.mark.parametrize(("function", "text"), ENDS.values(), ids=ENDS)
def test_what_a_fake_run_cannot_do_is_told_with_its_line(function: Any, text: str) -> None:
    with pytest.raises(tl.TorcheerError) as raised:
        tl.profile(Calls(function), torch.rand(3), execution="fake")
    assert text in str(raised.value)
    assert "execution='real'" in str(raised.value)
    if function is not torch.unique:
        assert f"{__file__}:{function.__code__.co_firstlineno}" in str(raised.value)


def test_a_model_that_cannot_be_copied_is_told() -> None:
    with pytest.raises(tl.TorcheerError, match=r"runs a copy of the model, and this Calls cannot be copied: .*'real'"):
        tl.profile(Calls(unsaid), torch.rand(3), execution="fake")


def test_what_a_real_run_would_raise_too_comes_through() -> None:
    with pytest.raises(RuntimeError, match="must have same reduction dim") as raised:
        tl.profile(nn.Linear(3, 3), torch.rand(2, 4), execution="fake")
    assert not isinstance(raised.value, tl.TorcheerError)


def test_what_a_fake_kernel_of_the_users_says_is_marked() -> None:
    report = tl.profile(Calls(lambda x: said(x)), torch.rand(3), execution="fake")
    assert any("torcheer_fake_test.said.default returned is what its fake kernel says" in note for note in report.notes)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_on_meta_is_said_to_be_run_as_on_a_cpu(device: str) -> None:
    with torch.device(device):
        model = nn.Linear(3, 3)
    report = tl.profile(model, torch.rand(2, 3), execution="fake")
    assert any("was run as on a CPU" in note for note in report.notes) == (device == "meta")


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_tensors_of_a_fake_run_are_laid_out_as_in_a_real_one(make: Any) -> None:
    real, fake = (report.record for report in both(*make()))
    assert [op.function for op in fake.aten] == [op.function for op in real.aten]
    for one, other in zip(fake.values, real.values, strict=True):
        assert (one.shape, one.dtype, one.stride) == (other.shape, other.dtype, other.stride)


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


class Attending(nn.Module):
    """Its three gradients of one tensor are added up by autograd's engine, in place where nobody watches."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Recurrent(nn.Module):
    """The gradients of its params are added up out of place: they are views."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


HIDDEN = {
    "first convolution": (lambda: nn.Conv2d(3, 32, 7, 2, 3), lambda: torch.rand(2, 3, 48, 48), "aten.convolution"),
    "patches": (lambda: nn.Conv2d(3, 64, 16, 16), lambda: torch.rand(1, 3, 64, 64), "aten.convolution_backward"),
    "depthwise": (lambda: nn.Conv2d(32, 32, 3, 1, 1, groups=32), lambda: torch.rand(2, 32, 24, 24), "aten.convolution"),
    "attention": (Attending, lambda: torch.rand(2, 64, 32), "aten._scaled_dot_product_flash_attention_for_cpu"),
    "gru": (Recurrent, lambda: torch.rand(12, 4, 32), None),
}


@pytest.mark.filterwarnings("ignore:.*Profiler:UserWarning")
@pytest.mark.parametrize("execution", ["real", "fake"])
@pytest.mark.parametrize(("make", "given", "function"), HIDDEN.values(), ids=HIDDEN)
def test_a_peak_with_memory_of_kernels_own_is_the_allocators_or_has_a_note(
    make: Any, given: Any, function: str | None, execution: str
) -> None:
    model, x = make(), given()
    truth = allocator_peak(model, x)
    report = tl.profile(model, x, backward=True, measure="memory", loss=Tensor.mean, execution=execution)
    notes = [note for note in report.notes if "of its own within its call" in note]
    assert bool(notes) == (function is not None)
    if function is None:
        assert report.totals.peak_bytes == pytest.approx(truth, rel=0.05)
    else:
        assert function in notes[0]
        assert report.totals.peak_bytes < 0.95 * truth


def allocator_peak(model: nn.Module, x: Tensor) -> int:
    """The most that PyTorch's allocator gave out at once in a plain step."""
    model(x).mean().backward()
    model.zero_grad(set_to_none=True)
    with torch_profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out = model(x)
        out.mean().backward()
    model.zero_grad(set_to_none=True)
    events = profiler.profiler.kineto_results.events()
    deltas = [size for _, size in sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")]
    return max(accumulate(deltas))
