"""What a step is: forwards, backwards, optimizers, scalers, evaluation, and going on after a stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.watching.nets import Net, names, rows, train


def test_every_hundredth_step(watch: Any) -> None:
    model = Net()
    watching = watch(model, log_freq=4)
    train(model, lambda: torch.randn(5, 10), 10)
    for name in ("fc1/param/weight", "fc1/param_grad/weight", "fc1:1/output/0", "fc1:1/output_grad/0"):
        assert rows(watching, name).steps.tolist() == [0, 4, 8]


def test_several_forwards_before_a_backward_are_one_step(watch: Any) -> None:
    model = Net()
    watching = watch(model, sample_n=None, reject_outlier_proportion=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[Tensor] = []
    for _ in range(3):
        x1, x2 = torch.randn(5, 10), torch.randn(7, 10) + 3
        seen = [x1, x2]
        y1, y2 = model(x1), model(x2)
        optimizer.zero_grad()
        (y1.abs().sum() + y2.abs().sum()).backward()
        optimizer.step()
    found = rows(watching, "(model):1/input/0")
    assert found.steps.tolist() == [0, 1, 2]
    both = torch.cat([one.flatten() for one in seen])
    assert found["count"][-1] == both.numel(), "the superposition of both calls"
    assert found["mean"][-1] == pytest.approx(both.mean().item(), rel=1e-4)
    assert rows(watching, "fc1:1/output_grad/0")["count"][-1] == 12


def test_gradient_accumulation(watch: Any) -> None:
    """A step is a backward pass; the gradient shown is what has come together so far."""
    model = nn.Linear(4, 1)
    watching = watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    norms = []
    for turn in range(6):
        model(torch.randn(3, 4)).sum().backward()
        assert model.weight.grad is not None
        norms.append(model.weight.grad.norm().item())
        if turn % 2:
            optimizer.step()
            optimizer.zero_grad()
    found = rows(watching, "(model)/param_grad/weight")
    assert found["norm"].tolist() == pytest.approx(norms, rel=1e-4)
    update = rows(watching, "(model)/param/weight")["update"]
    assert (update[1::2] > 0).all()
    assert not (update[::2] > 0).any(), "no optimizer has stepped there"


def test_amp_gradients_are_shown_without_the_scale(watch: Any) -> None:
    norms: dict[float, list[float]] = {}
    activations: dict[float, list[float]] = {}
    for scale in (1.0, 1024.0):
        torch.manual_seed(0)
        model = Net()
        watching = watch(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randn(5, 10)).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        found = rows(watching, "fc1/param_grad/weight")
        norms[scale] = found["norm"].tolist()
        activations[scale] = rows(watching, "fc2:1/output_grad/0")["mean"].tolist()
        assert names(watching) >= {"fc1:1/output/0"}
        with watching.open() as run:
            assert run.find("fc1:1/output/0").dtype == "bfloat16"
        watching.stop()
    assert norms[1024.0] == pytest.approx(norms[1.0], rel=0.02)
    assert activations[1024.0] == pytest.approx(activations[1.0], rel=0.02)


def test_amp_with_unscale_and_clipping(watch: Any) -> None:
    model = Net()
    watching = watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    true = []
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(5, 10)).square().mean()).backward()
        scaler.unscale_(optimizer)
        true.append(model.fc1.weight.grad.norm().item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        scaler.step(optimizer)
        scaler.update()
    assert rows(watching, "fc1/param_grad/weight")["norm"].tolist() == pytest.approx(true, rel=1e-4)


def test_evaluation_is_a_series_of_its_own(watch: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    watching = watch(model)
    for _ in range(2):
        model.train()
        train(model, lambda: torch.randn(3, 4), 3)
        model.eval()
        with torch.no_grad():
            model(torch.randn(3, 4) + 100)
    with watching.open() as run:
        assert run.lanes == ["eval", "train"]
        assert run.rows(run.find("0:1/input/0", "train")).steps.tolist() == [0, 1, 2, 3, 4, 5]
        shown = run.rows(run.find("0:1/input/0", "eval"))
    assert shown.steps.tolist() == [2, 5], "at the training step it comes after"
    assert (shown["mean"] > 90).all()
    assert "0:1/output_grad/0" not in names(watching, "eval")


def test_evaluation_before_training(watch: Any) -> None:
    model = Net().eval()
    watching = watch(model)
    with torch.inference_mode():
        model(torch.randn(2, 10))
    model.train()
    train(model, lambda: torch.randn(2, 10), 2)
    with watching.open() as run:
        assert run.lanes == ["eval", "train"]
    assert rows(watching, "fc1:1/output/0", "train").steps.tolist() == [0, 1]


def test_numbers(watch: Any) -> None:
    model = Net()
    watching = watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for turn in range(3):
        loss = model(torch.randn(5, 10)).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        watching.log(loss=loss, lr=schedule.get_last_lr()[0], turn=np.int64(turn), bad=float("nan"))
    with watching.open() as run:
        assert run.scalar_names == ["loss", "lr", "turn", "bad"]
        assert run.scalars("lr").values.tolist() == [0.25, 0.125, 0.0625]
        assert run.scalars("lr").steps.tolist() == [0, 1, 2]
        assert np.isnan(run.scalars("bad").values).all()
        assert run.scalars("loss").values[-1] == pytest.approx(loss.item())


def test_training_steps_without_an_optimizer_object(watch: Any) -> None:
    model = nn.Linear(3, 3)
    watching = watch(model)
    for _ in range(3):
        model(torch.randn(2, 3)).sum().backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * one.grad
                one.grad = None
    update = rows(watching, "(model)/param/weight")["update"]
    assert (update[:2] > 0).all()


def test_functional_gradients(watch: Any) -> None:
    """``torch.autograd.grad`` fills no ``.grad``; the norms of activations are there all the same."""
    model = Net()
    watching = watch(model)
    for _ in range(2):
        torch.autograd.grad(model(torch.randn(5, 10)).sum(), list(model.parameters()))
    assert rows(watching, "fc1:1/output_grad/0").steps.tolist() == [0, 1]


def test_double_backward(watch: Any) -> None:
    """A gradient penalty: the gradient of a gradient."""
    model = Net()
    watching = watch(model)
    for _ in range(2):
        x = torch.randn(5, 10, requires_grad=True)
        y = model(x).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        (y + slope.square().sum()).backward()
    assert rows(watching, "fc1/param_grad/weight").steps.tolist() == [0, 1]


def test_resumed_from_where_it_was(watch: Any) -> None:
    model = Net()
    watching = watch(model, name="long")
    train(model, lambda: torch.randn(5, 10), 5)
    watching.log(loss=1.0)
    watching.stop()
    again = watch(model, name="long", resume=True)
    train(model, lambda: torch.randn(5, 10), 3)
    assert rows(again, "fc1/param/weight").steps.tolist() == list(range(8))
    with again.open() as run:
        assert [one["first_step"] for one in run.sessions] == [0, 5]
        assert len({one.name for one in run.series if one.lane == "train"}) == len(run.series), "the same series go on"
        assert run.structure() is not None


def test_resumed_from_an_earlier_checkpoint(watch: Any) -> None:
    model = Net()
    watching = watch(model, name="long")
    train(model, lambda: torch.randn(5, 10), 150)
    watching.stop()
    again = watch(model, name="long", resume=True, start_step=100)
    assert again.step == 99
    train(model, lambda: torch.zeros(5, 10), 4)
    found = rows(again, "(model):1/input/0")
    assert found.steps.tolist() == list(range(104))
    assert (found["norm"][:100] > 0).all()
    assert (found["norm"][100:] == 0).all()


def test_a_context_ends_with_its_block(watch: Any) -> None:
    model = Net()
    with watch(model) as watching:
        train(model, lambda: torch.randn(5, 10), 3)
    assert len(rows(watching, "fc1/param_grad/weight")) == 3, "the last step is complete too"
    assert "stopped" in repr(watching)
    train(model, lambda: torch.randn(5, 10), 3)
    assert len(rows(watching, "fc1/param_grad/weight")) == 3
    watching.stop()


def test_attach_where_nothing_is_watched() -> None:
    import torcheer as tl

    x = torch.randn(3)
    assert tl.attach(x, nn.Linear(1, 1), "x") is x
