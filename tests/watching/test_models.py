"""Models that TorchExplorer cannot bear: each is watched as it is, with its gradients, and without an option."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.watching.nets import Net, Output, Residual, names, rows, train


def test_in_place_activations_and_additions(watch: Any) -> None:
    model = Residual()
    watching = watch(model, sample_n=None)
    x = torch.randn(4, 3, 6, 6)

    def loss(out: Tensor) -> Tensor:
        return out.square().sum()

    # The same without in-place operations.
    twin = Residual()
    twin.load_state_dict(model.state_dict())
    conv = twin.conv(x)
    bn = twin.bn(conv.relu())
    for one in (conv, bn):
        one.retain_grad()
    loss(twin.fc((bn + x).relu().mean((2, 3)))).backward()
    train(model, lambda: x, 1, loss)
    for name, tensor in {"conv:1/output_grad/0": conv, "relu:1/input_grad/0": conv, "bn:1/output_grad/0": bn}.items():
        assert rows(watching, name)["norm"][0] == pytest.approx(tensor.grad.norm().item(), rel=1e-4), name
    assert {"relu:1/output_grad/0", "relu:2/output_grad/0", "fc:1/input_grad/0"} <= names(watching)
    # What an in-place activation was given, not what it left there.
    assert rows(watching, "conv:1/output/0")["min"][0] == pytest.approx(conv.min().item(), rel=1e-4)
    assert rows(watching, "relu:1/input/0")["min"][0] == pytest.approx(conv.min().item(), rel=1e-4)
    assert rows(watching, "relu:1/output/0")["min"][0] == 0


def test_dataclasses_dicts_and_keyword_tensors(watch: Any) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, *, x: Tensor, mask: Tensor) -> dict[str, Any]:
            hidden = self.fc(x) * mask
            return {"hidden": hidden, "all": [hidden, x]}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Encoder(), nn.Linear(8, 3)

        def forward(self, batch: dict[str, Tensor]) -> Output:
            found = self.encoder(x=batch["x"], mask=batch["mask"])
            return Output(self.head(found["hidden"]), tuple(found["all"]))

    model = Model()
    watching = watch(model)
    train(model, lambda: {"x": torch.randn(4, 8), "mask": torch.ones(4, 8)}, 2, lambda out: out.logits.square().mean())
    assert {
        "(model):1/input/0.x", "(model):1/input/0.mask", "encoder:1/input/x", "encoder:1/input/mask",
        "encoder:1/output/hidden", "encoder:1/output/all.0", "encoder:1/output/all.1",
        "encoder:1/output_grad/hidden", "(model):1/output/logits", "(model):1/output/hidden.0",
    } <= names(watching)  # fmt: skip


def test_lstm(watch: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(6, 5, num_layers=2, batch_first=True), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            out, (hidden, _) = self.lstm(x)
            return self.head(out[:, -1] + hidden[-1])

    model = Model()
    watching = watch(model)
    train(model, lambda: torch.randn(3, 7, 6), 2)
    found = names(watching)
    assert {f"lstm:1/output/{path}" for path in ("0", "1.0", "1.1")} <= found
    assert {f"lstm:1/output_grad/{path}" for path in ("0", "1.0")} <= found
    assert {"lstm/param/weight_ih_l1", "lstm/param_grad/weight_ih_l1"} <= found


def test_integer_inputs_have_gradients_of_parameters(watch: Any) -> None:
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.Flatten(), nn.Linear(40, 2))
    watching = watch(model)
    train(model, lambda: torch.randint(20, (4, 5)), 3)
    found = names(watching)
    assert {"0/param_grad/weight", "1/param_grad/weight", "1/param_grad/bias", "3/param_grad/weight"} <= found
    assert len(rows(watching, "0/param_grad/weight")) == 3
    assert rows(watching, "(model):1/input/0")["max"].max() <= 19
    edges = {(edge["from"], edge["to"]) for edge in watching.structure["edges"] if edge["parent"] == 0}
    assert any(source == "input:0" for source, _ in edges), "the integer input is joined to the graph"


def test_control_flow_that_changes(watch: Any) -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module1, self.module2 = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.module1(x)
            return self.module2(x)

    model = Either()
    watching = watch(model)
    signs = iter([1, 1, -1, 1, -1, -1])
    train(model, lambda: torch.ones(2, 4) * next(signs), 6)
    assert rows(watching, "module1:1/output/0").steps.tolist() == [0, 1, 3]
    assert rows(watching, "module2:1/output/0").steps.tolist() == [2, 4, 5]
    assert rows(watching, "module2:1/output_grad/0").steps.tolist() == [2, 4, 5]
    calls = {call["module"]: call["first_step"] for call in watching.structure["calls"]}
    assert calls == {"": 0, "module1": 0, "module2": 2}
    with watching.open() as run:
        assert len(run.structure_versions) >= 2
        assert {call["module"] for call in run.structure(version=1)["calls"]} == {"", "module1"}


def test_recursion(watch: Any) -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 3) -> Tensor:
            x = self.fc(x)
            return self(x, depth - 1) if depth else x

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tree = Tree()

        def forward(self, x: Tensor) -> Tensor:
            return self.tree(x)

    for model, prefix, tree in ((Root(), "tree.", "tree"), (Tree(), "", "(model)")):
        watching = watch(model)
        train(model, lambda: torch.randn(2, 4), 2)
        found = names(watching)
        assert {f"{prefix}fc:{call}/output_grad/0" for call in range(1, 5)} <= found
        assert f"{tree}:4/output/0" in found
        depth = {}
        for call in watching.structure["calls"]:
            depth[call["id"]] = 0 if call["parent"] is None else depth[call["parent"]] + 1
        assert max(depth.values()) >= 4, "calls lie inside of one another"
        watching.stop()


def test_fifteen_hundred_operations(watch: Any) -> None:
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            for _ in range(1500):
                x = x * 1.0001
            return x

    model = Long()
    watching = watch(model)
    train(model, lambda: torch.randn(2, 4), 2)
    edges = {(edge["from"], edge["to"]) for edge in watching.structure["edges"] if edge["parent"] == 0}
    assert edges == {("input:0", 1), (1, "output:0")}, "input to fc, fc to output, through all that lies between"
    assert len(rows(watching, "fc:1/output_grad/0")) == 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(watch: Any, reentrant: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))

    def losses(watched: bool) -> list[float]:
        torch.manual_seed(1)
        model = Model()
        watching = watch(model) if watched else None
        found = train(model, lambda: torch.randn(3, 6, requires_grad=True), 3)
        if watching is not None:
            assert len(rows(watching, "block.0/param_grad/weight")) == 3
            assert len(rows(watching, "block.0:1/output/0")) == 3
            assert not {name for name in names(watching) if ":2/" in name}, "the second run is not a second call"
        return found

    assert losses(True) == losses(False)


def test_frozen_and_unused_parameters(watch: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(self.frozen(x))

    model = Model()
    watching = watch(model)
    train(model, lambda: torch.randn(3, 4), 8)
    found = names(watching)
    assert {"frozen/param/weight", "used/param/weight", "unused/param/weight", "used/param_grad/weight"} <= found
    assert not {"frozen/param_grad/weight", "unused/param_grad/weight"} & found
    assert rows(watching, "frozen/param/weight")["update"][-2] == 0
    with watching.open() as run:
        quiet = {alert.message.split(":")[0] for alert in run.alerts() if alert.rule == "unused"}
    assert {"unused/param/weight", "unused/param/bias"} <= quiet


def test_shared_modules_and_tied_weights(watch: Any) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x))

    model = Tied()
    watching = watch(model)
    train(model, lambda: torch.randint(9, (2, 3)), 2)
    first, second = rows(watching, "embed/param_grad/weight"), rows(watching, "head/param_grad/weight")
    assert (first["norm"] == second["norm"]).all(), "one tensor under both of its names"
    assert len(first) == 2


def test_a_model_without_parameters(watch: Any) -> None:
    model = nn.Sequential(nn.Softmax(-1), nn.Flatten())
    watching = watch(model)
    for _ in range(3):
        model(torch.randn(2, 3, requires_grad=True)).square().sum().backward()
    assert len(rows(watching, "0:1/output_grad/0")) == 3
    plain = nn.Softmax(-1)
    watching = watch(plain, name="no-gradients-at-all")
    for _ in range(3):
        plain(torch.randn(2, 3))
    assert len(rows(watching, "(model):1/output/0")) == 3


def test_transformers_of_pytorch(watch: Any) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    watching = watch(model)
    train(model, lambda: torch.randn(2, 5, 8), 2)
    found = names(watching)
    assert {"layers.1.self_attn:1/output/0", "layers.1.linear2:1/output_grad/0"} <= found
    assert "layers.0.self_attn/param_grad/in_proj_weight" in found


def test_a_transformers_model(watch: Any) -> None:
    from transformers import BertConfig, BertForSequenceClassification  # slow to import

    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    watching = watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        out = model(input_ids=torch.randint(50, (2, 7)), labels=torch.tensor([0, 1]))
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
    found = names(watching)
    assert {
        "(model):1/input/input_ids", "(model):1/output/loss", "(model):1/output/logits", "bert.pooler:1/output_grad/0",
        "bert.encoder.layer.1.attention.self.query/param_grad/weight",
    } <= found  # fmt: skip
    assert watching.structure["seen"] == "record"


class Generator(Net):
    """Noise to samples."""


class Discriminator(nn.Module):
    """Samples to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def test_several_models_in_one_run(watch: Any) -> None:
    generator, discriminator = Generator(), Discriminator()
    watching = watch({"generator": generator, "discriminator": discriminator})
    first = torch.optim.SGD(generator.parameters(), 0.01)
    second = torch.optim.SGD(discriminator.parameters(), 0.01)
    for _ in range(4):
        fake = generator(torch.randn(5, 10))
        second.zero_grad()
        (discriminator(fake.detach()) - discriminator(torch.randn(5, 10))).mean().backward()
        second.step()
        first.zero_grad()
        (-discriminator(fake).mean()).backward()
        first.step()
    with watching.open() as run:
        assert run.lanes == ["discriminator/train", "generator/train"]
        made = run.rows("generator/fc2/param_grad/weight")
        assert made.steps.tolist() == [0, 1, 2, 3]
        assert run.rows("discriminator/fc/param_grad/weight").steps.tolist() == list(range(8)), "two backwards a round"
        assert run.structure("generator")["calls"][0]["module"] == ""
        assert run.structure("discriminator") is not None
        assert (run.rows("generator/fc2/param/weight")["update"] > 0).all()


Build = Callable[[nn.Module], nn.Module]


def _in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("build", [lambda model: torch.compile(model, backend="eager"), _in_place])
@pytest.mark.parametrize("compiled", ["outside", "eager"])
def test_compiled_models(watch: Any, build: Build, compiled: str) -> None:
    torch.compiler.reset()
    model = Net()
    runs = build(model)
    watching = watch(runs, compiled=compiled)
    train(runs, lambda: torch.randn(5, 10), 3)
    found = names(watching)
    assert {"(model):1/output/0", "(model):1/output_grad/0", "fc1/param_grad/weight", "fc1/param/weight"} <= found
    assert len(rows(watching, "fc1/param_grad/weight")) == 3
    with watching.open() as run:
        notes = [note.code for note in run.notes()]
    if compiled == "eager":
        assert {"fc1:1/output/0", "fc1:1/output_grad/0", "(model):1/attached/intermediate"} <= found
        assert "compiled" not in notes
    else:
        assert "fc1:1/output/0" not in found
        assert "compiled" in notes, "what is not seen is said"


@pytest.mark.skipif(shutil.which("g++") is None, reason="TorchInductor needs a compiler for C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor(watch: Any) -> None:
    """Kernels of the real compiler: watched from outside they compute what they compute unwatched, to the bit."""
    weights = []
    for is_watched in (False, True):
        torch.compiler.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 2))
        watching = watch(model) if is_watched else None
        train(torch.compile(model), lambda: torch.ones(5, 10), 3)
        weights.append(model[0].weight.detach().clone())
    assert torch.equal(*weights)
    assert len(rows(watching, "0/param_grad/weight")) == 3


def test_compiled_after_watch(watch: Any) -> None:
    torch.compiler.reset()
    model = Net()
    watching = watch(model)
    runs = torch.compile(model, backend="eager")
    train(runs, lambda: torch.randn(5, 10), 3)
    assert len(rows(watching, "fc1/param_grad/weight")) == 3


@pytest.mark.parametrize("how", ["compiled before", "forward called"])
def test_forwards_that_are_not_seen(watch: Any, how: str) -> None:
    torch.compiler.reset()
    model = Net()
    runs = torch.compile(model, backend="eager") if how == "compiled before" else model.forward
    watching = watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        runs(torch.randn(5, 10)).square().sum().backward()
        norms.append(model.fc1.weight.grad.norm().item())
        optimizer.step()
    assert rows(watching, "fc1/param_grad/weight")["norm"].tolist() == pytest.approx(norms, rel=1e-4)
    assert (rows(watching, "fc2/param/weight")["update"] > 0).all()
    with watching.open() as run:
        assert [note.code for note in run.notes()] == ["forward-not-seen"], "what is not seen is said"


def test_a_user_subclass_with_its_own_call(watch: Any) -> None:
    class Counted(nn.Linear):
        calls = 0

        def __call__(self, *args: Any) -> Any:
            type(self).calls += 1
            return super().__call__(*args)

    own = Counted.__call__
    model = Counted(4, 4)
    watching = watch(model)
    train(model, lambda: torch.randn(2, 4), 2)
    assert Counted.calls == 2
    assert len(rows(watching, "(model):1/output/0")) == 2
    watching.stop()
    assert Counted.__call__ is own
