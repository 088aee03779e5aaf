"""Paddle's private names that a capture rests on. When one of these fails, Paddle has moved something."""

from __future__ import annotations

from types import BuiltinFunctionType

import paddle
from paddle import _C_ops

from torcheer.capture.paddle import private


def test_python_calls_operators_through_their_namespace() -> None:
    assert type(_C_ops.matmul) is BuiltinFunctionType
    assert id(_C_ops.matmul) in private.operators()
    assert len(private.operators()) > 1000


def test_the_tensor_class_has_the_methods_that_are_replaced() -> None:
    missing = set(private.METHODS) - set(private.methods()) - {"__div__", "__rdiv__"}
    assert not missing, "without these, what they do is not seen"


def test_replacing_a_method_of_the_tensor_class_reaches_the_operator() -> None:
    plain, seen = vars(paddle.Tensor)["__add__"], []
    paddle.Tensor.__add__ = lambda self, other: seen.append("add") or plain(self, other)
    try:
        _ = paddle.ones([1]) + 1
    finally:
        paddle.Tensor.__add__ = plain
    _ = paddle.ones([1]) + 1
    assert seen == ["add"]


def test_views_share_an_address() -> None:
    x = paddle.rand([4, 3])
    assert private.base_address(x[1:]) == private.base_address(x) != 0
    assert private.element_offset(x[1:]) == 3
    assert private.base_address(x * 1) != private.base_address(x)


def test_a_gradient_hook_sees_the_sum_of_all_uses() -> None:
    x = paddle.ones([2])
    x.stop_gradient = False
    y = x * 2
    seen: list[list[float]] = []
    private.watch_gradient(y, lambda gradient: seen.append(gradient.tolist()))
    (y * 3 + y * 4).sum().backward()
    assert seen == [[7.0, 7.0]]


def test_an_optimizer_keeps_its_state_where_it_is_put_back() -> None:
    layer = paddle.nn.Linear(2, 2)
    for kind in (paddle.optimizer.Adam, paddle.optimizer.AdamW, paddle.optimizer.Momentum):
        optimizer = kind(0.1, parameters=layer.parameters())
        empty = private.OptimizerState(optimizer)
        layer(paddle.ones([1, 2])).sum().backward()
        optimizer.step()
        assert any(optimizer._accumulators.values()), "the state is kept under another name"
        empty.restore()
        assert not any(optimizer._accumulators.values())
        optimizer.step()  # it begins anew
        assert any(optimizer._accumulators.values())
