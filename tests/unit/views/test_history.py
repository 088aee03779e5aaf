"""A run as plain data: what the page draws."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.history.make_history import nested_record, shared_record, split_record
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.history import ModelHistory
from torcheer.record.model import Record
from torcheer.views.history import build
from torcheer.views.statistics import NUM_BINS, describe

RECORDS = [small_record, loop_record, make_record, nested_record, shared_record, split_record]


def data_of(record: Record, **payloads: object) -> dict[str, dict[str, list[object]]]:
    return build(ModelHistory(record, payloads))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", RECORDS)
def test_every_table_is_whole_and_json(make: Callable[[], Record]) -> None:
    data = json.loads(json.dumps(data_of(make()), allow_nan=False))
    for name, table in data.items():
        if name not in ("schema", "run"):
            assert {len(column) for column in table.values() if isinstance(column, list)} <= {table["num"]}, name


@pytest.mark.parametrize("make", RECORDS)
def test_indices_point_into_their_tables(make: Callable[[], Record]) -> None:
    data = data_of(make())
    references = {
        ("ops", "function"): "functions",
        ("ops", "call"): "calls",
        ("ops", "layer"): "layers",
        ("ops", "site"): "sites",
        ("edges", "from"): "ops",
        ("edges", "to"): "ops",
        ("edges", "value"): "values",
        ("aten", "owner"): "ops",
        ("calls", "module"): "modules",
        ("values", "type"): "types",
        ("values", "producer"): "ops",
        ("sites", "source"): "frames",
    }
    for (table, column), other in references.items():
        num = data[other]["num"]
        assert all(-1 <= index < num for index in data[table][column]), (table, column)  # type: ignore[operator]


def test_labels_and_edges_are_those_of_the_listing() -> None:
    data = data_of(small_record())
    assert data["ops"]["label"][:3] == ["input_1_0", "conv2d_1_1", "relu_1_2"]
    pairs = list(zip(data["edges"]["from"], data["edges"]["to"], strict=True))
    assert pairs[:2] == [(0, 1), (1, 2)]
    assert data["types"]["shape"][data["values"]["type"][data["ops"]["outputs"][1][0]]] == [1, 4, 8, 8]  # type: ignore


def test_edges_of_what_is_inside_an_op_are_that_op_s() -> None:
    data = data_of(nested_record())
    pairs = list(zip(data["edges"]["from"], data["edges"]["to"], strict=True))
    assert pairs == [(0, 1), (1, 4), (4, 5)]
    assert data["ops"]["layer"].count(-1) == 2


def test_statistics_are_of_finite_numbers_and_count_the_others() -> None:
    found = describe(np.array([1.0, 3.0, 0.0, math.nan, math.inf, -math.inf], dtype=np.float32))
    assert (found["num_elements"], found["num_nan"], found["num_inf"], found["num_zero"]) == (6, 1, 2, 1)
    assert (found["min"], found["max"]) == (0.0, 3.0)
    assert found["mean"] == pytest.approx(4 / 3)
    assert len(found["histogram"]) == NUM_BINS
    assert (sum(found["histogram"]), found["histogram"][0], found["histogram"][-1]) == (3, 1, 1)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), np.float32),
        np.full(5, math.nan),
        np.full((2, 2), 7, np.int64),
        np.array([-3e38, 3e38], np.float32),
        np.array([-1.7e308, 1.7e308]),
        np.array([True, False]),
        np.array(2.5, np.float16),
        np.array([5e-324, 0.0]),
    ],
)
def test_statistics_of_odd_arrays_are_json(array: np.ndarray) -> None:
    found = json.loads(json.dumps(describe(array), allow_nan=False))  # no NaN, no Infinity
    counted = found["num_elements"] - found["num_nan"] - found["num_inf"]
    assert (sum(found["histogram"]) if found["histogram"] else 0) == counted
    assert (found["min"] is None) == (counted == 0)
