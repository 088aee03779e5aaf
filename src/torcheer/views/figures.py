"""Figures of a run that take a moment to have: statistics of what was kept, norms of gradients, FLOPs of operations.

Drawing a run needs none of them, so they are read when somebody asks: for the page after its first picture, and
for a file that has to have everything in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torcheer.history import ModelHistory
from torcheer.profiling.build import build as profile_of
from torcheer.views.statistics import COLUMNS, array_of, describe, numbers_of

LIMIT = 1 << 30  # bytes of kept tensors: more would take minutes to read
GRADIENT_COLUMNS = ("value", "norm", "num_nan", "num_inf")
Table = dict[str, Any]


def nothing() -> dict[str, Table]:
    """Return the tables without a row."""
    return {
        "statistics": _table((), ("value", *COLUMNS)),
        "gradient_norms": _table((), GRADIENT_COLUMNS),
        "flops": _table((), ("op", "flops")),
    }


def figures_of(history: ModelHistory) -> dict[str, Any]:
    """Return the tables, and under "reason" why those of tensors are empty, where they had to be left out."""
    record = history.record
    found = {**nothing(), "flops": _flops(history), "reason": None}
    size = sum(record.values[value].size_bytes or 0 for value in record.saved)
    if size > LIMIT:
        return {**found, "reason": "More than 1 GiB was kept: its statistics are read one tensor at a time."}
    rows = []
    for value in record.values:
        array = array_of(history, value)
        if array is not None:
            rows.append({"value": value.index, **describe(array)})
    found["statistics"] = _table(rows, ("value", *COLUMNS))
    found["gradient_norms"] = _table(_gradients(history), GRADIENT_COLUMNS)
    return found


def _table(rows: Any, columns: tuple[str, ...]) -> Table:
    return {"num": len(rows), **{name: [row[name] for row in rows] for name in columns}}


def _gradients(history: ModelHistory) -> list[dict[str, Any]]:
    rows = []
    contents = history.contents
    for value in history.record.values:
        gradient = contents.gradient_of(value.index)
        if gradient is None or not contents.has_gradient(gradient):
            continue
        array = numbers_of(contents.read_gradient(gradient), gradient.dtype)
        if array is None:
            continue
        is_nan, is_inf = np.isnan(array), np.isinf(array)
        finite = array[~(is_nan | is_inf)].astype(np.float64)
        norm = float(np.sqrt((finite**2).sum()))
        rows.append({"value": value.index, "norm": norm, "num_nan": int(is_nan.sum()), "num_inf": int(is_inf.sum())})
    return rows


def _flops(history: ModelHistory) -> Table:
    """FLOPs of operations, forward. Those with a call whose formula nobody knows are left out."""
    if not history.record.aten:
        return _table((), ("op", "flops"))
    known = [row for row in profile_of(history.record).ops if row.figures.num_aten and not row.figures.num_uncounted]
    return _table([{"op": row.op, "flops": row.figures.flops_forward} for row in known], ("op", "flops"))
