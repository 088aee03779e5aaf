"""Leaf modules of a Paddle model and of the PyTorch model written after it, and their outputs."""

from __future__ import annotations

import numpy as np
import paddle
import torch

import torcheer as tl


def models() -> tuple[paddle.nn.Layer, torch.nn.Module]:
    layer = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2))
    return layer, torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_leaf_modules_across_frameworks() -> None:
    layer, module = models()
    a, b = tl.ModelSummary(layer, "paddle"), tl.ModelSummary(module, "torch")
    assert [(group.type_name, group.num_params) for group in a.groups] == [("Linear", 40), ("ReLU", 0), ("Linear", 18)]
    assert a.compare(b)
    other = tl.ModelSummary(torch.nn.Sequential(*module, torch.nn.ReLU()), "torch")
    assert [pair.counts for pair in a.compare(other).extraneous] == [(1, 2)]


def test_outputs_across_frameworks() -> None:
    layer, module = models()
    before = [param.numpy().copy() for param in layer.parameters()]
    x = np.random.default_rng(0).random((3, 4)).astype("float32")
    a, b = tl.ModelSummary(layer), tl.ModelSummary(module)
    assert a.compare_invoked(b, x)
    assert a.compare_outputs(b, x)
    assert a.compare_module_outputs(b, x).num_matches == 3
    tl.mark(layer[0], "first")
    tl.mark_all(module)
    assert a.compare_module_outputs(b, x, marked_only=True).num_matches == 1
    assert tl.unmark(layer) == 1
    assert all((param.numpy() == kept).all() for param, kept in zip(layer.parameters(), before, strict=True))
