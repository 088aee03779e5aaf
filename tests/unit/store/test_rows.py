"""Rows packed, unpacked and merged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torcheer.store.rows import Rows, merged, pack_chunk, pack_step, rebinned, unpack_chunk, unpack_step
from torcheer.store.schema import COLUMN, STATISTICS
from torcheer.store.series import StepRows


def _rows(num: int, bins: int = 30, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    stats = np.full((num, len(STATISTICS)), np.nan, np.float32)
    counts = rng.integers(0, 100, (num, bins)).astype(np.uint32)
    middle = rng.normal(size=num)
    for name, values in {
        "count": counts.sum(1), "mean": middle, "std": rng.random(num), "low": middle - 1, "high": middle + 1,
        "min": middle - 2, "max": middle + 2, "norm": rng.random(num), "nan": 1, "inf": 0, "flags": 1,
        "below": 2, "above": 3,
    }.items():  # fmt: skip
        stats[:, COLUMN[name]] = values
    steps = np.arange(num, dtype=np.int64) * 3
    return Rows(steps, steps, stats, counts)


def test_a_step_comes_back() -> None:
    rows = _rows(5)
    step = StepRows(
        "train", 7, 1.5, np.array([3, 1, 2], np.uint32), np.array([0, 4, 4], np.uint32), rows.stats,
        rows.counts.astype(np.uint16),
    )  # fmt: skip
    again = unpack_step("train", 7, 1.5, pack_step(step))
    assert again.series.tolist() == [3, 1, 2]
    assert again.rows.tolist() == [0, 4, 4]
    np.testing.assert_array_equal(again.stats, step.stats)
    np.testing.assert_array_equal(again.counts, step.counts)


@pytest.mark.parametrize("num", [0, 1, 64])
def test_a_chunk_comes_back(num: int) -> None:
    rows = _rows(num)
    again = unpack_chunk(pack_chunk(rows))
    for name in ("steps", "last_steps", "stats", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows, name))


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="not a packed"):
        unpack_chunk(b"nonsense" * 10)
    with pytest.raises(ValueError, match="not a packed"):
        unpack_step("train", 0, 0.0, b"nonsense" * 10)


def test_merged_rows_say_what_the_finer_ones_say_together() -> None:
    rows = _rows(16)
    coarse = merged(rows, 8)
    assert coarse.steps.tolist() == [0, 24]
    assert coarse.last_steps.tolist() == [21, 45]
    assert coarse.counts.sum() == rows.counts.sum(), "no value is lost"
    assert coarse["min"].tolist() == [rows["min"][:8].min(), rows["min"][8:].min()]
    assert coarse["high"][0] == rows["high"][:8].max()
    assert coarse["nan"].tolist() == [8, 8]
    # The std of all values together, from the parts.
    weight = rows["count"][:8] / rows["count"][:8].sum()
    mean = (weight * rows["mean"][:8]).sum()
    std = np.sqrt((weight * (rows["std"][:8] ** 2 + (rows["mean"][:8] - mean) ** 2)).sum())
    assert coarse["std"][0] == pytest.approx(std, rel=1e-4)


def test_what_never_applied_does_not_apply_merged() -> None:
    assert np.isnan(merged(_rows(8), 8)["dead"]).all()


@settings(max_examples=50, deadline=None)
@given(st.floats(-5, 5), st.floats(0, 5), st.floats(0, 3), st.floats(0, 3))
def test_rebinned_keeps_every_count(low: float, width: float, left: float, right: float) -> None:
    counts = np.arange(30)
    new = rebinned(counts, low, low + width, low - left, low + width + right, 30)
    assert new.sum() == pytest.approx(counts.sum())
    assert (new >= -1e-9).all()
