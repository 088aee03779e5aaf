"""Layers and labels of known architectures: none of these recurs but where layers are shared."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torcheer as tl
from tests.torch.recorded import recorded


def resnet50() -> tuple[nn.Module, dict[str, Any]]:
    """ResNet-50 with few channels; every block has one ReLU that it uses three times."""

    class Bottleneck(nn.Module):
        def __init__(self, width_in: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(width_in, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(width * 4)
            self.relu = nn.ReLU(inplace=True)
            self.downsample: nn.Module | None = None
            if stride != 1 or width_in != width * 4:
                self.downsample = nn.Sequential(
                    nn.Conv2d(width_in, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4)
                )

        def forward(self, x: Tensor) -> Tensor:
            identity = x if self.downsample is None else self.downsample(x)
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
            width, stages = 4, []
            for number, depth in enumerate((3, 4, 6, 3)):
                blocks = []
                for block in range(depth):
                    blocks.append(Bottleneck(width, 4 << number, 2 if block == 0 and number else 1))
                    width = 16 << number
                stages.append(nn.Sequential(*blocks))
            self.stages = nn.Sequential(*stages)
            self.fc = nn.Linear(width, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stages(F.max_pool2d(self.stem(x), 3, 2, 1))
            return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    return ResNet().eval(), {"x": torch.randn(1, 3, 64, 64)}


def transformer(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A tiny model of a family, made from its configuration."""
    import transformers as hf

    small = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    tokens = {"input_ids": torch.arange(8)[None]}
    text = {**small, "vocab_size": 50, "max_position_embeddings": 32}
    if name == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=50, n_positions=32)), tokens
    if name == "bert":
        return hf.BertModel(hf.BertConfig(**text)), tokens
    if name == "albert":
        return hf.AlbertModel(hf.AlbertConfig(**text, embedding_size=8)), tokens
    if name == "vit":
        pixels = {"pixel_values": torch.randn(1, 3, 16, 16)}
        return hf.ViTModel(hf.ViTConfig(**small, image_size=16, patch_size=8)), pixels
    if name == "t5":
        config = hf.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2, vocab_size=50)
        return hf.T5Model(config), {**tokens, "decoder_input_ids": torch.arange(4)[None]}
    assert name == "llama"
    return hf.LlamaModel(hf.LlamaConfig(**text, num_key_value_heads=1)), tokens


NOT_RECURRENT = ("gpt2", "bert", "vit", "t5", "llama", "resnet50")


def family(name: str) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    return resnet50() if name == "resnet50" else transformer(name)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", NOT_RECURRENT)
def test_known_architectures_are_not_recurrent(name: str, mode: str) -> None:
    model, kwargs = family(name)
    history = recorded(model.train(mode == "train"), **kwargs)
    several = {layer.label: len(layer.ops) for layer in history.record.layers if len(layer.ops) > 1}
    assert not history.is_recurrent, several
    # T5's shared embedding is read by encoder and decoder: a module with params is itself wherever it is used.
    assert {label for label in several if not label.startswith("embedding")} == set()


def test_albert_shares_its_layers() -> None:
    model, kwargs = family("albert")
    history = recorded(model.eval(), **kwargs)
    assert history.is_recurrent
    counts = {layer.label: len(layer.ops) for layer in history.record.layers}
    assert 3 in counts.values()
    linears = [count for label, count in counts.items() if label.startswith("linear")]
    assert linears.count(3) == 6
    assert len(history.modules["encoder.albert_layer_groups.0.albert_layers.0"].calls) == 3


_PRINT_LABELS = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/src"]
from tests.torch.test_layers_of_architectures import labels_of
print("\\n".join(labels_of({name!r})))
"""


def labels_of(name: str) -> list[str]:
    model, kwargs = family(name)
    return recorded(model.eval(), **kwargs).op_labels


@pytest.mark.parametrize("name", ["gpt2", "albert", "resnet50"])
def test_labels_are_the_same_in_every_run_and_process(name: str) -> None:
    here = labels_of(name)
    assert labels_of(name) == here
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_LABELS.format(root=root, name=name)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "5"},
    )  # fmt: skip
    assert done.stdout.split() == here


def test_labels_do_not_depend_on_what_is_kept() -> None:
    model, kwargs = family("gpt2")
    every = tl.log_forward_pass(model.eval(), layers_to_save="all", **kwargs)
    assert every.op_labels == recorded(model, **kwargs).op_labels


def test_labels_count_names_and_positions() -> None:
    model, kwargs = family("resnet50")
    history = recorded(model, **kwargs)
    seen: dict[str, int] = {}
    for position, layer in enumerate(history.record.layers):
        seen[layer.name] = seen.get(layer.name, 0) + 1
        assert layer.position == position
        assert layer.label == f"{layer.name}_{seen[layer.name]}_{position}"
        assert {history.record.ops[op].name for op in layer.ops} == {layer.name}
