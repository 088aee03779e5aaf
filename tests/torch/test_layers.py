"""Loops are layers with passes; what merely looks alike is not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.torch.recorded import layers, recorded


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
