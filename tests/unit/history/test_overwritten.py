"""Contents overwritten after the run: it is said wherever they are asked for, and the rest is as good as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.history.make_history import save_all
from tests.unit.make_record import make_record, small_record
from torcheer.errors import NotSavedError
from torcheer.history import ModelHistory
from torcheer.record import file
from torcheer.record.model import Record

REASON = "it was overwritten in place after the run. Save the history before going on"


class Overwritten(dict[str, Any]):
    """A live store one of whose tensors was written to; like the plainest of stores, it can only be read."""

    def __init__(self, tensors: dict[str, Any], *lost: str) -> None:
        super().__init__(tensors)
        self.lost = lost

    def __getitem__(self, name: str) -> Any:
        if name in self.lost:
            raise NotSavedError(REASON)
        return super().__getitem__(name)


class Knowing(Overwritten):
    """One that says so before it is read."""

    def is_current(self, name: str) -> bool:
        return name not in self.lost


def history_without(store: type[Overwritten], record: Record, label: str) -> ModelHistory:
    tensors = save_all(record)
    layer = ModelHistory(record, {})[label]
    return ModelHistory(record, store(tensors, record.saved[layer.op.outputs[0].value]))


@pytest.mark.parametrize("store", [Overwritten, Knowing])
def test_print_says_why(store: type[Overwritten]) -> None:
    history = history_without(store, small_record(), "conv2d_1")
    assert f"\n\t\tnot saved: {REASON}\n" in str(history["conv2d_1"])
    assert "not saved" not in str(history["linear_1"])
    assert str(history)


@pytest.mark.parametrize(
    ("store", "more"), [(Overwritten, ""), (Knowing, ". Print the layer for what is known of it.")]
)
def test_reading_names_the_layer(store: type[Overwritten], more: str) -> None:
    history = history_without(store, small_record(), "conv2d_1")
    with pytest.raises(NotSavedError) as caught:
        history["conv2d_1"].tensor_contents  # noqa: B018
    assert str(caught.value) == f"The contents of conv2d_1_1 are not kept: {REASON}{more}"


def test_has_contents() -> None:
    history = history_without(Knowing, small_record(), "conv2d_1")
    assert not history["conv2d_1"].has_contents
    assert history["linear_1"].has_contents
    assert repr(history["conv2d_1"]).endswith("not saved>")
    assert "7 tensors (3.3 KiB) computed in forward pass; 6 tensors (2.3 KiB) saved." in str(history)


@pytest.mark.parametrize("store", [Overwritten, Knowing])
def test_save_keeps_the_others(store: type[Overwritten], tmp_path: Path) -> None:
    history = history_without(store, small_record(), "conv2d_1")
    history.save(tmp_path / "run.tch")
    again = ModelHistory(*file.read(tmp_path / "run.tch"))
    assert [view.label for view in again if not view.has_contents] == ["conv2d_1_1"]
    assert f"\n\t\tnot saved: {REASON}\n" in str(again["conv2d_1"])
    with pytest.raises(NotSavedError, match=r"^The contents of conv2d_1_1 are not kept: it was overwritten"):
        again["conv2d_1"].tensor_contents  # noqa: B018


@pytest.mark.parametrize(
    ("store", "said"), [(Overwritten, "The gradient of {} is not kept: "), (Knowing, "{} has no gradient: ")]
)
def test_gradients(store: type[Overwritten], said: str) -> None:
    record = make_record()
    tensors = save_all(record)
    lost = [gradient.payload for gradient in record.gradients if gradient.payload is not None]
    history = ModelHistory(record, store({**tensors, **dict.fromkeys(lost)}, *lost))
    for view, name in ((history["linear_1"], "linear_1_6"), (history.params["classifier.bias"], "classifier.bias")):
        with pytest.raises(NotSavedError) as caught:
            view.gradient  # noqa: B018
        assert str(caught.value) == said.format(name) + REASON
    assert "Gradient: shape=(1, 10)" in str(history["linear_1"])
