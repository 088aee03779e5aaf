"""What is put on the tape for a leaf is what the ATen level would have seen, and it looks where it has to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from torcheer.capture.torch import composites, leaves
from torcheer.capture.torch.inputs import arrange
from torcheer.capture.torch.modes import FunctionLevel
from torcheer.capture.torch.private import TorchDispatchMode
from torcheer.capture.torch.select import Everything
from torcheer.capture.torch.session import TorchSession

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "unary": lambda x: x.relu().tanh().sigmoid().exp().neg().abs().sqrt().rsqrt().cos().sin(),
    "torch.unary": lambda x: torch.sin(torch.cos(torch.rsqrt(torch.neg(torch.exp(torch.relu(x)))))),
    "in place": lambda x: [y := x + 0, torch.relu_(y), y.relu_(), y.add_(x), y.add_(2)],
    "activations": lambda x: [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.silu(x + 1, inplace=True)],
    "arithmetic": lambda x: [x + x, x + 1, 1 + x, x - 2.5, x * x, 3 * x, x / 2, 2 / x, x + True, x + x[0]],
    "with alpha": lambda x: [torch.add(x, x, alpha=2), torch.sub(x, 1, alpha=3)],
    "power": lambda x: [torch.pow(x, 2), x**2, x**0.5, torch.pow(x, x), torch.pow(2, x)],
    "products": lambda x: [torch.mm(x, x.t()), x.mm(x.T), torch.addmm(x[:, 0], x, x.t()), x @ x.t()],
    "batched": lambda x: [torch.bmm(x[None], x.t()[None]), torch.addmm(x[0], x.t(), x, beta=2)],
    "views": lambda x: [x.view(-1), x.view(2, -1), x.view((6, 4)), x.view(torch.Size([24])), x.view(torch.int32)],
    "more views": lambda x: [x.transpose(0, 1), torch.transpose(x, -1, -2), x.unsqueeze(0), x.t(), x.permute(1, 0)],
    "expand": lambda x: [x[0].expand(3, 6), x[0].expand((2, 3, -1)), x.permute((1, 0)), x[:1].expand(4, 6)],
    "views are written to": lambda x: [y := x.add(0), y.view(2, 12).transpose(0, 1).add_(1), y.t().relu_()],
    "convolution": lambda x: [
        F.conv2d(x.view(1, 1, 4, 6), torch.ones(2, 1, 3, 3)),
        torch.conv2d(x.view(1, 1, 4, 6), torch.ones(2, 1, 3, 3), None, (1, 1), (0, 0), (1, 1), 1),
        torch.conv2d(x.view(1, 4, 6), torch.ones(2, 1, 3, 3), None, (1, 1), (0, 0), (1, 1), 1),
        torch.nn.Conv2d(1, 3, 2, padding="same")(x.view(1, 1, 4, 6)),
        torch.nn.Conv2d(4, 2, 1, groups=2, stride=2)(x.view(1, 4, 3, 2)),
    ],
    "linear": lambda x: _linears(x, torch.nn.Linear(6, 5), torch.nn.Linear(6, 3, bias=False)),
    "linear, odd shapes": lambda x: [
        F.linear(x, x[0]),
        F.linear(x[0], x, x[:, 0]),
        F.linear(x[:0], x),
        F.linear(x[None, :0], x),
        F.linear(x.view(2, 2, 2, 3), x[:, :3], x[:, 0]),
        F.linear(x.view(2, 6, 2).transpose(1, 2), x, x[:, 0]),
        F.linear(x.view(2, 6, 2).transpose(1, 2), x),
        F.linear(x.view(4, 6, 1)[:, 1:], x[:, :1]),
        F.linear(x[None].expand(3, 4, 6), x, x[:, 0]),
        F.linear(x[None, 1:], x[:, :].t()[:, :4].t(), bias=x[:, 0]),
        F.linear(x, x[:1], x[0, :1]),
        F.linear(x.view(1, 4, 6), x[:1]),
        F.linear(x.half(), x.half()),
        F.linear(x.double()[None], x.double(), x.double()[:, 0]),
    ],
    "linear, autocast": lambda x: _under(torch.autocast("cpu"), lambda: _linears(x, torch.nn.Linear(6, 5))),
    "norms": lambda x: [
        torch.nn.BatchNorm2d(2).eval()(x.view(1, 2, 3, 4)),
        torch.nn.BatchNorm1d(6).eval()(x).mul_(2),
        torch.nn.BatchNorm1d(6, affine=False).eval()(x),
        torch.nn.BatchNorm1d(6)(x),
        torch.nn.BatchNorm1d(6).double().eval()(x.double()),
        torch.nn.LayerNorm(6)(x).mul_(2),
        torch.nn.LayerNorm((4, 6))(x),
        torch.nn.LayerNorm((2, 3))(x.view(2, 2, 2, 3).transpose(0, 1)),
        torch.nn.LayerNorm(6, elementwise_affine=False)(x),
        torch.nn.LayerNorm(6).double()(x.double()),
        torch.nn.LayerNorm(6)(x[:0]),
    ],
    "reshape": lambda x: [x.reshape(-1), x.reshape((6, 4)), x.t().reshape(3, 8), x[:, :2].reshape(2, 2, 2)],
    "saved results": lambda x: [y := (x * 2).relu(), torch.relu_(y * 3), y.tanh().sigmoid().exp().sqrt().rsqrt()],
    "autocast": lambda x: _under(torch.autocast("cpu", torch.bfloat16), lambda: [torch.mm(x, x.t()), x.relu(), x * x]),
    "vmap": lambda x: torch.vmap(lambda row: row.relu() * 2)(x),
    "grad": lambda x: torch.func.grad(lambda y: (y * y).tanh().sum())(x),
    "sparse": lambda x: [x.relu().to_sparse() * 2, x.to_sparse().add(x.to_sparse()).relu()],
    "complex": lambda x: [torch.complex(x, x).conj() * 2, torch.complex(x, x).mul(x)],
    "negative bit": lambda x: [x.relu(), torch.complex(x, x).conj().imag.relu(), torch._neg_view(x) * 2],
    "zero tensor": lambda x: [x + torch._efficientzerotensor((6,)), torch._efficientzerotensor((6,)) * x],
    "saved tensors on the cpu": lambda x: _under(torch.autograd.graph.save_on_cpu(), lambda: x * x + x.tanh()),
    "forward-mode AD": lambda x: _under(dual_level(), lambda: _with_tangents(make_dual(x, x * 3))),
    "jvp": lambda x: torch.func.jvp(lambda y: (y * y).relu().view(-1), (x,), (x,)),
    "integers": lambda x: _of_integers((x * 10).to(torch.int64)),
    "half": lambda x: [y := x.half(), z := x.bfloat16(), y * x, z.relu(), z.add(x), F.gelu(y), y.exp(), z / 2],
    "more complex": lambda x: [y := torch.complex(x, x), y.t().mm(y), y + 1j, y.exp().tanh(), y.conj().view(-1) + 1],
    "scalars": lambda x: [x * torch.tensor(2.0), x + np.float64(2), x.div(np.int64(3)), x + math.inf, x.mul(2**40)],
    "parameters": lambda x: [y := torch.nn.Parameter(x.detach()), y * 2, y.view(-1), y.t(), y.mm(y.t())],
    "empty": lambda x: [y := x.detach()[:0], y.relu(), y.mm(y.t()), y.view(6, 0), y.expand(3, 0, 6) * 2],
    "deterministic": lambda x: _under(_deterministic(), lambda: [x.mm(x.t()), x.add(1).relu_(), _conv(x)]),
    "without oneDNN": lambda x: _under(torch.backends.mkldnn.flags(enabled=False), lambda: [_conv(x), x.mm(x.t())]),
    "matmul precision": lambda x: _under(_precision(), lambda: [_conv(x), x.mm(x.t()), torch.addmm(x[:, 0], x, x.t())]),
    "oneDNN tensors": lambda x: _of_mkldnn(x.detach().to_mkldnn()),
    "quantized": lambda x: _of_quantized(torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.quint8)),
    "nested": lambda x: _of_nested(torch.nested.nested_tensor([x.detach()[0, :2], x.detach()[1]])),
    "meta": lambda x: [y := x.detach().to("meta"), y.relu(), y.mm(y.t()), (y * 2).view(-1), _conv(y)],
    "subclass": lambda x: [y := x.detach().as_subclass(Plain), (y * 2).relu(), y.t(), y.view(-1)],
    "anomaly mode": lambda x: _under(_anomaly(), lambda: [x * x, x.relu().exp(), _conv(x)]),
    "flop counter": lambda x: _under(FlopCounterMode(display=False), lambda: [x.mm(x.t()), _conv(x), x * 2]),
    "checkpoint": lambda x: [checkpoint(lambda y: (y * y).relu(), x, use_reentrant=kind) for kind in (True, False)],
    "functionalize": lambda x: torch.func.functionalize(lambda y: y.clone().add_(1).relu_())(x),
    "another mode": lambda x: _under(Doubling(), lambda: x.relu() + x * 2),
}


def _linears(x: Tensor, *layers: torch.nn.Linear) -> list[Tensor]:
    return [layer(given) for layer in layers for given in (x, x[None], x.view(2, 2, 6), x.t()[None].transpose(1, 2))]


def _conv(x: Tensor) -> Tensor:
    return torch.nn.Conv2d(1, 2, 3, device=x.device)(x.view(1, 1, 4, 6))


def _with_tangents(x: Tensor) -> Any:
    results = [(x * 2).relu().tanh() + x, torch.mm(x, x.t()), x.view(-1).unsqueeze(0).t(), x.expand(2, 4, 6), _conv(x)]
    return [part for result in results for part in unpack_dual(result)]


def _of_integers(x: Tensor) -> Any:
    quotients = [x / 2, torch.div(x, 3), torch.div(x, 2, rounding_mode="floor"), torch.true_divide(x, 2), x // 2]
    others = [x + 1.5, x * 2.0, x.relu(), x.tanh(), x.sqrt(), torch.pow(x, 2), torch.pow(x, 2.5), x.mul(True), x.neg()]
    return [*quotients, *others, x.add_(1), (x > 0) + 1, (x > 0).mul(0.5)]


def _of_quantized(x: Tensor) -> Any:
    results = [x.relu(), x.view(-1), x.t(), x.unsqueeze(0), x.permute(1, 0), x.sigmoid(), x.tanh(), x.expand(2, 4, 6)]
    return [result.dequantize() for result in results]


def _of_mkldnn(x: Tensor) -> Any:
    return [result.to_dense() for result in (x.relu(), x * 2, x + x, x.transpose(0, 1), x.sigmoid(), x.tanh())]


def _of_nested(x: Tensor) -> Any:
    return [part for result in (x.relu() + x, F.gelu(x), x * 2, x.neg()) for part in result.unbind()]


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def _precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _anomaly() -> Any:
    return torch.autograd.set_detect_anomaly(True, check_nan=False)


class Plain(Tensor):
    """A subclass that changes nothing."""


def _under(context: Any, run: Callable[[], Any]) -> Any:
    with context:
        return run()


class Doubling(TorchDispatchMode):
    """A mode of the user's that does work of its own."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 2 if str(func) == "aten.relu.default" else out


class Swapping(TorchFunctionMode):
    """A function mode of the user's that runs something else."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return torch.tanh(*args) + 1 if func is torch.relu else func(*args, **(kwargs or {}))


def test_a_function_mode_around_the_run_is_looked_into() -> None:
    with Swapping():
        _, looked = recorded(lambda x: torch.relu(x) * 2, torch.rand(3), with_leaves=False)
        _, known = recorded(lambda x: torch.relu(x) * 2, torch.rand(3), with_leaves=True)
    names = [op.function for op in known.record().aten]
    assert names == [op.function for op in looked.record().aten]
    assert "aten.relu.default" not in names
    assert "aten.tanh.default" in names


def recorded(program: Callable[[Tensor], Any], x: Tensor, *, with_leaves: bool, keep: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    session = TorchSession(program, arrange(program, (x,), {}), Everything() if keep else None)
    if not with_leaves:
        session.function_level.leaves = {}
    return session.run(), session


# They have every leaf, in a form in which it is one call.
PLAIN_PROGRAMS = (
    "unary", "torch.unary", "in place", "activations", "arithmetic", "power", "products", "batched", "more views",
    "views are written to", "expand", "convolution", "linear", "norms", "reshape",
)  # fmt: skip

MODES = {
    "plain": torch.enable_grad,
    "requires_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings(
    "ignore:.*padding='same'.*:UserWarning",
    "ignore:Sparse:UserWarning",
    "ignore:.*nested:UserWarning",
    "ignore:.*quantize:DeprecationWarning",
    "ignore:.*quantize:UserWarning",
    "ignore:Anomaly:UserWarning",
    "ignore:TF32:UserWarning",
    "ignore:None of the inputs:UserWarning",
    "ignore:.*torch.jit.script:DeprecationWarning",
)
def test_a_leaf_is_what_the_aten_level_sees(name: str, mode: str) -> None:
    if mode == "inference" and name == "forward-mode AD":
        pytest.skip("PyTorch has none in inference mode")
    torch.manual_seed(1)
    x = torch.rand(4, 6).add(0.5)
    if mode == "requires_grad" and name not in {"sparse", "views are written to"}:
        x.requires_grad_()
    with MODES[mode]():
        output, looked = recorded(PROGRAMS[name], x, with_leaves=False)
        same, known = recorded(PROGRAMS[name], x, with_leaves=True)
    for one, other in zip(flat(output), flat(same), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    record, again = looked.record(), known.record()
    assert [op.function for op in again.aten] == [op.function for op in record.aten]
    for op, twin in zip(record.aten, again.aten, strict=True):
        assert (twin.args, twin.kwargs, twin.parents, twin.outputs, twin.writes, twin.owner) == (
            (op.args, op.kwargs, op.parents, op.outputs, op.writes, op.owner)
        ), op.function
        assert list(map(type, flat(twin.args))) == list(map(type, flat(op.args))), op.function
    # Zero tensors make meta tensors that come and go within a call; their addresses are given away again at once.
    with_storages = name not in {"zero tensor", "forward-mode AD"}
    assert values_of(known, with_storages) == values_of(looked, with_storages)
    assert [(op.function, op.parents, op.outputs, op.seq is None) for op in again.ops] == [
        (op.function, op.parents, op.outputs, op.seq is None) for op in record.ops
    ]


def values_of(session: TorchSession, with_storages: bool) -> list[Any]:
    """The record's values, autograd nodes counted from the run's first."""
    first = session.tape.first_seq
    return [
        replace(
            value,
            node_seq=None if value.node_seq is None else value.node_seq - first,
            storage=value.storage if with_storages else None,
        )
        for value in session.record().values
    ]


def flat(structure: Any) -> list[Any]:
    if isinstance(structure, (tuple, list)):
        return [leaf for item in structure for leaf in flat(item)]
    return [structure]


def test_every_leaf_occurs_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[int, Any] = {}
    run = FunctionLevel._run_leaf

    def noted(level: FunctionLevel, leaf: Any, *rest: Any) -> Any:
        found = run(level, leaf, *rest)
        if isinstance(found, Tensor):
            taken[id(leaf.func)] = leaf.func
        return found

    monkeypatch.setattr(FunctionLevel, "_run_leaf", noted)
    for program in (*(PROGRAMS[name] for name in PLAIN_PROGRAMS), _methods):
        with torch.no_grad():
            recorded(program, torch.rand(4, 6), with_leaves=True)
    assert taken.keys() == leaves.LEAVES.keys()


def _methods(x: Tensor) -> Any:
    square = x[:, :4]
    return [
        [torch.add(x, x), torch.sub(x, x), torch.mul(x, 2), torch.div(x, 2), torch.unsqueeze(x, 0), torch.t(x)],
        [torch.sqrt(x), torch.tanh(x), torch.sigmoid(x), x.exp(), x.cos(), x.sin(), x.sub(x), x.mul(2), x.div(2)],
        [square.mm(square), square[0].addmm(square, square), x[None].bmm(x.t()[None])],
    ]


def test_contents_are_copied_before_a_leaf_writes() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        torch.relu_(y)
        return y.add_(1)

    x = torch.tensor([-1.0, 2.0])
    _, session = recorded(program, x, with_leaves=True, keep=True)
    record = session.record()
    kept = [session.payloads[record.saved[op.outputs[0].value]].tolist() for op in record.ops]
    assert kept == [[-1, 2], [-2, 4], [0, 4], [1, 5], [1, 5]]


@pytest.mark.parametrize("x", [torch._neg_view(torch.ones(3)), torch.ones(3, dtype=torch.complex64).conj()], ids=str)
def test_inputs_that_are_resolved_first(x: Tensor) -> None:
    _, looked = recorded(lambda x: x * 2, x, with_leaves=False)
    _, known = recorded(lambda x: x * 2, x, with_leaves=True)
    assert [op.function for op in known.record().aten] == [op.function for op in looked.record().aten]


@pytest.mark.parametrize("missing", ["linear", "batch_norm"])
def test_a_composite_that_is_something_else_here_is_looked_at(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    func = getattr(torch._C._nn, missing, None) or getattr(torch, missing)
    monkeypatch.setattr(leaves, "LEAVES", dict(leaves.LEAVES))
    monkeypatch.setattr(leaves, "_tried", [])
    monkeypatch.setattr(composites, "_T", composites._MM)
    monkeypatch.setattr(composites, "_EMPTY", composites._MM)
    with torch.autocast("cpu"):
        assert leaves.leaves_now() == {}
    assert id(func) not in leaves.leaves_now()
    assert id(torch.layer_norm) in leaves.leaves_now()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_no_leaves_where_kernels_were_replaced() -> None:
    assert leaves.leaves_now() is leaves.LEAVES
    library = torch.library.Library("aten", "IMPL")
    library.impl("cosh", lambda x: x, "CPU")
    try:
        assert leaves.leaves_now() is leaves.LEAVES
        library.impl("relu", lambda x: x * 2, "AutogradCPU")
        assert leaves.leaves_now() == {}
    finally:
        library._destroy()
    assert leaves.leaves_now() is leaves.LEAVES
