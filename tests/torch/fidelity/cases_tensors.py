"""Tensors that are not plain dense ones: sparse, nested, quantized, complex, meta, fake, subclasses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory

_SPARSE = pytest.mark.filterwarnings(r"ignore:Sparse invariant checks are implicitly disabled:UserWarning")
_NESTED = pytest.mark.filterwarnings(r"ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
_CSR = pytest.mark.filterwarnings(r"ignore:Sparse CSR tensor support is in beta state:UserWarning")
_QUANTIZED = (
    pytest.mark.filterwarnings(r"ignore:torch\.ao\.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:torch\.(quantize|qint8)[\s\S]*deprecated"),
)


class SparseInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(x, self.weight).relu()


class SparseInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sparse = x.relu().to_sparse()
        scaled = (sparse * 2).coalesce()
        return torch.sparse.sum(scaled, 1).to_dense() + scaled.values().sum() + torch.sparse.mm(scaled, x).sum()


class SparseOut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), x, (2, 2)) * 3


def sparse_input() -> Tensor:
    return torch.randn(3, 4).relu().to_sparse()


class NestedInside(nn.Module):
    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.layout = layout

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        nested = torch.nested.as_nested_tensor([first, second], layout=self.layout)
        out = torch.relu(self.inner(nested))
        return torch.nested.to_padded_tensor(out, 0.0)


class NestedThrough(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x)) * 2


def nested(layout: torch.layout) -> Any:
    return model_of(
        lambda: (NestedThrough(), torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=layout))
    )


def nested_inside(layout: torch.layout) -> Any:
    return model_of(lambda: (NestedInside(layout), torch.randn(2, 3), torch.randn(4, 3)))


def quantized() -> tuple[Any, Tensor]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8), torch.randn(2, 3)


class Quantizing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 2, torch.quint8).dequantize() * 2


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = torch.fft.fft(x) @ self.weight
        return torch.fft.irfft(spectrum, n=4), torch.view_as_real(spectrum.conj() * 1j)


class Conjugated(nn.Module):
    """Returns tensors with the conjugate and negative bits set."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1j
        return y.conj(), y.conj().imag


class Convs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 2)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x))).mean(-1)


def meta() -> tuple[Any, Tensor]:
    with torch.device("meta"):
        return Convs(), torch.empty(2, 2, 5)


def fake() -> tuple[Any, Tensor]:
    with FakeTensorMode():
        return Convs(), torch.randn(2, 2, 5)


class Tagged(torch.Tensor):
    """A subclass that wraps nothing: it only keeps its type."""


class Logged(torch.Tensor):
    """A subclass with a ``__torch_function__`` of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubling(torch.Tensor):
    """A wrapper subclass with a ``__torch_dispatch__`` of its own."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def as_subclass(self, kind: Any) -> Tensor:
        return self.inner

    def __repr__(self) -> str:
        return f"Doubling({self.inner})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.inner if isinstance(arg, Doubling) else arg for arg in args]
        out = func(*plain, **(kwargs or {}))
        return Doubling(out) if isinstance(out, Tensor) else out


class Chain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x + 1) * 2


def subclass(kind: Any) -> Any:
    return model_of(lambda: (Chain(), torch.randn(2, 3).as_subclass(kind)))


def check_chain(history: ModelHistory) -> None:
    names = [op.name for op in history]
    assert names == ["input", "add", "sin", "mul", "output"]
    for before, after in zip(history, list(history)[1:], strict=False):
        assert before in after.parents


def check_connected(history: ModelHistory) -> None:
    """The output depends on every input."""
    reached = set(history.outputs)
    todo = list(reached)
    while todo:
        fresh = set(todo.pop().parents) - reached
        reached |= fresh
        todo += fresh
    assert set(history.inputs) <= reached


def check_quantized(history: ModelHistory) -> None:
    check_connected(history)
    assert [op.module for op in history if "dynamic" in op.name] == ["0", "2"]


def case(name: str, build: Any, **options: Any) -> Case:
    return Case(name, build, **{"check": check_connected, **options})


CASES = [
    case("sparse_input", model_of(lambda: (SparseInput(), sparse_input())), names=("relu",), min_ops=2),
    case(
        "sparse_csr_input", model_of(lambda: (SparseInput(), sparse_input().to_sparse_csr())), names=("relu",),
        min_ops=2, marks=(_CSR,),
    ),
    case("sparse_inside", model_of(lambda: (SparseInside(), torch.randn(3, 3))), min_ops=8),
    case("sparse_output", model_of(lambda: (SparseOut(), torch.randn(2))), names=("mul",), min_ops=2, marks=(_SPARSE,)),
    case("nested_strided", nested(torch.strided), names=("linear", "relu", "mul"), min_ops=3, marks=(_NESTED,)),
    case("nested_jagged", nested(torch.jagged), names=("linear", "relu", "mul"), min_ops=3, marks=(_NESTED,)),
    case("nested_strided_inside", nested_inside(torch.strided), names=("linear", "relu"), min_ops=3, marks=(_NESTED,)),
    case("nested_jagged_inside", nested_inside(torch.jagged), names=("linear", "relu"), min_ops=3, marks=(_NESTED,)),
    case(
        "quantized_dynamic", model_of(quantized), names=("lineardynamic",), min_ops=3, check=check_quantized,
        marks=_QUANTIZED,
    ),
    case(
        "quantize_per_tensor", model_of(lambda: (Quantizing(), torch.randn(2, 3))),
        names=("quantizepertensor", "dequantize", "mul"), min_ops=3, marks=_QUANTIZED,
    ),
    case("complex", model_of(lambda: (Complex(), torch.randn(3, 4))), names=("fft", "matmul", "irfft"), min_ops=6),
    case("complex_conjugated", model_of(lambda: (Conjugated(), torch.randn(3))), names=("mul", "conj"), min_ops=4),
    case("meta", model_of(meta), names=("conv1d", "batchnorm", "relu", "mean"), min_ops=4, keeps_all=False),
    case(
        "fake_tensor", model_of(fake), names=("conv1d", "batchnorm", "relu", "mean"), min_ops=4, keeps_all=False,
        census=False,
    ),
    case("subclass", subclass(Tagged), check=check_chain, min_ops=3),
    case("subclass_function", subclass(Logged), check=check_chain, min_ops=3),
    case("subclass_dispatch", model_of(lambda: (Chain(), Doubling(torch.randn(2, 3)))), check=check_chain, min_ops=3),
]  # fmt: skip
