"""Statistics and histograms of samples, against numpy one tensor at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torcheer.store.schema import COLUMN
from torcheer.store.summary import Samples, summarise


def _one(values: object, bins: int = 30, reject: float = 0.0) -> tuple[dict[str, float], np.ndarray]:
    stats, counts = summarise(Samples.of([np.asarray(values, np.float32)]), bins, reject)
    return {name: float(stats[0, place]) for name, place in COLUMN.items()}, counts[0]


def test_against_numpy() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(3, 2, size).astype(np.float32) for size in (1, 2, 7, 100, 999, 5000)]
    stats, counts = summarise(Samples.of(arrays), 30, 0.0)
    for row, histogram, values in zip(stats, counts, arrays, strict=True):
        for name, expected in {
            "count": len(values), "mean": values.mean(), "std": values.std(), "min": values.min(),
            "max": values.max(), "zeros": 0, "nan": 0, "inf": 0, "low": values.min(), "high": values.max(),
            "below": 0, "above": 0,
        }.items():  # fmt: skip
            assert row[COLUMN[name]] == pytest.approx(expected, rel=1e-4, abs=1e-6), name
        assert histogram.sum() == len(values)
    assert np.isnan(stats[:, COLUMN["norm"]]).all(), "only the whole tensor tells"


def test_outliers_are_those_farthest_from_the_median() -> None:
    values = np.concatenate([np.linspace(-1, 1, 90), np.full(7, 100.0), np.full(3, -50.0)])
    found, counts = _one(values, reject=0.1)
    assert (found["low"], found["high"]) == pytest.approx((-1, 1))
    assert (found["below"], found["above"]) == (3, 7), "counted, not lost"
    assert counts.sum() == 90
    assert (found["min"], found["max"]) == (-50, 100)


def test_an_infinity_or_nan_is_counted_and_the_rest_is_shown() -> None:
    found, counts = _one([1, 2, 3, np.nan, np.inf, -np.inf, np.inf])
    assert (found["nan"], found["inf"], found["count"]) == (1, 3, 7)
    assert (found["mean"], found["min"], found["max"]) == (2, 1, 3)
    assert counts.sum() == 3


def test_nothing_finite() -> None:
    found, counts = _one([np.nan, np.inf])
    assert np.isnan([found[name] for name in ("mean", "std", "min", "max", "low", "high", "zeros")]).all()
    assert counts.sum() == 0


def test_equal_values_and_zeros() -> None:
    found, counts = _one(np.zeros(50))
    assert (found["zeros"], found["low"], found["high"]) == (1, 0, 0)
    assert counts[0] == 50


def test_values_closer_than_a_float_can_divide() -> None:
    _, counts = _one([0.0, 3e-43], bins=2)
    assert counts.tolist() == [1, 1]
    _, counts = _one([-3e38, 0, 3e38], bins=3)
    assert counts.tolist() == [1, 1, 1]


def test_outliers_around_one_value() -> None:
    found, counts = _one([-5.0, *[2.0] * 20, 9.0], reject=0.1)
    assert (found["low"], found["high"], found["below"], found["above"]) == (2, 2, 1, 1)
    assert counts.tolist() == [20] + [0] * 29


def test_saturated_share() -> None:
    stats, _ = summarise(Samples.of([[-1, -0.99, 0, 1], [0, 0.5, 0.5, 0.5]]), 30, 0.1, {0: (-1, 1), 1: (0, 1)})
    assert stats[:, COLUMN["saturated"]].tolist() == [0.75, 0.25]


def test_no_tensors() -> None:
    stats, counts = summarise(Samples.of([]), 30, 0.1)
    assert len(stats) == len(counts) == 0


@settings(max_examples=60, deadline=None)
@example([[float(np.finfo(np.float32).max)]], 0.0, 2)
@given(
    st.lists(st.lists(st.floats(width=32), max_size=40), max_size=6),
    st.floats(0, 0.99),
    st.integers(2, 50),
)
def test_any_floats(arrays: list[list[float]], reject: float, bins: int) -> None:
    """Ends for any values there are, and accounts for every one of them."""
    with np.errstate(all="raise", under="ignore"):
        stats, counts = summarise(Samples.of(arrays), bins, reject)
    for row, histogram, values in zip(stats, counts, arrays, strict=True):
        shown = histogram.sum() + sum(np.nan_to_num(row[COLUMN[name]]) for name in ("below", "above"))
        missing = np.nan_to_num(row[COLUMN["nan"]]) + np.nan_to_num(row[COLUMN["inf"]])
        assert shown + missing == len(values)
