"""A run made of numbers, without a model: for tests, and to look at the explorer with.

python tests/unit/store/make_run.py FOLDER [STEPS] [SECONDS BETWEEN STEPS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.store import STATISTICS, Series, StepRows, Writer
from torcheer.store.schema import COLUMN

BINS = 30
MODULES = (("", "Net"), ("fc1", "Linear"), ("act", "ReLU"), ("fc2", "Linear"))


def structure() -> dict[str, Any]:
    """What ``torcheer.watching.structure`` writes, for a small network."""
    tensor = {"path": "0", "shape": [32, 20], "dtype": "float32"}
    return {
        "modules": [
            {"address": address, "type": kind, "parent": None if not address else "", "extra": "in_features=20"}
            for address, kind in MODULES
        ],
        "calls": [
            {
                "id": place, "module": address, "call": 1, "parent": None if place == 0 else 0, "order": place,
                "inputs": [tensor], "outputs": [tensor], "training": True,
            }
            for place, (address, _) in enumerate(MODULES)
        ],
        "edges": [
            {"parent": 0, "from": "input:0", "to": 1}, {"parent": 0, "from": 1, "to": 2},
            {"parent": 0, "from": 2, "to": 3}, {"parent": 0, "from": 3, "to": "output:0"},
        ],
        "record": None,
    }  # fmt: skip


def series_of(writer: Writer, lane: str = "train") -> list[Series]:
    """Inputs, outputs, parameters and gradients of the network's modules."""
    found = []
    for module, kind in MODULES:
        places = [("input", "0", 1), ("output", "0", 1), ("input_grad", "0", 1), ("output_grad", "0", 1)]
        if kind == "Linear":
            places += [("param", "weight", 0), ("param_grad", "weight", 0), ("param", "bias", 0)]
        for what, path, call in places:
            facts = Series(0, lane, "", module, call, what, path, (32, 20), "float32", "cpu")
            found.append(writer.series(lane, facts.name, lambda n, f=facts: Series(**{**f.__dict__, "id": n})))
    return found


def rows_of(series: list[Series], step: int, lane: str = "train") -> StepRows:
    """Bell curves that drift; numbers that are different for every series and step, and known."""
    num = len(series)
    stats = np.full((num, len(STATISTICS)), np.nan, np.float32)
    place = np.arange(num)
    centre = np.sin(step / 50) + place / 10
    values = {
        "count": 1000, "mean": centre, "std": 1 + place / 100, "min": centre - 3, "max": centre + 3,
        "norm": 10 + place + step / 100, "zeros": 0, "nan": 0, "inf": 0, "low": centre - 2, "high": centre + 2,
        "below": 50, "above": 50, "flags": 1,
    }  # fmt: skip
    for name, value in values.items():
        stats[:, COLUMN[name]] = value
    bell = np.exp(-(np.linspace(-2, 2, BINS) ** 2) / 2)
    counts = np.tile(np.rint(bell * 900 / bell.sum()).astype(np.uint16), (num, 1))
    numbers = np.array([one.id for one in series], np.uint32)
    return StepRows(lane, step, 1_700_000_000.0 + step, numbers, place.astype(np.uint32), stats, counts)


def make_run(folder: Path, num_steps: int = 200, seconds: float = 0.0) -> Path:
    """Write a whole run and return its folder."""
    writer = Writer(folder, facts={"name": folder.name, "model": "Net", "bins": BINS})
    writer.session(0, {"options": {"log_freq": 1}})
    writer.add_structure("", 0, structure())
    series = series_of(writer)
    for step in range(num_steps):
        writer.add_scalars(step, {"loss": float(np.exp(-step / 100)), "lr": 0.1})
        writer.add_step(rows_of(series, step))
        if step == 100:
            outputs = next(one for one in series if one.module == "act" and one.kind == "output")
            writer.add_alert(step, "dead", outputs.id, "act:1/output/0: 90 % of the units are 0 for the whole batch.")
            writer.add_note(step, "compiled", "An example of a note.")
        if step % 50 == 0:
            writer.add_step(rows_of(series_of(writer, "eval"), step, "eval"))
        time.sleep(seconds)
    writer.close()
    return folder


if __name__ == "__main__":
    print(make_run(Path(sys.argv[1]), *(float(word) if "." in word else int(word) for word in sys.argv[2:])))
