"""Training is what it would be without the watch, to the bit; afterwards nothing is left of it."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.watching.nets import Dropped, Net, Residual, train
from torcheer.watching import scaling

BATCHES = {
    Net: lambda: torch.randn(5, 10),
    Dropped: lambda: torch.randn(5, 10),
    Residual: lambda: torch.randn(4, 3, 6, 6),
}


def _trained(kind: type[nn.Module], watch: Any, **options: Any) -> tuple[list[float], dict[str, Tensor], Tensor]:
    torch.manual_seed(3)
    model = kind()
    watching = watch(model, **options) if watch is not None else None
    losses = train(model, BATCHES[kind], 12)
    model.eval()
    with torch.no_grad():
        model(BATCHES[kind]())
    model.train()
    losses += train(model, BATCHES[kind], 3)
    if watching is not None:
        watching.stop()
        assert watching.failure is None
    return losses, {name: one.clone() for name, one in model.state_dict().items()}, torch.get_rng_state()


@pytest.mark.parametrize("kind", [Net, Dropped, Residual])
@pytest.mark.parametrize("options", [{}, {"log_freq": 3}, {"sample_n": None, "bins": 100}])
def test_the_same_to_the_bit(watch: Any, kind: type[nn.Module], options: dict[str, Any]) -> None:
    plain, watched = _trained(kind, None), _trained(kind, watch, **options)
    assert watched[0] == plain[0]
    for name, value in plain[1].items():
        assert torch.equal(watched[1][name], value), name
    assert torch.equal(watched[2], plain[2]), "the state of the random generator"


def _facts(model: nn.Module) -> dict[str, Any]:
    """All there is on a model and its modules, hooks among it."""
    found: dict[str, Any] = {}
    for address, module in model.named_modules():
        found[address] = {
            name: (list(value) if name.startswith("_") and isinstance(value, dict) else type(value).__name__)
            for name, value in module.__dict__.items()
        }
        found[f"{address} class"] = sorted(type(module).__dict__)
    for name, parameter in model.named_parameters():
        found[name] = (parameter.requires_grad, list(parameter.__dict__), parameter._backward_hooks,
                       dict(getattr(parameter, "_post_accumulate_grad_hooks", None) or {}))  # fmt: skip
    return found


def test_stop_leaves_no_hook(watch: Any) -> None:
    model = Residual()
    before = _facts(model)
    call, scale = nn.Module.__dict__["_call_impl"], torch.amp.GradScaler.scale
    with watch(model):
        train(model, BATCHES[Residual])
        assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    model.zero_grad()
    assert _facts(model) == before
    assert nn.Module.__dict__["_call_impl"] is call
    assert torch.amp.GradScaler.scale is scale
    assert not scaling._listeners
    assert "__call__" not in Residual.__dict__


def test_an_error_in_forward_goes_through_and_the_watch_goes_on(watch: Any) -> None:
    class Fails(Net):
        fails = False

        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            if self.fails:
                raise ValueError("of the user's")
            return x

    model = Fails()
    watching = watch(model)
    call = nn.Module.__dict__["_call_impl"]
    train(model, BATCHES[Net], 2)
    model.fails = True
    with pytest.raises(ValueError, match="of the user's"):
        model(BATCHES[Net]())
    assert nn.Module.__dict__["_call_impl"] is call
    model.fails = False
    train(model, BATCHES[Net], 2)
    with watching.open() as run:
        assert len(run.rows("fc1/param_grad/weight")) == 4


def test_an_error_in_the_very_first_forward(watch: Any) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(10, 2)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls == 1:
                raise ValueError("of the user's")
            return self.fc(x)

    model = Fails()
    watching = watch(model)
    with pytest.raises(ValueError, match="of the user's"):
        model(BATCHES[Net]())
    assert model.calls == 1, "run once, not once more"
    train(model, BATCHES[Net], 2)
    with watching.open() as run:
        assert len(run.rows("fc/param_grad/weight")) == 2
        assert run.structure() is not None


def test_a_checkpoint_of_a_watched_model(watch: Any, tmp_path: Path) -> None:
    model = Net()
    watch(model)
    train(model, BATCHES[Net], 2)
    again = pickle.loads(pickle.dumps(model))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for other in (again, loaded):
        assert torch.equal(other.fc1.weight, model.fc1.weight)
        assert not other.fc1.weight._backward_hooks
    x = BATCHES[Net]()
    assert torch.equal(again(x), model(x))


def test_an_average_of_a_watched_model(watch: Any) -> None:
    model = Net()
    watching = watch(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    copied = copy.deepcopy(model)
    train(model, BATCHES[Net], 2)
    average.update_parameters(model)
    train(copied, BATCHES[Net], 3)
    with watching.open() as run:
        assert len(run.rows("fc1/param_grad/weight")) == 2, "a copy is not watched"


def test_what_holds_the_watch_can_be_copied_and_pickled(watch: Any) -> None:
    watching = watch(Net())
    assert copy.deepcopy({"trainer": watching})["trainer"] is watching
    assert pickle.loads(pickle.dumps({"trainer": watching})) == {"trainer": None}


def test_a_model_that_is_gone_takes_its_watch_along(watch: Any) -> None:
    class Brief(Net):
        pass

    model = Brief()
    watching = watch(model)
    train(model, BATCHES[Net], 2)
    watching.flush()
    del model
    gc.collect()
    assert "__call__" not in Brief.__dict__
    watching.stop()


def test_other_models_of_the_same_class_are_not_seen(watch: Any) -> None:
    model, other = Net(), Net()
    watching = watch(model)
    train(other, BATCHES[Net], 5)
    train(model, BATCHES[Net], 2)
    assert watching.step == 1


def test_a_model_that_changes_while_it_is_watched(watch: Any) -> None:
    """A layer is exchanged, one is added, a frozen one thawed."""
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))
    model[0].requires_grad_(False)
    watching = watch(model)
    train(model, BATCHES[Net], 3)
    model[2] = nn.Linear(10, 4)
    model.append(nn.Linear(4, 4))
    model[0].requires_grad_(True)
    train(model, BATCHES[Net], 3)
    with watching.open() as run:
        assert run.rows("3/param_grad/weight").steps.tolist() == [3, 4, 5]
        assert run.rows("0/param_grad/weight").steps.tolist() == [3, 4, 5]
        assert run.rows("2:1/output_grad/0").steps.tolist() == list(range(6))
        assert {module["address"] for module in run.structure()["modules"]} == {"", "0", "1", "2", "3"}  # type: ignore[index]


def test_under_a_recording(watch: Any) -> None:
    import torcheer as tl

    model = Net()
    watching = watch(model)
    train(model, BATCHES[Net], 2)
    history = tl.log_forward_pass(model, torch.randn(5, 10))
    assert len(history.record.calls) == 3
    train(model, BATCHES[Net], 2)
    assert watching.step == 3
