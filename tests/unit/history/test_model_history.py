"""The history as a whole: its lists, its backward pass, its modules and params."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.history.make_history import (
    FakeSession,
    bare_history,
    nested_record,
    saved_history,
    shared_record,
)
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.errors import CaptureError, LookupKeyError, NotSavedError
from torcheer.history import ModelHistory, Session
from torcheer.record import file
from torcheer.record.model import Record


class Untouchable:
    """Stands for a record that must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"read .{name}")


def test_making_a_history_reads_nothing() -> None:
    ModelHistory(Untouchable(), Untouchable())  # type: ignore[arg-type]


def test_a_live_record_is_asked_for_when_it_is_read_and_not_before() -> None:
    record = small_record()
    asked: list[bool] = []

    def read() -> Record:
        asked.append(True)
        return record

    history = ModelHistory(read, {})
    assert asked == []
    assert len(history) == 7
    assert history.record is record
    assert asked


def test_lists() -> None:
    history = bare_history(loop_record())
    assert len(history) == 5
    assert [view.label for view in history] == [
        "input_1_0",
        "add_1_1:1",
        "add_1_1:2",
        "add_1_1:3",
        "output_1_2",
    ]
    assert history.layer_labels == ["input_1_0", "add_1_1", "output_1_2"]
    assert history.op_labels == ["input_1_0:1", "add_1_1:1", "add_1_1:2", "add_1_1:3", "output_1_2:1"]
    assert [layer.layer_label for layer in history.layers] == history.layer_labels
    assert history.layers[-1] == history[-1]
    assert history.layers[1:] == [history["add_1"], history[-1]]
    assert (history.inputs, history.outputs) == ((history[0],), (history[-1],))
    assert (history.is_recurrent, history.is_branching) == (True, False)
    assert len(history.aten) == 3
    assert len(history.calls) == 1


def test_completion() -> None:
    history = bare_history(loop_record())
    assert history._ipython_key_completions_() == [
        "input_1_0",
        "add_1_1",
        "output_1_2",
        "add_1_1:1",
        "add_1_1:2",
        "add_1_1:3",
    ]
    assert bare_history(small_record())._ipython_key_completions_()[-5:] == [
        "features",
        "features.0",
        "features.1",
        "features.2",
        "classifier",
    ]
    assert {"layers", "log_backward", "save"} <= set(dir(history))
    assert not [name for name in dir(history) if name.startswith("_")]


def test_modules() -> None:
    history = bare_history(small_record())
    assert list(history.modules) == ["", "features", "features.0", "features.1", "features.2", "classifier"]
    conv = history.modules["features.0"]
    assert (conv.type_name, conv.qualified_type) == ("Conv2d", "torch.nn.modules.Conv2d")
    assert (conv.extra, conv.training) == ("3, 4, kernel_size=(3, 3)", True)
    assert [param.address for param in conv.params] == ["features.0.weight", "features.0.bias"]
    assert [call.label for call in conv.calls] == ["features.0:1"]
    assert conv.output_ops == (history["conv2d_1"],)
    assert conv.parent == history.modules["features"]
    assert [child.address for child in history.modules["features"].children] == [
        "features.0",
        "features.1",
        "features.2",
    ]
    assert history.modules[""].attributes["num_classes"] == 10
    assert history.modules["features"].time_ns == 3000
    with pytest.raises(LookupKeyError) as caught:
        history.modules["feature.0"]
    assert str(caught.value) == (
        "There is no module 'feature.0' in this model. Did you mean 'features.0', 'features.2', "
        "'features.1', 'features'?"
    )
    assert repr(history.modules).startswith("<6 modules: '', 'features', 'features.0'")


def test_aliases_are_found_but_not_listed() -> None:
    history = bare_history(shared_record())
    assert list(history.modules) == ["", "cell"]
    assert history.modules["tied"] == history.modules["cell"]
    assert "tied" in history.modules
    assert "nothing" not in history.modules


def test_module_text() -> None:
    assert str(bare_history(small_record()).modules["features"]) == (
        "Module features: Sequential()\n"
        "\tMode: training\n"
        "\tParams: 0 of its own (0 B)\n"
        "\tCalls: 1, 3.0 µs\n"
        "\tOutputs: maxpool2d_1_3\n"
        "\tModules inside: features.0, features.1, features.2"
    )


def test_calls() -> None:
    history = bare_history(small_record())
    root, features = history.calls[0], history.calls[1]
    assert (root.label, root.parent, features.label, features.parent) == ("", None, "features:1", root)
    assert [view.label for view in features.ops] == ["conv2d_1_1", "relu_1_2", "maxpool2d_1_3"]
    assert [call.label for call in features.children] == ["features.0:1", "features.1:1", "features.2:1"]
    assert features.output_ops == (history["features"],)
    assert features.module == history.modules["features"]
    assert repr(features) == "<CallView features:1: 3 operations, 3.0 µs>"
    assert [view.label for view in bare_history(nested_record()).calls[0].ops] == [
        "input_1_0",
        "double_1_1",
        "relu_1_2",
        "output_1_3",
    ]


def test_params() -> None:
    history = bare_history(small_record())
    weight = history.params["features.0.weight"]
    assert (weight.shape, weight.num_elements, weight.size_bytes) == ((4, 3, 3, 3), 108, 432)
    assert weight.used_by == (history["conv2d_1"],)
    assert repr(weight) == "<ParamView features.0.weight: (4, 3, 3, 3) float32, param>"
    with pytest.raises(NotSavedError) as caught:
        weight.gradient  # noqa: B018
    assert str(caught.value) == (
        "features.0.weight has no gradient: no backward pass was recorded. Call history.log_backward(loss)"
    )


def test_a_frozen_param_has_no_gradient() -> None:
    record = make_record()
    record.params[0].requires_grad = False
    with pytest.raises(NotSavedError, match="has no gradient: it does not require grad"):
        bare_history(record).params["features.0.weight"].gradient  # noqa: B018
    with pytest.raises(NotSavedError, match="the recording does not have it"):
        bare_history(record).params["features.0.bias"].gradient  # noqa: B018
    record.gradients = []
    with pytest.raises(NotSavedError, match="the recorded backward pass did not reach it"):
        bare_history(record).params["features.0.bias"].gradient  # noqa: B018


def live(record: Record) -> tuple[ModelHistory, FakeSession]:
    session = FakeSession()
    typed: Session = session
    return ModelHistory(record, {}, typed), session


def test_log_backward_runs_the_loss() -> None:
    history, session = live(small_record())
    loss = object()
    assert history.log_backward(loss, retain_graph=True) is None
    assert session.losses == [(loss, {"retain_graph": True})]


def test_log_backward_without_a_loss_watches() -> None:
    history, session = live(small_record())
    assert history.log_backward() is session.watch
    assert session.losses == []


def test_log_backward_that_cannot_work() -> None:
    history, session = live(small_record())
    with pytest.raises(CaptureError, match=r"^The loss is None\. Pass the tensor to run backward from"):
        history.log_backward(None)
    with pytest.raises(TypeError, match="got retain_graph without a loss"):
        history.log_backward(retain_graph=True)
    with pytest.raises(CaptureError) as caught:
        bare_history(small_record()).log_backward(object())
    assert str(caught.value) == (
        "A recording from a file has no autograd graph to run backward through. "
        "Record the model again with log_forward_pass, then call log_backward on that history."
    )
    assert session.losses == []


def test_output() -> None:
    history, _ = live(small_record())
    assert history.output == "what the model returned"
    with pytest.raises(NotSavedError, match=r"Read its tensors from history\.outputs"):
        bare_history(small_record()).output  # noqa: B018
    history.record.run.error = "ValueError: no"
    with pytest.raises(NotSavedError) as caught:
        history.output  # noqa: B018
    assert str(caught.value) == (
        "The run returned nothing: it raised ValueError: no. Read what it made until then: history[-1]."
    )


def test_save_hands_the_record_to_the_file_room(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(file, "write", lambda *args, **kwargs: asked.append(SimpleNamespace(a=args, k=kwargs)))
    history = bare_history(small_record())
    history.save("run.tch", overwrite=True)
    assert asked[0].a == (history.record, history.payloads, "run.tch")
    assert asked[0].k == {"overwrite": True}


def test_a_saved_history_prints_the_same_when_read_again(tmp_path: Path) -> None:
    history = saved_history(make_record())
    history.save(tmp_path / "run.tch")
    again = ModelHistory(*file.read(tmp_path / "run.tch"))
    assert str(again) == str(history)
    assert again["conv2d_1"].tensor_contents.tolist() == history["conv2d_1"].tensor_contents.tolist()


def test_diagnostics() -> None:
    assert [entry.code for entry in bare_history(make_record()).diagnostics] == [
        "unknown-origin",
        "thread-not-recorded",
    ]
