"""A canary for each private name of PyTorch that only watching uses: what it must do, and what breaks without it."""

from __future__ import annotations

import torch
from torch import nn

from torcheer.capture.torch import private


def test_compiling_can_be_put_aside() -> None:
    """Without it what watches is compiled along with a model that was compiled after it was watched."""
    compiled: list[str] = []
    inside: list[bool] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        compiled.append(graph.__class__.__name__)
        return graph.forward

    def aside(x: torch.Tensor) -> torch.Tensor:
        inside.append(torch.compiler.is_compiling())
        return x * 2

    def outer(x: torch.Tensor) -> torch.Tensor:
        before = private.swap_compiling(None)
        try:
            return aside(x)
        finally:
            private.swap_compiling(before)

    private.step_over_for_dynamo(outer)
    torch.compile(outer, backend=backend)(torch.ones(2))
    assert inside == [False]
    assert compiled == []


def test_modules_compiled_in_place_can_run_plain() -> None:
    """Without it compiled="eager" does not see them."""
    model = nn.Linear(2, 2)
    model.compile(backend="eager")
    assert private.is_compiled(model)
    with private.without_compiled_calls(model):
        assert not private.is_compiled(model)
    assert private.is_compiled(model)
    assert private.original_of(torch.compile(model, backend="eager")) is model  # type: ignore[arg-type]


def test_the_end_of_a_backward_pass() -> None:
    """Without it gradients of parameters are logged before DistributedDataParallel has averaged them."""
    order: list[str] = []
    engine = torch.autograd.Variable._execution_engine
    weight = torch.ones(2, requires_grad=True)

    def first(_: torch.Tensor) -> None:
        assert private.at_end_of_backward(lambda: order.append("ours"))
        engine.queue_callback(lambda: order.append("queued later, by somebody else"))

    weight.register_post_accumulate_grad_hook(first)
    weight.sum().backward()
    assert order == ["queued later, by somebody else", "ours"]
