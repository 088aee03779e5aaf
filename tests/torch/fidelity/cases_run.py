"""How a model is run: modes, random numbers, state, recomputation, threads, captures inside captures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torcheer as tl
from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory


class ConvNet(nn.Module):
    """Convolution, batch norm, dropout, pooling: everything whose behaviour depends on the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4 * 3 * 3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.features(x).flatten(1)))


def conv_net(training: bool) -> Any:
    return model_of(lambda: (ConvNet().train(training), torch.randn(2, 3, 8, 8)))


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        y.mul_(2).relu_()
        y[0] = 7.0
        y[:, 1] += 3
        y += x
        torch.add(y, 1, out=torch.empty(0))
        return y.clamp_(max=5)


class Views(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        first, second = y[0], y[1:]
        first.mul_(2)
        second.add_(3)
        turned = y.t()
        turned[2].zero_()
        return y.sum(0), turned @ y, y.view(-1)[::2], *y.chunk(2)


class InputChanged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drops = nn.ModuleList(
            [nn.Dropout(0.3), nn.AlphaDropout(0.3), nn.Dropout1d(0.3), nn.FeatureAlphaDropout(0.2), nn.RReLU()]
        )

    def forward(self, x: Tensor) -> Tensor:
        for drop in self.drops:
            x = drop(x) + torch.rand_like(x)
        noise = torch.normal(0.0, 1.0, x.shape) + torch.randn(x.shape) + torch.randperm(4)
        return F.dropout(x + noise, 0.5) * torch.bernoulli(torch.full(x.shape, 0.5))


class BatchNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(4)
        self.second = nn.BatchNorm1d(4, momentum=None)
        self.third = nn.InstanceNorm1d(4, track_running_stats=True)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.third(self.second(self.first(x)))


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(4, 2)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.block, x, use_reentrant=self.use_reentrant))


def check_checkpoint(history: ModelHistory) -> None:
    ops = {op.module: op for op in history if op.name in {"linear", "tanh", "dropout"}}
    assert {"block.0", "block.1", "block.2", "head"} <= set(ops)
    assert ops["block.1"].parents == (ops["block.0"],)
    assert history["block.2"].children


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4)
        self.same_mix = self.mix
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.same_mix(self.mix(self.embed(tokens))))


def check_tied(history: ModelHistory) -> None:
    weight = history.params["embed.weight"]
    assert weight.aliases == ("head.weight",)
    assert {op.module for op in weight.used_by} == {"embed", "head"}
    assert history.modules["mix"].aliases == ("same_mix",)
    assert len(history.modules["mix"].calls) == 2


def lazy() -> tuple[Any, Tensor]:
    return nn.Sequential(nn.LazyConv1d(3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), torch.randn(2, 2, 5)


def check_lazy(history: ModelHistory) -> None:
    assert history.params["0.weight"].shape == (3, 2, 2)
    assert history.params["3.weight"].shape == (2, 12)
    assert [op.module for op in history.params["3.weight"].used_by if op.name == "linear"] == ["3"]


class FunctionalCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.func.functional_call(self.inner, {"weight": self.inner.weight * 2}, (x,))


class PoolThreads(nn.Module):
    """Runs one branch on its own thread and one on another, as DataParallel does."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Linear(3, 3)
        self.far = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            far = pool.submit(self.far, x)
            return self.near(x) + far.result()


class OwnThread(nn.Module):
    """A thread that calls functions, no modules."""

    def forward(self, x: Tensor) -> Tensor:
        made: list[Tensor] = []
        thread = threading.Thread(target=lambda: made.append(torch.sin(x) * 2))
        thread.start()
        thread.join()
        return made[0] + x


def check_threads(history: ModelHistory) -> None:
    """What ran elsewhere is recorded, or it is said plainly that it was not."""
    names = [op.name for op in history]
    seen = names.count("linear") == 2 or "sin" in names
    said = [note.message for note in history.diagnostics if "thread" in note.message.lower()]
    assert seen or said, "work of another thread is missing and nothing says so"


class NestedCapture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.head = nn.Linear(3, 2)
        self.found: list[list[str]] = []

    def forward(self, x: Tensor) -> Tensor:
        history = tl.log_forward_pass(self.inner, x * 2, layers_to_save="all")
        self.found.append(history.layer_labels)
        return self.head(history.output)


def check_nested(history: ModelHistory) -> None:
    assert [(op.name, op.module) for op in history if not (op.is_input or op.is_output)] == [
        ("mul", ""), ("linear", "inner.0"), ("relu", "inner.1"), ("linear", "head"),
    ]  # fmt: skip
    assert history["head"].parents == (history["inner.1"],)


def small() -> Any:
    return model_of(lambda: (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4)))


CASES = [
    Case("train", conv_net(True), names=("conv2d", "batchnorm", "relu", "dropout", "linear"), min_ops=7),
    Case("eval", conv_net(False), names=("conv2d", "batchnorm", "relu", "linear"), min_ops=7),
    Case("no_grad", small(), torch.no_grad, names=("linear", "gelu"), min_ops=3),
    Case("inference_mode", small(), torch.inference_mode, names=("linear", "gelu"), min_ops=3),
    Case(
        "inference_mode_conv", conv_net(True), torch.inference_mode, min_ops=7,
        names=("conv2d", "batchnorm", "relu", "dropout", "linear"),
    ),
    Case(
        "autocast", small(), lambda: torch.autocast("cpu", torch.bfloat16), names=("linear", "gelu"), min_ops=3,
        aten=("aten._to_copy", "aten.addmm"),
        check=lambda history: _assert_dtypes(history, "bfloat16"),
    ),
    Case("in_place", model_of(lambda: (InPlace(), torch.randn(3, 4))), names=("mul", "relu", "clamp"), min_ops=9),
    Case("in_place_on_input", model_of(lambda: (InputChanged(), torch.randn(3, 4))), min_ops=2),
    Case("views", model_of(lambda: (Views(), torch.randn(4, 4))), names=("getitem", "t", "chunk"), min_ops=11),
    Case("dropout", model_of(lambda: (Dropouts(), torch.randn(2, 3, 4))), names=("dropout", "rrelu"), min_ops=15),
    Case("batch_norm_buffers", model_of(lambda: (BatchNorms(), torch.randn(5, 4, 3))), min_ops=4),
    Case(
        "checkpoint_reentrant", model_of(lambda: (Checkpointed(True), torch.randn(3, 4, requires_grad=True))),
        names=("linear", "tanh", "dropout"), min_ops=4, check=check_checkpoint,
    ),
    Case(
        "checkpoint_non_reentrant", model_of(lambda: (Checkpointed(False), torch.randn(3, 4))),
        names=("linear", "tanh", "dropout"), min_ops=4, check=check_checkpoint,
    ),
    Case(
        "functional_call", model_of(lambda: (FunctionalCall(), torch.randn(2, 3))), names=("mul", "linear"), min_ops=2,
        check=lambda history: _assert_modules(history, "linear", "inner"),
    ),
    Case("threads", model_of(lambda: (PoolThreads(), torch.randn(2, 3))), min_ops=2, check=check_threads, census=False,
        diagnostics=("thread-not-recorded",),
   ),
    Case("threads_functions", model_of(lambda: (OwnThread(), torch.randn(2, 3))), check=check_threads, census=False,
        diagnostics=("thread-not-recorded",),
   ),
    Case("nested_capture", model_of(lambda: (NestedCapture(), torch.randn(2, 3))), min_ops=4, check=check_nested),
    Case(
        "shared_params", model_of(lambda: (Tied(), torch.randint(0, 7, (2, 5)))), names=("embedding", "linear"),
        min_ops=4, check=check_tied,
    ),
    Case(
        "lazy_modules", model_of(lazy), names=("conv1d", "relu", "flatten", "linear"), min_ops=4, check=check_lazy,
        keeps_all=False,
    ),
]  # fmt: skip


def _assert_dtypes(history: ModelHistory, dtype: str) -> None:
    assert {op.dtype for op in history if op.name in {"linear", "gelu"}} == {dtype}


def _assert_modules(history: ModelHistory, name: str, module: str) -> None:
    assert [op.module for op in history if op.name == name] == [module]
