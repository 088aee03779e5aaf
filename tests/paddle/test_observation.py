"""Observing a Paddle layer changes nothing: outputs, gradients, random numbers, hooks, names, after an error too."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import torcheer as tl
from tests.paddle import models
from torcheer.capture.paddle.seeing import seen_by

# Said by Paddle whenever a BatchNorm trains.
pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track global mean:UserWarning")

MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "convolutional": (models.Convolutional, (2, 3, 8, 8)),
    "shared": (models.Shared, (2, 4)),
    "recurrent": (models.Recurrent, (2, 3, 4)),
    "attention": (models.Attention, (2, 3, 8)),
    "custom": (models.Custom, (2, 4)),
}


def tensors_in(output: Any) -> list[Any]:
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, tuple):
        return [tensor for item in output for tensor in tensors_in(item)]
    return [output]


def run(name: str, call: Callable[[Any, Any], Any]) -> list[np.ndarray]:
    """Outputs, gradients, buffers and the random numbers that follow, of a run from a fixed seed."""
    make, shape = MODELS[name]
    paddle.seed(7)
    model, x = make(), paddle.randn(list(shape))
    x.stop_gradient = False
    outputs = tensors_in(call(model, x))
    sum(output.sum() for output in outputs).backward()
    gradients = [x.grad, *(param.grad for param in model.parameters())]
    seen = [*outputs, *(g for g in gradients if g is not None), *model.state_dict().values(), paddle.rand([3])]
    return [tensor.numpy() for tensor in seen]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers_to_save", ["all", "none"])
def test_the_run_is_the_same_bit_for_bit(name: str, layers_to_save: str) -> None:
    plain = run(name, lambda model, x: model(x))
    seen = run(name, lambda model, x: tl.log_forward_pass(model, x, layers_to_save=layers_to_save).output)
    assert len(plain) == len(seen)
    for a, b in zip(plain, seen, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_the_comparison_of_runs_can_fail() -> None:
    def with_noise(model: Any, x: Any) -> Any:
        paddle.rand([1])
        return model(x)

    plain, noisy = run("convolutional", lambda model, x: model(x)), run("convolutional", with_noise)
    assert any(not np.array_equal(a, b) for a, b in zip(plain, noisy, strict=True))


def every_name() -> dict[tuple[str, str], int]:
    places = {
        (module, name): id(value)
        for module, names in sys.modules.items()
        if module.startswith(("paddle", "tests.paddle")) and names is not None
        for name, value in list(vars(names).items())
    }
    for owner in (paddle.Tensor, paddle.nn.Layer, paddle.autograd.PyLayer):
        places.update({(repr(owner), name): id(value) for name, value in vars(owner).items()})
    return places


@pytest.mark.parametrize("fails", [False, True])
def test_everything_replaced_is_put_back(fails: bool) -> None:
    model = models.Failing() if fails else models.Attention()
    attributes = {name: id(value) for name, value in vars(model).items()}
    tl.log_forward_pass(paddle.nn.Linear(2, 2), paddle.rand([1, 2]))  # what is imported late is in now
    before = every_name()
    if fails:
        with pytest.raises(ValueError, match="half way") as caught:
            tl.log_forward_pass(model, paddle.rand([2, 4]))
        history = caught.value.model_history  # type: ignore[attr-defined]
        assert [op.name for op in history] == ["input", "linear"]
        assert history.record.run.error == "ValueError: half way"
        assert history.record.calls[0].error == "ValueError: half way"
    else:
        tl.log_forward_pass(model, paddle.rand([2, 3, 8]))
    after = every_name()
    assert {place for place in before if before[place] != after.get(place)} == set()
    assert {name: id(value) for name, value in vars(model).items()} == attributes


def test_what_is_replaced_shows_during_the_capture_only() -> None:
    history = tl.log_forward_pass(lambda x: x + 1, paddle.rand([2]))
    recorder = history._session.recorder  # type: ignore[union-attr]
    before = every_name()
    with seen_by(recorder):
        assert sum(before.get(place) != number for place, number in every_name().items()) > 1000
    assert before == every_name()


def test_no_hook_stays_on_parameters_or_layers() -> None:
    model = models.Convolutional()
    history = tl.log_forward_pass(model, paddle.rand([2, 3, 8, 8]))
    history.log_backward(history.output.sum())
    assert not any(layer._forward_pre_hooks or layer._forward_post_hooks for layer in model.sublayers(True))
    gradient = model.fc.weight.grad.numpy()
    seen = len(history.record.gradients)
    model.clear_gradients()
    model(paddle.rand([2, 3, 8, 8])).sum().backward()
    assert len(history.record.gradients) == seen
    assert not np.array_equal(gradient, np.zeros_like(gradient))


def test_hooks_of_the_user_run_and_count() -> None:
    model = models.Shared()
    calls = []
    model.fc.register_forward_post_hook(lambda layer, given, out: calls.append("post") or out * 2)
    x = paddle.rand([2, 4])
    plain = model(x)["out"].numpy()
    history = tl.log_forward_pass(model, x)
    np.testing.assert_array_equal(plain, history.output["out"].numpy())
    assert calls == ["post"] * 4
    assert "scale" in {op.name for op in history} or "mul" in {op.name for op in history}


def test_another_thread_is_not_recorded_and_not_disturbed() -> None:
    results: list[Any] = []
    x = paddle.ones([2, 4])

    class Starting(paddle.nn.Layer):
        def forward(self, x: Any) -> Any:
            thread = threading.Thread(target=lambda: results.append((x * 3).numpy()))
            thread.start()
            thread.join()
            return x + 1

    history = tl.log_forward_pass(Starting(), x)
    np.testing.assert_array_equal(results[0], np.full((2, 4), 3, "float32"))
    assert [op.name for op in history] == ["input", "add", "output"]


def test_modes_and_gradient_mode_are_as_they_were() -> None:
    model = models.Convolutional()
    model.eval()
    with paddle.no_grad():
        history = tl.log_forward_pass(model, paddle.rand([1, 3, 8, 8]))
        assert not paddle.is_grad_enabled()
    assert not history.record.run.grad_enabled
    assert not history.record.run.training
    assert not model.training
    assert all(not param.stop_gradient for param in model.fc.parameters())


class Raising(paddle.nn.Layer):
    """Raises in the forward, or in the backward pass."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.fc, self.bn, self.where = paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4), where

    def forward(self, x: Any) -> Any:
        y = self.bn(self.fc(x)) + paddle.rand([4])
        random.random()
        if self.where == "forward":
            raise ValueError("half way")
        if self.where == "backward":
            y.register_hook(_raise)
        return y


def _raise(_gradient: Any) -> None:
    raise ValueError("half way")


def everything_about(layer: Any, module: torch.nn.Module) -> dict[str, Any]:
    """What a comparison must leave as it was."""
    params = [*layer.parameters(), *module.parameters()]
    layers, modules = layer.sublayers(True), list(module.modules())
    tensors = [tensor.detach().numpy() for model in (layer, module) for tensor in model.state_dict().values()]
    return {
        "state": [array.tobytes() for array in tensors],
        "gradients": [None if p.grad is None else p.grad.numpy().tobytes() for p in params],
        "modes": [one.training for one in (*layers, *modules)],
        "hooks": [len(one._forward_pre_hooks) + len(one._forward_post_hooks) for one in layers]
        + [len(one._forward_pre_hooks) + len(one._forward_hooks) for one in modules],
        "frozen": [p.stop_gradient for p in layer.parameters()] + [p.requires_grad for p in module.parameters()],
        "names": [sorted(vars(one)) for one in (*layers, *modules)],
        "random": [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())],
    }


@pytest.mark.parametrize("where", ["", "forward", "backward"])
@pytest.mark.parametrize("torch_first", [False, True])
def test_a_comparison_changes_nothing(where: str, torch_first: bool) -> None:
    paddle.seed(5)
    torch.manual_seed(5)
    layer, module = Raising(where), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    layer(paddle.ones([3, 4])).sum().backward() if not where else None
    layer.bn.eval()
    x = np.random.default_rng(0).random((3, 4), "float32")
    before, names = everything_about(layer, module), every_name()
    models = (module, layer) if torch_first else (layer, module)
    if where:
        # Paddle turns what a hook raises into an OSError.
        with pytest.raises((ValueError, OSError), match="half way"):
            tl.autodiff(*models, x)
    else:
        assert not tl.autodiff(*models, x)
    assert everything_about(layer, module) == before
    after = every_name()
    assert {place for place in names if names[place] != after.get(place)} == set()
    # The random numbers that follow are those of a process that compared nothing.
    drawn = paddle.rand([2]).numpy()
    paddle.seed(5)
    fresh = Raising(where)
    fresh(paddle.ones([3, 4])) if not where else None
    np.testing.assert_array_equal(drawn, paddle.rand([2]).numpy())


@pytest.mark.parametrize("layers_to_save", ["all", "none"])
def test_many_captures_leave_nothing(layers_to_save: str) -> None:
    model, x = models.Convolutional(), paddle.rand([2, 3, 8, 8])

    def capture() -> None:
        history = tl.log_forward_pass(model, x, layers_to_save=layers_to_save)
        history.log_backward(history.output.sum())
        model.clear_gradients()

    def count() -> int:
        gc.collect()
        return len(gc.get_objects())

    for _ in range(3):
        capture()
    before = count()
    for _ in range(30):
        capture()
    assert count() - before < 30
