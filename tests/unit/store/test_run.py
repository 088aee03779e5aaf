"""A run written and read back: rows at every level, scalars, structure, following, resuming."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.store.make_run import BINS, make_run, rows_of, series_of, structure
from torcheer.errors import LookupKeyError, StoreError
from torcheer.store import Run, Writer, runs_in
from torcheer.store.schema import CHUNK_STEPS

NUM_STEPS = 700  # enough for a window of the second level


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "a-run", NUM_STEPS)


@pytest.fixture
def run(folder: Path) -> Run:
    return Run.open(folder)


def test_what_it_is(run: Run, folder: Path) -> None:
    assert run.name == "a-run"
    assert run.facts["model"] == "Net"
    assert run.lanes == ["eval", "train"]
    assert run.last_step == NUM_STEPS - 1
    assert run.sessions[0]["options"] == {"log_freq": 1}
    assert not run.is_live
    assert runs_in(folder.parent) == [folder]
    assert runs_in(folder) == [folder]


def test_every_step_comes_back(run: Run) -> None:
    one = run.find("fc1:1/output/0")
    rows = run.rows(one)
    assert rows.steps.tolist() == list(range(NUM_STEPS))
    expected = np.sin(np.arange(NUM_STEPS) / 50) + (one.id - 1) / 10
    np.testing.assert_allclose(rows["mean"], expected, rtol=1e-5, atol=1e-6)
    assert rows.counts.shape == (NUM_STEPS, BINS)


@pytest.mark.parametrize(("since", "until"), [(0, 10), (50, 70), (500, 660), (690, None), (None, 65), (2000, None)])
def test_a_part_of_the_steps(run: Run, since: int | None, until: int | None) -> None:
    rows = run.rows("fc1:1/output/0", since, until)
    assert rows.steps.tolist() == list(range(NUM_STEPS))[since:until]


@pytest.mark.parametrize("columns", [10, 50, 200, 5000])
def test_columns_cover_all_steps(run: Run, columns: int) -> None:
    rows = run.rows("fc1:1/output/0", columns=columns)
    assert len(rows) <= columns
    assert rows.steps[0] == 0
    assert rows.last_steps[-1] == NUM_STEPS - 1
    assert (rows.steps[1:] == rows.last_steps[:-1] + 1).all(), "without a gap, without an overlap"
    full = run.rows("fc1:1/output/0")
    assert rows.counts.sum() == full.counts.sum(), "and without losing a value"


def test_one_step_of_all_series(run: Run) -> None:
    newest = run.at()
    assert newest is not None
    assert newest.step == NUM_STEPS - 1
    old = run.at(3)
    assert old is not None
    assert old.step == 3
    assert len(old.series) == len([one for one in run.series if one.lane == "train"])
    np.testing.assert_allclose(old.stats[old.rows][:, 1], np.sin(3 / 50) + np.arange(len(old.series)) / 10, rtol=1e-5)
    assert run.at(10, "no-such-lane") is None


def test_scalars_alerts_notes(run: Run) -> None:
    assert run.scalar_names == ["loss", "lr"]
    loss = run.scalars("loss")
    assert loss.steps.tolist() == list(range(NUM_STEPS))
    np.testing.assert_allclose(loss.values, np.exp(-np.arange(NUM_STEPS) / 100))
    assert len(run.scalars("loss", since=695).steps) == 5
    assert [alert.rule for alert in run.alerts()] == ["dead"]
    assert [note.code for note in run.notes()] == ["compiled"]


def test_names_that_are_not_there(run: Run) -> None:
    with pytest.raises(LookupKeyError, match=r"no series 'fc1:1/output/1'.*fc1:1/output/0"):
        run.find("fc1:1/output/1")
    with pytest.raises(LookupKeyError, match=r"no scalar 'los'.*loss"):
        run.scalars("los")


def test_structure_versions(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run")
    writer.add_structure("", 0, structure())
    changed = structure()
    changed["calls"].append({**changed["calls"][1], "id": 9, "call": 2})
    writer.add_structure("", 40, changed)
    writer.close()
    run = Run.open(tmp_path / "run")
    assert run.structure_versions == [(1, "", 0), (2, "", 40)]
    newest, first = run.structure(), run.structure(version=1)
    assert newest is not None
    assert first is not None
    assert (len(newest["calls"]), len(first["calls"])) == (5, 4)
    assert run.structure("another") is None


def test_following(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert not run.follow().anything
    series = series_of(writer)
    for step in range(10):
        writer.add_step(rows_of(series, step))
    writer.flush()
    change = run.follow()
    assert (change.steps, change.series, change.last_step) == ({"train": 0}, True, 9)
    assert not run.follow(change.cursor).anything
    writer.add_scalars(10, {"loss": 1.0})
    writer.add_step(rows_of(series, 10))
    writer.flush()
    change = run.follow(change.cursor)
    assert (change.steps, change.series, change.scalars) == ({"train": 10}, False, True)
    for step in range(11, 11 + 3 * CHUNK_STEPS):
        writer.add_step(rows_of(series, step))
    writer.flush()
    assert run.follow(change.cursor).steps["train"] <= 11, "what was compacted meanwhile is new as well"
    with pytest.raises(StoreError, match="is no cursor"):
        run.follow("nonsense")
    writer.close()


def test_going_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 140)
    writer = Writer(folder)
    assert writer.last_step() == 139
    assert writer.session(140, {}) == 2
    series = series_of(writer)
    for step in range(140, 150):
        writer.add_step(rows_of(series, step))
    writer.close()
    run = Run.open(folder)
    assert run.rows("fc1:1/output/0").steps.tolist() == list(range(150))
    assert len({one.name for one in run.series}) == len([one for one in run.series if one.lane == "train"])


@pytest.mark.parametrize("step", [0, 63, 64, 100, 511, 512, 650])
def test_forgetting_from_a_step_on(folder: Path, tmp_path: Path, step: int) -> None:
    again = Path(shutil.copytree(folder, tmp_path / "run"))
    writer = Writer(again)
    writer.drop_from(step)
    series = series_of(writer)
    for number in range(step, step + 80):
        writer.add_step(rows_of(series, number))
    writer.close()
    run = Run.open(again)
    assert run.rows("fc1:1/output/0").steps.tolist() == list(range(step + 80))
    coarse = run.rows("fc1:1/output/0", columns=20)
    assert (coarse.steps[1:] == coarse.last_steps[:-1] + 1).all()
    assert coarse.last_steps[-1] == step + 79
    assert (run.scalars("loss").steps < step).all()


def test_the_size_is_bounded(tmp_path: Path) -> None:
    bound = 150_000
    writer = Writer(tmp_path / "run", max_size_bytes=bound)
    series = series_of(writer)
    for step in range(1400):
        writer.add_step(rows_of(series, step))
    writer.close()
    # Beside what is kept: up to 128 steps that wait to become chunks.
    tail = 128 * len(series) * 140
    assert (tmp_path / "run" / "rank-0.sqlite").stat().st_size < bound + 2 * tail
    run = Run.open(tmp_path / "run")
    rows = run.rows("fc1:1/output/0")
    assert rows.steps[0] == 0, "the beginning is still there, coarser"
    assert rows.last_steps[-1] == 1399
    assert rows.last_steps[0] > rows.steps[0]
    assert (rows.steps[1:] == rows.last_steps[:-1] + 1).all()
    assert run.at(5) is not None


def test_bytes_per_step_and_series(tmp_path: Path) -> None:
    """At most 100 bytes for each logged step and watched tensor, histogram and statistics together."""
    num_steps, rng = 1000, np.random.default_rng(0)
    writer = Writer(tmp_path / "run")
    series = series_of(writer)
    for step in range(num_steps):
        rows = rows_of(series, step)
        rows.stats += rng.normal(0, 0.01, rows.stats.shape).astype(np.float32)
        rows.counts[:] = rng.poisson(rows.counts)
        writer.add_step(rows)
    writer.close()
    size = (tmp_path / "run" / "rank-0.sqlite").stat().st_size
    assert size / num_steps / len(series) <= 100
