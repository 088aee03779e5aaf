"""Mistakes people make when they port a model, each planted in one place, with the layer that must be named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import torcheer as tl
from tests.paddle.model_pairs import MODEL_PAIRS


class Bug(NamedTuple):
    """One mistake in one network."""

    name: str
    model: str
    layer: str  # address that the report must name
    stage: str = "forward"  # "forward" | "backward" | "training"
    weights: str = "auto"  # "auto" | "copied" | "copied, not transposed" | "copied in order"


BUGS = [
    Bug("eps", "resnet", "layer1.1.bn1"),
    Bug("padding", "resnet", "layer1.1.conv2"),
    Bug("momentum", "resnet", "layer1.1.bn1", "training"),
    Bug("gelu kind", "bert", "blocks.1"),
    Bug("align_corners", "unet", "up1"),
    Bug("transposed weight", "bert", "blocks.0.attention.query", weights="copied, not transposed"),
    Bug("order of definition", "lstm", "fc1", weights="copied in order"),
    Bug("dropout mode", "bert", "drop"),
    Bug("padding_idx", "bert", "words"),
    Bug("mask value", "bert", "blocks.1.attention"),
    Bug("batchnorm init", "resnet", "layer1.1.bn2", weights="copied"),
    Bug("missing bias", "bert", "blocks.1.up"),
    # Beyond the twelve of the plan.
    Bug("layernorm eps", "bert", "blocks.1.norm1"),
    Bug("missing scale", "bert", "blocks.1.attention"),
    Bug("softmax axis", "bert", "blocks.1.attention"),
    Bug("missing residual", "bert", "blocks.1"),
    Bug("order of concatenation", "unet", "up1"),
    Bug("detached residual", "resnet", "layer1.1", "backward"),
]


def run(bug: Bug, *, torch_first: bool = False) -> Any:
    """The report on a network with this bug."""
    pair = MODEL_PAIRS[bug.model]
    torch.manual_seed(0)
    layer, module = pair.make(bug.name)
    plant_weights(bug, layer, module)
    models = (module, layer) if torch_first else (layer, module)
    return tl.autodiff(*models, pair.inputs(), auto_weights=bug.weights == "auto", options={"atol": 1e-4})


def plant_weights(bug: Bug, layer: Any, module: Any) -> None:
    """Copy the weights of the PyTorch model by hand, with the mistake that the bug is."""
    if bug.weights == "auto":
        return
    if bug.weights == "copied in order":
        tl.copy_weights(module, layer)
        # In Paddle's model fc2 is defined first.
        for child, source in ((layer.fc2, module.fc1), (layer.fc1, module.fc2)):
            child.weight.set_value(source.weight.detach().numpy().T.copy())
            child.bias.set_value(source.bias.detach().numpy())
        return
    kept = layer.layer1[1].bn2.weight.numpy() if bug.name == "batchnorm init" else None
    tl.copy_weights(module, layer)
    if kept is not None:
        layer.layer1[1].bn2.weight.set_value(kept)
    if bug.weights == "copied, not transposed":
        layer.blocks[0].attention.query.weight.set_value(module.blocks[0].attention.query.weight.detach().numpy())


def names_the_layer(report: Any, bug: Bug) -> bool:
    """Does the report say that it failed, where, and at which stage?"""
    if report:
        return False
    stage = report.first.stage if report.first is not None else "training"
    return set(report.blamed) == {bug.layer} and stage == bug.stage


# -- changes of the PyTorch model --------------------------------------------------------------------------------


class Change(NamedTuple):
    """One thing changed in the PyTorch model, and the layer that must be named."""

    model: str
    layer: str
    change: Callable[[Any, Any], None]  # of the Paddle and the PyTorch model
    auto_weights: bool = True


def _set(address: str, **attributes: Any) -> Callable[[Any, Any], None]:
    def change(_layer: Any, module: Any) -> None:
        for name, value in attributes.items():
            setattr(module.get_submodule(address), name, value)

    return change


def _scaled(name: str, factor: float) -> Callable[[Any, Any], None]:
    def change(layer: Any, module: Any) -> None:
        tl.copy_weights(layer, module)
        with torch.no_grad():
            module.get_parameter(name).add_(0.1).mul_(factor)

    return change


def _gates_swapped(layer: Any, module: Any) -> None:
    tl.copy_weights(layer, module)
    with torch.no_grad():
        weight = module.lstm.weight_ih_l0
        weight.copy_(torch.cat([weight[16:32], weight[:16], weight[32:]]))


CHANGES = [
    Change("bert", "norm", _set("norm", eps=1e-2)),
    Change("bert", "blocks.0.down", _set("blocks.0.down", bias=None)),
    Change("bert", "blocks.0.norm2", _scaled("blocks.0.norm2.weight", 1.5), False),
    Change("bert", "blocks.1.attention.value", _scaled("blocks.1.attention.value.weight", 1.5), False),
    Change("unet", "down2.norm1", _set("down2.norm1", num_groups=4)),
    Change("unet", "down3.act", _set("down3.act", negative_slope=0.2)),
    Change("unet", "pool", lambda _, module: setattr(module, "pool", torch.nn.AvgPool2d(2))),
    Change("unet", "last.norm2", _set("last.norm2", eps=1e-2)),
    Change("resnet", "maxpool", lambda _, module: setattr(module, "maxpool", torch.nn.AvgPool2d(3, 2, 1))),
    Change("resnet", "avgpool", lambda _, module: setattr(module, "avgpool", torch.nn.AdaptiveMaxPool2d(1))),
    Change("resnet", "layer2.0.downsample.1", lambda _, module: module.layer2[0].downsample[1].eval()),
    Change("lstm", "lstm", _gates_swapped, False),
    Change("lstm", "embed", _set("embed", max_norm=0.5)),
    Change("encoder", "encoder.layers.0", _set("encoder.layers.0", norm_first=True)),
    Change("encoder", "encoder.layers.1.self_attn", _set("encoder.layers.1.self_attn", num_heads=2, head_dim=8)),
    Change("encoder", "", _scaled("token", 2.0), False),
]


def run_change(change: Change, *, torch_first: bool) -> Any:
    """The report on a pair with this change."""
    pair = MODEL_PAIRS[change.model]
    torch.manual_seed(0)
    layer, module = pair.make()
    change.change(layer, module)
    models = (module, layer) if torch_first else (layer, module)
    return tl.autodiff(*models, pair.inputs(), auto_weights=change.auto_weights, options={"atol": 1e-4})
