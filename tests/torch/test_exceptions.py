"""What a model raises comes through, with the history so far, and nothing of torch stays changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from tests.torch.fidelity.compare import torch_globals
from tests.torch.recorded import small


class MyError(Exception):
    """Of the user's own."""


class Fails(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        y = x * 3
        y.sum()
        raise self.error


class Inner(nn.Module):
    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.linear(x)) + 1


def nested_failure(error: BaseException) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), Inner(Inner(Fails(error))))


@pytest.mark.parametrize("layers_to_save", ["all", "none"])
@pytest.mark.parametrize("error", [MyError("mine"), ValueError("theirs"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_comes_through_with_the_history_so_far(error: BaseException, layers_to_save: str) -> None:
    before = torch_globals()
    with pytest.raises(type(error)) as caught:
        tl.log_forward_pass(nested_failure(error), torch.randn(2, 3), layers_to_save=layers_to_save)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert torch_globals() == before
    history = error.model_history  # type: ignore[union-attr]
    check_record(history.record)
    assert [op.name for op in history] == ["input", "linear", "linear", "linear", "mul", "sum"]
    assert [op.module for op in history][1:] == ["0", "1.linear", "1.last.linear", "1.last.last", "1.last.last"]
    assert type(error).__name__ in (history.record.run.error or "")
    record = history.record
    failed = {record.modules[call.module].address for call in record.calls if call.error}
    assert failed == {"", "1", "1.last", "1.last.last"}
    assert str(history)
    assert all(str(op) for op in history)
    with pytest.raises(tl.TorcheerError, match="raised"):
        _ = history.output
    if layers_to_save == "all":
        assert history["mul_1"].tensor_contents.shape == (2, 3)


class BadMatmul(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 1) @ torch.zeros(7, 7)


def test_an_error_of_torch_leaves_the_failed_op_in_the_history() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        tl.log_forward_pass(BadMatmul(), torch.randn(2, 3))
    history = caught.value.model_history  # type: ignore[attr-defined]
    assert [op.name for op in history][-1] == "matmul"
    assert not history["matmul_1"].outputs
    assert [parent.name for parent in history["matmul_1"].parents] == ["add", "zeros"]
    assert str(history["matmul_1"])


def test_after_an_exception_the_next_capture_is_right() -> None:
    model = small()
    expected = tl.log_forward_pass(model, torch.ones(1, 3)).layer_labels
    with pytest.raises(MyError):
        tl.log_forward_pass(nested_failure(MyError()), torch.randn(2, 3))
    assert tl.log_forward_pass(model, torch.ones(1, 3)).layer_labels == expected


class Catches(nn.Module):
    """Tries something, fails, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = Fails(MyError())
        self.whole = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.broken(x)
        except MyError:
            return self.whole(x)


def test_an_exception_caught_inside_forward_is_no_failure() -> None:
    history = tl.log_forward_pass(Catches(), torch.randn(2, 3))
    check_record(history.record)
    assert history.record.run.error is None
    assert [(op.name, op.module) for op in history][1:-1] == [("mul", "broken"), ("sum", "broken"), ("linear", "whole")]
    assert history.calls[1].error is not None
    assert history["whole"].parents == history.inputs


HOOKS = ("register_forward_hook", "register_forward_pre_hook")


@pytest.mark.parametrize("kind", HOOKS)
def test_an_exception_in_a_hook_comes_through(kind: str) -> None:
    model, before = small(), torch_globals()

    def hook(*args: Any) -> None:
        raise MyError("in a hook")

    getattr(model[1], kind)(hook)
    with pytest.raises(MyError, match="in a hook") as caught:
        tl.log_forward_pass(model, torch.randn(2, 3))
    assert torch_globals() == before
    assert "linear" in [op.name for op in caught.value.model_history]  # type: ignore[attr-defined]
