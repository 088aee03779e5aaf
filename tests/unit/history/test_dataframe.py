"""The tables of a history as dataframes."""

from __future__ import annotations

import sys

import pandas
import pytest

from tests.unit.history.make_history import saved_history
from tests.unit.make_record import make_record
from torcheer.errors import LookupKeyError, MissingExtraError
from torcheer.history.dataframe import TABLES

ROWS = {"layers": 8, "ops": 10, "modules": 6, "params": 4, "aten": 9}


@pytest.mark.parametrize("kind", TABLES)
def test_every_table(kind: str) -> None:
    frame = saved_history(make_record()).to_dataframe(kind)
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == ROWS[kind]
    assert list(frame) == list(TABLES[kind].columns)
    assert all(column.meaning for column in TABLES[kind].columns.values())


def test_layers_is_the_default() -> None:
    frame = saved_history(make_record()).to_dataframe().set_index("label")
    assert frame.loc["add_1_5", "num_passes"] == 3
    assert frame.loc["add_1_5", "time_ns"] == 3000
    assert frame.loc["conv2d_1_1", "num_params"] == 112
    assert frame.loc["conv2d_1_1", "parents"] == ("input_1_0",)
    assert frame.loc["conv2d_1_1", "shape"] == (1, 4, 8, 8)
    assert frame.loc["conv2d_1_1", "source"] == "/home/user/net.py:554"


def test_ops_have_their_pass() -> None:
    frame = saved_history(make_record()).to_dataframe("ops").set_index("label")
    assert frame.loc["add_1_5:2", "layer"] == "add_1_5"
    assert frame.loc["add_1_5:2", "pass_index"] == 2
    assert frame.loc["linear_1_6", "backward_time_ns"] == 2000


def test_aten_rows_know_their_owner() -> None:
    frame = saved_history(make_record()).to_dataframe("aten")
    assert list(frame.query("phase == 'backward'").owner) == ["linear_1_6"]


def test_unknown_table() -> None:
    with pytest.raises(LookupKeyError) as caught:
        saved_history(make_record()).to_dataframe("layer")
    assert str(caught.value) == (
        "There is no table 'layer'. Did you mean 'layers'? The tables: 'layers', 'ops', 'modules', 'params', 'aten'"
    )


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError) as caught:
        saved_history(make_record()).to_dataframe()
    assert str(caught.value) == (
        "to_dataframe needs the package 'pandas', which is not installed. "
        "Install it with: pip install 'torcheer[pandas]'"
    )
