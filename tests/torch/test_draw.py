"""Pictures of real models: what must hold in every picture holds, and rolling and folding lose no operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torcheer as tl
from benchmarks.models import ResNet50
from examples.models import AlexNet, ResidualNet, SimpleRecurrent, TinyGPT
from tests.pictures.scenes import check


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.conv(3, 8), self.conv(8, 16)])
        self.middle = self.conv(16, 16)
        self.up = nn.ModuleList([self.conv(32, 8), self.conv(16, 8)])

    @staticmethod
    def conv(old: int, new: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(old, new, 3, padding=1), nn.BatchNorm2d(new), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return x


class Decoder(nn.Module):
    """A cell in a loop, whose steps are stacked; a module that is called on two inputs; a tensor returned twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.cell = nn.LSTMCell(8, 8)
        self.out = nn.Linear(8, 20)

    def forward(self, tokens: torch.Tensor, first: torch.Tensor) -> Any:
        hidden = cell = torch.zeros(tokens.shape[0], 8)
        hidden = hidden + self.embed(first)
        steps = []
        for at in range(tokens.shape[1]):
            hidden, cell = self.cell(self.embed(tokens[:, at]), (hidden, cell))
            steps.append(self.out(hidden))
        return torch.stack(steps, 1), (hidden, hidden)


def gpt2_with_hidden_states() -> tl.ModelHistory:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=12, n_embd=16, n_head=2, vocab_size=50)
    model = transformers.GPT2Model(config).eval()
    return tl.log_forward_pass(model, torch.arange(6)[None], output_hidden_states=True, layers_to_save=None)


def resnet50() -> tl.ModelHistory:
    return tl.log_forward_pass(ResNet50().eval(), torch.rand(1, 3, 32, 32), layers_to_save=None)


MODELS = {
    "AlexNet": lambda: tl.log_forward_pass(AlexNet(), torch.rand(1, 3, 224, 224), layers_to_save=None),
    "SimpleRecurrent": lambda: tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5)),
    "ResidualNet": lambda: tl.log_forward_pass(ResidualNet(), torch.rand(2, 3, 8, 8)),
    "TinyGPT": lambda: tl.log_forward_pass(TinyGPT(num_layers=4), torch.arange(8)[None]),
    "UNet": lambda: tl.log_forward_pass(UNet(), torch.rand(1, 3, 8, 8)),
    "Decoder": lambda: tl.log_forward_pass(Decoder(), torch.zeros(2, 5).long(), torch.zeros(2).long()),
    "ResNet50": resnet50,
    "GPT2": gpt2_with_hidden_states,
}


@pytest.fixture(scope="module", params=MODELS)
def history(request: pytest.FixtureRequest) -> tl.ModelHistory:
    return MODELS[request.param]()


@pytest.mark.parametrize("depth", [None, 1, 0])
@pytest.mark.parametrize("options", [{}, {"rolled": True}, {"level": "aten"}, {"direction": "right", "rolled": True}])
def test_what_must_hold_holds(history: tl.ModelHistory, options: dict[str, Any], depth: int | None) -> None:
    drawn = history.draw(depth=depth, **options).scene
    check(drawn["scene"], drawn["graph"])


def test_unrolled_has_every_operation_and_every_tensor(history: tl.ModelHistory) -> None:
    graph = history.draw().scene["graph"]
    leaves = [item for item in graph["items"] if item["role"] != "module"]
    assert [item["title"] for item in leaves] == [op.label for op in history]
    assert {item["count"] for item in graph["items"]} == {1}
    titles = [item["title"] for item in graph["items"]]
    drawn = {(titles[edge["from"]], titles[edge["to"]]) for edge in graph["edges"]}
    assert drawn == {(parent.label, op.label) for op in history for parent in op.parents}


def test_rolled_stands_for_every_operation(history: tl.ModelHistory) -> None:
    """A box's number times those of the boxes around it is how many operations it stands for."""
    items = history.draw(rolled=True).scene["graph"]["items"]
    total = 0
    for item in items:
        if item["role"] == "module":
            continue
        count, around = item["count"], item["parent"]
        while around >= 0:
            count *= items[around]["count"]
            around = items[around]["parent"]
        total += count
    assert total == len(history)


def counts(history: tl.ModelHistory) -> dict[str, int]:
    items = history.draw(rolled=True).scene["graph"]["items"]
    return {item["title"]: item["count"] for item in items if item["count"] > 1}


def test_equal_blocks_are_folded() -> None:
    assert counts(resnet50()) == {
        "layer1.1 … layer1.2": 2,
        "layer2.1 … layer2.3": 3,
        "layer3.1 … layer3.5": 5,
        "layer4.1 … layer4.2": 2,
    }
    folded = counts(gpt2_with_hidden_states())
    assert folded["h.0 … h.11"] == 12
    assert list(folded.values()) == [12, 11]  # the blocks, and the hidden states of all but the last


def test_blocks_that_are_read_from_elsewhere_are_not_folded() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.blocks[0](x)
            second = self.blocks[1](first)
            return self.blocks[2](second) + first

    assert counts(tl.log_forward_pass(Dense(), torch.rand(1, 4))) == {"blocks.1 … blocks.2": 2}


def test_blocks_that_differ_are_not_folded() -> None:
    blocks = [nn.Sequential(nn.Dropout(p), nn.ReLU()) for p in (0.1, 0.1, 0.2)]
    assert counts(tl.log_forward_pass(nn.Sequential(*blocks), torch.rand(1, 4))) == {"0 … 1": 2}


def test_a_tensor_returned_twice_comes_from_the_op_that_made_it() -> None:
    history = MODELS["Decoder"]()
    assert [op.parents for op in history.outputs[1:]] == [(history["lstmcell_1:5"],)] * 2


def test_gradients_are_drawn_where_they_were_seen() -> None:
    history = tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5))
    history.log_backward(history.output.sum())
    graph = history.draw(gradients=True).scene["graph"]
    titles = [item["title"] for item in graph["items"]]
    tensors = {(titles[e["from"]], titles[e["to"]]) for e in graph["edges"] if e["kind"] == "tensor"}
    gradients = {(titles[e["to"]], titles[e["from"]]) for e in graph["edges"] if e["kind"] == "gradient"}
    # The input asks for no gradient, everything else has one.
    assert tensors - gradients == {("input_1_0", "linear_1_1:1")}
    coloured = history.draw(colour_by="backward").scene["graph"]["items"]
    heats = [item["heat"] for item in coloured if item["heat"] >= 0]  # -1: not known, as of what the model was given
    assert sum(heat**2 for heat in heats) == pytest.approx(1)


def test_a_run_that_raised_is_drawn_up_to_there() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 5), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x)))

    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(Broken(), torch.rand(1, 4))
    history: tl.ModelHistory = raised.value.model_history  # type: ignore[attr-defined]
    svg = history.draw().svg
    assert ">relu_1_2</text>" in svg


def test_a_loaded_recording_is_drawn_the_same(tmp_path: Any) -> None:
    history = MODELS["TinyGPT"]()
    history.save(tmp_path / "run.tch")
    assert tl.load(tmp_path / "run.tch").draw(rolled=True).svg == history.draw(rolled=True).svg


def test_drawing_options_are_checked_when_vis_opt_is() -> None:
    history = tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5), vis_opt="unrolled")
    assert history.drawing.svg == history.draw().svg
    assert tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5)).drawing is None
