"""Loops are layers with passes; what merely looks alike is not."""

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
from tests.torch.fidelity.checker import check_record
from torcheer.history import ModelHistory


def recorded(model: Any, *args: Any, **kwargs: Any) -> ModelHistory:
    history = tl.log_forward_pass(model, *args, layers_to_save=None, **kwargs)
    check_record(history.record)
    return history


def layers(history: ModelHistory) -> dict[str, int]:
    """Label of each layer and how many passes it has, inputs and outputs left out."""
    found = {layer.label: len(layer.ops) for layer in history.record.layers}
    return {label: count for label, count in found.items() if not label.startswith(("input", "output"))}


class Counts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            x = x + 1
        return x


def test_a_loop_is_one_layer() -> None:
    history = recorded(Counts(), torch.zeros(2))
    assert layers(history) == {"add_1_1": 5}
    assert history.is_recurrent
    assert history["add_1_1:3"].parents == (history["add_1_1:2"],)


class TwoLines(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        return x + 1


def test_two_lines_are_two_layers() -> None:
    history = recorded(TwoLines(), torch.zeros(2))
    assert layers(history) == {"add_1_1": 1, "add_2_2": 1}
    assert not history.is_recurrent


class OneLine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 1) + 1


def test_two_calls_on_one_line_are_two_layers() -> None:
    assert layers(recorded(OneLine(), torch.zeros(2))) == {"add_1_1": 1, "add_2_2": 1}


class Helped(nn.Module):
    """The same function called from two places."""

    def twice(self, x: Tensor) -> Tensor:
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(x)
        return self.twice(x)


def test_a_function_called_from_two_places_makes_two_layers() -> None:
    assert layers(recorded(Helped(), torch.zeros(2))) == {"mul_1_1": 1, "mul_2_2": 1}


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(3, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(2, 3)
        for step in x:
            hidden = self.cell(step, hidden)
        return self.head(hidden)


def test_an_rnn_cell_in_a_loop_rolls_up() -> None:
    history = recorded(CellLoop(), torch.randn(4, 2, 3))
    found = layers(history)
    assert [count for label, count in found.items() if label.startswith("rnn")] == [4]
    assert [count for label, count in found.items() if label.startswith("linear")] == [1]
    assert history.is_recurrent
    assert len(history.modules["cell"].calls) == 4


class HandCell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(3, 3)
        self.state = nn.Linear(3, 3)

    def forward(self, step: Tensor, hidden: Tensor) -> Tensor:
        return torch.tanh(self.input(step) + self.state(hidden))


class Unrolled(nn.Module):
    """A cell used three times, written out by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = HandCell()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(2, 3)
        hidden = self.cell(x[0], hidden)
        hidden = self.cell(x[1], hidden)
        return self.cell(x[2], hidden)


def test_a_shared_cell_unrolled_by_hand_rolls_up() -> None:
    history = recorded(Unrolled(), torch.randn(3, 2, 3))
    counts = [len(layer.ops) for layer in history.record.layers if layer.name in {"linear", "add", "tanh"}]
    assert counts == [3, 3, 3, 3]
    assert history.is_recurrent


class BasicBlock(nn.Module):
    """One ReLU used twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.conv1(x))
        out = self.conv2(out)
        out += x
        return self.relu(out)


def test_a_shared_relu_is_two_layers() -> None:
    model = nn.Sequential(BasicBlock(2), BasicBlock(2))
    history = recorded(model, torch.randn(1, 2, 4, 4))
    assert set(layers(history).values()) == {1}
    assert [layer.name for layer in history.record.layers].count("relu") == 4
    assert not history.is_recurrent
    assert len(history.modules["0.relu"].calls) == 2


class ResidualStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) + x
        return x


def test_a_loop_over_different_blocks_is_not_rolled() -> None:
    history = recorded(ResidualStack(), torch.randn(2, 3))
    assert set(layers(history).values()) == {1}
    assert len(layers(history)) == 8
    assert not history.is_recurrent


class UNet(nn.Module):
    """Down and up in loops, with one pool for all levels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
        self.up = nn.ModuleList(nn.Conv2d(4, 2, 3, padding=1) for _ in range(3))
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for conv in self.down:
            x = torch.relu(conv(x))
            skips.append(x)
            x = self.pool(x)
        for conv in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = torch.relu(conv(torch.cat([x, skips.pop()], 1)))
        return x


def test_a_u_net_is_not_rolled() -> None:
    history = recorded(UNet(), torch.randn(1, 2, 8, 8))
    assert set(layers(history).values()) == {1}
    assert not history.is_recurrent


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            for _ in range(3):
                x = x + 1
            x = x * 2
        return x


def test_nested_loops() -> None:
    history = recorded(Nested(), torch.zeros(2))
    assert layers(history) == {"add_1_1": 6, "mul_1_2": 2}
    assert history.is_recurrent


class ParamLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(3, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.relu(F.linear(x, weight))
        return x


def test_a_loop_over_params_is_not_rolled() -> None:
    history = recorded(ParamLoop(), torch.randn(2, 3))
    assert layers(history) == {
        "linear_1_1": 1, "relu_1_2": 1, "linear_2_3": 1, "relu_2_4": 1, "linear_3_5": 1, "relu_3_6": 1,
    }  # fmt: skip
    assert not history.is_recurrent


class SharedParamLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.relu(F.linear(x, self.weight))
        return x


def test_a_loop_with_one_param_is_rolled() -> None:
    history = recorded(SharedParamLoop(), torch.randn(2, 3))
    assert layers(history) == {"linear_1_1": 3, "relu_1_2": 3}
    assert history.is_recurrent


class UntilSmall(nn.Module):
    """How often it loops depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        while x.abs().sum() > 1:
            x = self.inner(x) * 0.1
        return x


def test_a_loop_of_data_dependent_length() -> None:
    history = recorded(UntilSmall(), torch.full((2,), 1000.0))
    count = len(history.modules["inner"].calls)
    assert count > 1
    found = layers(history)
    assert next(passes for label, passes in found.items() if label.startswith("linear")) == count
    assert next(passes for label, passes in found.items() if label.startswith("abs")) == count + 1
    assert history.is_recurrent


class Independent(nn.Module):
    """A loop whose turns do not depend on one another is a layer with passes, but nothing recurs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x * 2 for _ in range(3)])


def test_turns_that_do_not_depend_on_one_another() -> None:
    history = recorded(Independent(), torch.zeros(2))
    assert layers(history)["mul_1_1"] == 3
    assert not history.is_recurrent


class SharedInTwoPlaces(nn.Module):
    """A siamese network: one encoder, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.encoder(a) - self.encoder(b)


def test_a_siamese_network_has_passes_but_does_not_recur() -> None:
    history = recorded(SharedInTwoPlaces(), torch.randn(2, 3), torch.randn(2, 3))
    assert layers(history) == {"linear_1_2": 2, "relu_1_3": 2, "sub_1_4": 1}
    assert not history.is_recurrent


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
from tests.torch.test_layers import labels_of
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
