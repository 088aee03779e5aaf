"""A run as a table of another tool."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.store.make_run import make_run
from torcheer.errors import MissingExtraError, StoreError
from torcheer.store import STATISTICS, Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.open(make_run(tmp_path_factory.mktemp("runs") / "a-run", 140))


def test_csv(run: Run, tmp_path: Path) -> None:
    run.export(tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    rows = run.rows("fc1:1/output/0")
    own = [row for row in found if row["name"] == "fc1:1/output/0" and row["lane"] == "train"]
    assert [int(row["step"]) for row in own] == list(range(140))
    assert [float(row["mean"]) for row in own] == pytest.approx(rows["mean"].tolist())
    assert [int(word) for word in own[3]["counts"].split()] == rows.counts[3].tolist()
    signal = [abs(float(row["mean"])) / float(row["std"]) for row in own]
    assert [float(row["signal"]) for row in own] == pytest.approx(signal)
    assert own[0]["dead"] == "", "what does not apply"
    assert set(STATISTICS) <= set(own[0])
    assert len(found) == sum(len(run.rows(one)) for one in run.series)


def test_parquet(run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run.export(tmp_path / "run.parquet")
    table = parquet.read_table(
        tmp_path / "run.parquet", filters=[("name", "=", "fc1:1/output/0"), ("lane", "=", "train")]
    )
    rows = run.rows("fc1:1/output/0")
    assert table["step"].to_pylist() == list(range(140))
    assert table["counts"].to_pylist() == rows.counts.tolist()
    assert table["norm"].to_pylist() == pytest.approx(rows["norm"].tolist())


def test_scalars(run: Run, tmp_path: Path) -> None:
    run.export(tmp_path / "scalars.csv", table="scalars")
    with (tmp_path / "scalars.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["name"] == "loss"]
    assert [float(row["value"]) for row in found] == pytest.approx(run.scalars("loss").values.tolist())


def test_what_cannot_be_written(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(StoreError, match=r"run.xls: a run is exported as \.csv or \.parquet"):
        run.export(tmp_path / "run.xls")
    with pytest.raises(StoreError, match="takes one of 'series', 'scalars'"):
        run.export(tmp_path / "run.csv", table="layers")
    with pytest.raises(StoreError, match="cannot be written"):
        run.export(run.folder / "run.json" / "run.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        run.export(tmp_path / "run.parquet")
    assert not list(tmp_path.iterdir())
