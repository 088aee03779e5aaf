"""``tl.compare`` takes a Paddle layer on either side: it reads records, and a Paddle run makes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle
import pytest
import torch

import torcheer as tl
from tests.paddle.bugs import BUGS, Bug
from tests.paddle.model_pairs import MODEL_PAIRS

NAMES = {
    "eps": "layer1.1", "padding": "layer1.1.conv2", "gelu kind": "blocks.1", "align_corners": "up1",
    "order of definition": "fc1", "mask value": "blocks.1.attention", "missing bias": "blocks.1.up",
    "missing scale": "blocks.1.attention", "softmax axis": "blocks.1.attention", "missing residual": "blocks.1",
    "order of concatenation": "up1", "layernorm eps": "blocks.1.norm1",
}  # fmt: skip


def evaluated(name: str, bug: str = "") -> tuple[Any, Any]:
    torch.manual_seed(0)
    layer, module = MODEL_PAIRS[name].make(bug)
    layer.eval()
    module.eval()
    return layer, module


@pytest.mark.parametrize("name", MODEL_PAIRS)
@pytest.mark.parametrize("torch_first", [False, True])
def test_equal_networks_are_equal(name: str, torch_first: bool) -> None:
    models = evaluated(name)
    found = tl.compare(*(models[::-1] if torch_first else models), MODEL_PAIRS[name].inputs(), weights="copy")
    assert found, str(found)
    assert found.num_matched[0] > found.num_ops[0] // 2
    assert "paddle" in str(found)


def test_copied_weights_stay_when_the_models_run_again() -> None:
    for seed in range(4):  # with some of these weights the outputs are not beyond doubt, and both run again
        paddle.seed(seed)
        layer, module = evaluated("lstm")
        before = module.embed.weight.detach().clone()
        found = tl.compare(layer, module, MODEL_PAIRS["lstm"].inputs(), weights="copy")
        assert found, str(found)
        assert torch.equal(module.embed.weight, before)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in NAMES], ids=lambda bug: bug.name)
def test_a_mistake_is_named(bug: Bug) -> None:
    layer, module = evaluated(bug.model, bug.name)
    if bug.weights != "auto":
        tl.copy_weights(module, layer, layer_map={"fc1": "fc2", "fc2": "fc1"})
    weights = "copy" if bug.weights == "auto" else "own"
    found = tl.compare(layer, module, MODEL_PAIRS[bug.model].inputs(), weights=weights)
    assert found.first_divergence is not None, str(found)
    assert f" in {NAMES[bug.name]}" in found.first_divergence.headline


def test_recordings_of_both_frameworks(tmp_path: Path) -> None:
    layer, module = evaluated("resnet")
    tl.copy_weights(module, layer)
    x = MODEL_PAIRS["resnet"].inputs()
    tl.log_forward_pass(layer, paddle.to_tensor(x)).save(tmp_path / "paddle")
    history = tl.log_forward_pass(module, torch.from_numpy(x))
    assert tl.compare(tmp_path / "paddle", history)
    module.layer1[1].bn1.eps = 0.5
    assert not tl.compare(tmp_path / "paddle", tl.log_forward_pass(module, torch.from_numpy(x)))


def test_gradients_and_training_steps() -> None:
    layer, module = MODEL_PAIRS["lstm"].make()
    tl.copy_weights(layer, module)
    x = MODEL_PAIRS["lstm"].inputs()
    found = tl.compare(layer, module, x, steps=2)
    assert found, str(found)
    assert found.gradients
    module.fc2.weight.register_hook(lambda gradient: gradient * 2)
    assert not tl.compare(layer, module, x, steps=2)
