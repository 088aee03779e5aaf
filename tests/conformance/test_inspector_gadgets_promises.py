"""What Inspector Gadgets could not do, and what bad input does."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl


def inspected(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Any]:
    with tl.InspectorGadgets(model, measure=("memory", "flops", "nan")) as inspector:
        out = model(*args, **kwargs)
        while not isinstance(out, Tensor):
            out = next(iter(out.values())) if isinstance(out, dict) else out[0]
        if out.requires_grad:
            out.sum().backward()
    return next(iter(inspector.to_inspector_gadgets().values()))


def test_lstm_with_its_tuple_of_outputs() -> None:
    info = inspected(nn.LSTM(4, 8), torch.rand(5, 2, 4))["info"]
    assert info["output_shapes"] == [[5, 2, 8], [1, 2, 8], [1, 2, 8]]


class Dicts(nn.Module):
    def forward(self, *, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": batch["a"] + batch["b"]}


def test_dict_inputs_and_outputs_and_no_params() -> None:
    batch = {"a": torch.rand(2, 3, requires_grad=True), "b": torch.rand(2, 3)}
    info = inspected(Dicts(), batch=batch)["info"]
    assert info["input_shapes"] == [[2, 3], [2, 3]]
    assert info["num_parameters"] == 0
    assert info["grad_in_shape"] == [[2, 3]]


def test_sizes_follow_dtypes() -> None:
    info = inspected(nn.Embedding(10, 4).bfloat16(), torch.tensor([[1, 2, 3, 4, 5, 6]]))["info"]
    assert info["input_memory_usage"] == [48 / 1e6]
    assert info["output_memory_usage"] == [48 / 1e6]
    assert info["param_memory_usage"] == info["gradient_memory_usage"] == 80 / 1e6


def test_gradients_are_measured_not_assumed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    data = inspected(model, torch.rand(2, 4))
    assert data["children"]["0"]["info"]["gradient_memory_usage"] == 0
    assert data["children"]["0"]["info"]["num_learnable_parameters"] == 0
    assert data["children"]["1"]["info"]["gradient_memory_usage"] == 80 / 1e6


def test_nan_and_inf_are_told_by_module() -> None:
    class Sick(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (x - x) / (x - x)

    data = inspected(nn.Sequential(nn.Linear(2, 2), Sick(), nn.Identity()), torch.rand(3, 2))
    found = {name: child["info"] for name, child in data["children"].items()}
    assert [found[name]["forward_nan"] for name in "012"] == [False, True, True]
    assert found["0"]["grad_out_nan"]


def test_several_models_and_calls() -> None:
    one, two = nn.Linear(2, 3), nn.Linear(3, 1)
    with tl.InspectorGadgets([one, two]) as inspector:
        two(one(torch.rand(4, 2))).sum().backward()
        one(torch.rand(4, 2))
    assert list(inspector.to_inspector_gadgets()) == ["Linear", "Linear_2", "Linear (call 2)"]
    assert [report.totals.figures.flops_backward for report in inspector.reports] == [48, 48, 0]
    assert inspector.report is inspector.reports[-1]


def test_nothing_of_the_users_is_kept_alive() -> None:
    model = nn.Linear(2, 2)
    with tl.InspectorGadgets(model) as inspector:
        out = model(torch.rand(1, 2))
        out.sum().backward()
        gone = weakref.ref(out)
        del out
        gc.collect()
        assert gone() is None
    assert inspector.report.totals.figures.flops_forward == 8


def test_gradients_and_outputs_are_those_of_a_plain_run() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 2)), torch.rand(3, 4)
    torch.manual_seed(1)
    plain = model(x)
    plain.sum().backward()
    wanted = [param.grad.clone() for param in model.parameters() if param.grad is not None]
    model.zero_grad()
    for measure in (("time", "memory", "flops", "nan"), ("time",), ("nan",)):
        torch.manual_seed(1)
        with tl.InspectorGadgets(model, measure=measure):
            out = model(x)
            out.sum().backward()
        assert torch.equal(out, plain)
        found = [param.grad for param in model.parameters() if param.grad is not None]
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
        model.zero_grad()


def test_optimizer_state_has_a_category_of_its_own() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    with tl.InspectorGadgets(model) as inspector:
        model(torch.rand(2, 8)).sum().backward()
        optimizer.step()
    roles: dict[str, int] = {}
    for event in inspector.report.record.memory:
        roles[event.role] = roles.get(event.role, 0) + event.delta_bytes
    assert roles["gradient"] == 72 * 4
    assert roles["optimizer"] == 2 * 72 * 4 + 2 * 4


# -- bad input -----------------------------------------------------------------------------------------


def test_a_model_that_is_never_called_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "insight"
    with (
        pytest.raises(tl.TorcheerError, match="Nothing was measured: Linear was not called between start"),
        tl.InspectorGadgets(nn.Linear(2, 2), save_file=path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_backward_mode_is_not_needed_and_finish_may_come_twice(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    inspector = tl.InspectorGadgets(model, save_file=tmp_path / "insight")
    inspector.start()
    model(torch.rand(1, 2)).sum().backward()
    inspector.finish()
    written = (tmp_path / "insight.json").stat().st_mtime_ns
    inspector.finish()
    assert (tmp_path / "insight.json").stat().st_mtime_ns == written
    assert inspector.report.totals.figures.flops_backward == 8


@pytest.mark.parametrize("name", ["backward_mode", "finish"])
def test_calls_before_start_are_errors(name: str) -> None:
    with pytest.raises(tl.TorcheerError, match=r"nothing was started yet. Call start\(\)"):
        getattr(tl.InspectorGadgets(nn.Linear(2, 2)), name)()


def test_backward_mode_before_the_call_is_an_error() -> None:
    inspector = tl.InspectorGadgets(nn.Linear(2, 2)).start()
    with pytest.raises(tl.TorcheerError, match="Linear was not called"):
        inspector.backward_mode()
    with pytest.raises(tl.TorcheerError, match="started before"):
        inspector.start()
    with pytest.raises(tl.TorcheerError, match="Nothing was measured"):
        inspector.finish()


def test_an_unwritable_place_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(tl.TorcheerError, match=r"insight\.json cannot be written: .* is not a folder"):
        tl.InspectorGadgets(nn.Linear(2, 2), save_file=tmp_path / "file" / "insight")
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(tl.TorcheerError, match="it is a folder"):
        tl.InspectorGadgets(nn.Linear(2, 2), save_file=tmp_path / "taken")
    for unwritable in ("/", "/proc/nobody/insight"):  # root's permissions say that it may write there
        with pytest.raises(tl.TorcheerError, match=r"cannot be written.*Give"):
            tl.InspectorGadgets(nn.Linear(2, 2), save_file=unwritable)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "insight.json"
    path.write_text("older")
    model = nn.Linear(2, 2)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with (
        pytest.raises(tl.TorcheerError, match=r"cannot be written: No space left on device"),
        tl.InspectorGadgets(model, save_file=path),
    ):
        model(torch.rand(1, 2))
    assert [one.name for one in tmp_path.iterdir()] == ["insight.json"]
    assert path.read_text() == "older"


def test_a_model_that_raises_leaves_a_partial_report_and_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3))
    inspector = tl.InspectorGadgets(model, save_file=tmp_path / "insight")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), inspector:
        model(torch.rand(1, 2))
    assert inspector.report.is_partial
    data = json.loads((tmp_path / "insight.json").read_text())
    assert data["Sequential"]["children"]["0"]["info"]["output_shapes"] == [[1, 3]]
    assert data["Sequential"]["children"]["1"]["info"]["output_shapes"] == []


def test_a_loss_that_raises_in_backward_leaves_the_forward(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    inspector = tl.InspectorGadgets(model, save_file=tmp_path / "insight")
    with pytest.raises(RuntimeError, match="does not require grad"), inspector:
        model(torch.rand(1, 2)).detach().sum().backward()
    assert inspector.report.totals.figures.flops_forward == 8
    assert inspector.report.totals.figures.backward_ns is None


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (3, {}, "was given a int"),
        ([], {}, "was given an empty list"),
        (nn.Linear(1, 1), {"nan": "shout"}, "nan is 'shout'. It takes one of"),
        (nn.Linear(1, 1), {"nan": "stop"}, 'Pass measure="nan" with it'),
        (nn.Linear(1, 1), {"measure": "speed"}, "measure is 'speed'"),
    ],
)
def test_what_it_cannot_do_is_refused(models: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tl.TorcheerError, match=message):
        tl.InspectorGadgets(models, **options)
