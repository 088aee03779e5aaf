"""``validate`` on what real architectures do: nothing true is called false, and nothing is left changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

import torcheer as tl
from torcheer.capture.torch.state import copy_of

Tensor = torch.Tensor


def passes(forward: Any, *args: Tensor) -> Any:
    result = tl.validate(forward, *args)
    assert result, str(result)
    return result


def test_kernels_take_the_same_way_on_a_part_of_a_row() -> None:
    # silu rounds differently in its vectorised part and in the rest of a row.
    x = torch.randn(1, 64, 37)
    passes(lambda x: nn.functional.silu(x[..., :12]) + nn.functional.gelu(x[..., 1:20]).sum(), x)


def test_what_is_hidden_by_the_other_arguments_is_tested_with_others() -> None:
    result = passes(
        lambda x: (x + torch.full((3,), -1e30)) @ torch.zeros(3, 2) + torch.zeros(2).sub_(1e30), torch.randn(3)
    )
    influence = next(check for check in result.checks if check.name == "influence")
    assert influence.tested >= 3


def test_a_softmax_over_one_element() -> None:
    passes(lambda x: x.softmax(-1) + (x > 1e9), torch.randn(4, 1))


def test_offsets_that_a_kernel_trusts_are_not_changed() -> None:
    offsets = torch.tensor([2, 2], dtype=torch.int32)

    def forward(x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        return torch._grouped_mm(x, weights, offs=offsets.cumsum(0, dtype=torch.int32) // 2)

    result = passes(forward, torch.randn(2, 16).bfloat16(), torch.randn(2, 16, 16).bfloat16(), offsets)
    influence = next(check for check in result.checks if check.name == "influence")
    assert "offsets into memory, which the op does not check" in influence.not_tested


def test_inside_a_function_transform() -> None:
    weight = torch.randn(3, requires_grad=True)
    passes(lambda x: torch.vmap(lambda row: (row * weight).sum())(x), torch.randn(2, 3))


class Changes(nn.Module):
    """A model that changes itself while it runs, as models with caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: nn.Module = nn.Linear(3, 3)
        self.seen: list[int] = []
        self.kept = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "cache"):
            self.cache = x.detach().clone()
            self.inner = nn.Sequential(self.inner, nn.Identity())
            self.register_forward_hook(lambda module, args, output: output * 2)
        self.seen.append(len(self.seen))
        self.kept += 1
        return self.inner(x) * random.random() * np.random.rand() + self.kept


def test_what_a_run_adds_to_a_model_is_taken_away() -> None:
    model = Changes()
    inner = model.inner
    states = random.getstate(), np.random.get_state()[2]
    passes(model, torch.randn(3))
    assert model.inner is inner
    assert not model._forward_hooks
    assert not hasattr(model, "cache")
    assert model.seen == []
    assert model.kept.tolist() == [0, 0, 0]
    assert (random.getstate(), np.random.get_state()[2]) == states


def test_random_numbers_of_python_that_differ_are_found() -> None:
    turns: list[int] = []

    def moody(x: Tensor) -> Tensor:
        turns.append(1)
        for _ in turns:
            random.random()
        return x + 1

    result = tl.validate(moody, torch.ones(2))
    assert result.failures == ["same run: the random numbers of Python or numpy were left different"]


def test_a_copy_lies_in_memory_as_the_original_does() -> None:
    base = torch.randn(8, 33)
    for tensor in (
        base[:, 3:9],
        base.t(),
        base[1:2].expand(4, 33),
        base.as_strided((3, 3), (1, 1)),
        base[:0],
        base[3, 5],
    ):
        copy = copy_of(tensor)
        assert torch.equal(copy, tensor)
        if tensor.numel() and tensor.stride() != (1, 1):
            assert copy.stride() == tensor.stride()
            assert copy.storage_offset() % 16 == tensor.storage_offset() % 16
    leaf = torch.randn(4)[1:].requires_grad_()
    copy = copy_of(leaf, differentiable=True)
    assert copy.add_(1).requires_grad
    assert not torch.equal(copy, leaf)
