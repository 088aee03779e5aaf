"""Paddle's own networks and its less common calls: every op is seen, and nothing that Paddle cannot do ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.vision import models as vision

import torcheer as tl
from torcheer.errors import NotSavedError

# Said by Paddle of bfloat16 on a CPU.
pytestmark = pytest.mark.filterwarnings("ignore:amp_guard can only be enabled on CUDAPlace:UserWarning")

Layers = tuple[Any, Any]


def tensors_of(output: Any) -> list[Any]:
    if isinstance(output, paddle.Tensor):
        return [output]
    items = output.values() if isinstance(output, dict) else output
    return [tensor for item in items for tensor in tensors_of(item)]


def assert_same(model: Any, x: Any) -> tl.ModelHistory:
    """The recorded run returns what a plain run does, and saw the making of every tensor."""
    plain = tensors_of(model(x))
    history = tl.log_forward_pass(model, x)
    for a, b in zip(plain, tensors_of(history.output), strict=True):
        np.testing.assert_array_equal(a.astype("float32").numpy(), b.astype("float32").numpy())
    assert history.diagnostics == ()
    constants = [value for value in history.record.values if value.kind == "constant" and value.grad_function]
    assert constants == []
    return history


@pytest.mark.parametrize(
    ("make", "num_ops"),
    [
        (vision.resnet18, 71),
        (vision.mobilenet_v3_small, 195),
        (vision.squeezenet1_0, 120),
        (vision.shufflenet_v2_x0_25, 232),
        (vision.densenet121, 429),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_networks_of_paddles_own(make: Callable[[], Any], num_ops: int) -> None:
    paddle.seed(0)
    model = make()
    model.eval()
    history = assert_same(model, paddle.rand([1, 3, 64, 64]))
    assert len(history) == num_ops
    roots = [op.label for op in history if not op.parents and not op.op.params and not op.is_input]
    assert roots == [], "everything comes from the input and the parameters"
    history.log_backward(history.output.sum())
    with_gradients = {gradient.param for gradient in history.record.gradients if gradient.param is not None}
    assert len(with_gradients) == sum(not param.stop_gradient for param in model.parameters())


@pytest.fixture
def layers() -> Layers:
    paddle.seed(1)
    return paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)


X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")

CALLS: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "amp": (lambda a, b, x: _in_bfloat16(a, b, x), "linear relu linear"),
    "einsum": (lambda a, b, x: paddle.einsum("bij,bkj->bik", a(x), b(x)), "linear linear einsum"),
    "attention": (
        lambda a, b, x: F.scaled_dot_product_attention(*(f(x).reshape([2, 3, 2, 4]) for f in (a, b, b))),
        f"{'linear reshape ' * 3}{'transpose ' * 3}mul matmul softmax matmul transpose",
    ),
    "in place": (lambda a, b, x: _written(a(x)), "linear setitem getitem full add scale splitwithnum mul"),
    "indices": (lambda a, b, x: paddle.topk(paddle.where(x > 0, a(x), b(x)), 2), "gt linear linear where topk"),
    "fft": (lambda a, b, x: paddle.fft.fft(a(x)).abs(), "linear fftr2c abs"),
    "gradient inside": (lambda a, b, x: b(_gradient(a, x)), "detach linear sum grad linear"),
    "sparse": (lambda a, b, x: F.relu(a(x)).to_sparse_coo(2).to_dense(), "linear relu sparsetosparsecoo sparsetodense"),
    "numpy between": (lambda a, b, x: b(paddle.to_tensor(a(x).numpy())), "linear linear"),
    "alias": (lambda a, b, x: F.adaptive_avg_pool2d(a(x)[None], 1), "linear getitem avgpool2d"),
    "loss": (lambda a, b, x: F.mse_loss(a(x), x), "linear subtract square mean"),
}  # fmt: skip


def _in_bfloat16(a: Any, b: Any, x: Any) -> Any:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        return b(F.relu(a(x)))


def _written(y: Any) -> Any:
    y[:, 0] = 0
    y[:, 1:].add_(paddle.ones([2, 2, 8]))
    y.scale_(2.0)
    first, second = paddle.split(y, 2, axis=-1)
    return first * second


def _gradient(a: Any, x: Any) -> Any:
    x = x.detach()
    x.stop_gradient = False
    return paddle.grad(a(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_many_kinds(name: str, layers: Layers) -> None:
    function, names = CALLS[name]
    history = assert_same(lambda x: function(*layers, x), paddle.to_tensor(X))
    seen = [op.name for op in history if not op.is_input and not op.is_output]
    assert " ".join(seen) == names


def test_a_static_layer_runs_as_its_source(layers: Layers) -> None:
    model = paddle.nn.Sequential(layers[0], paddle.jit.to_static(paddle.nn.Sequential(layers[1], paddle.nn.ReLU())))
    history = tl.log_forward_pass(model, paddle.to_tensor(X))
    assert [op.name for op in history] == ["input", "linear", "linear", "relu", "output"]


def test_contents_that_paddle_cannot_copy_are_told(layers: Layers) -> None:
    history = tl.log_forward_pass(lambda x: layers[0](x).to_sparse_coo(2).to_dense(), paddle.to_tensor(X))
    sparse = next(op for op in history if op.name == "sparsetosparsecoo")
    with pytest.raises(NotSavedError, match=r"it is sparse_coo, which Paddle does not copy; have its values\(\)"):
        _ = sparse.tensor_contents
