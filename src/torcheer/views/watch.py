"""A watched run as the page draws it: what it is, its series over steps, its scalars, what went wrong.

``build`` is all of a run, for one file. A server hands out the parts: ``overview``, then ``rows_of`` each series that
somebody looks at, and after a change only what is new. ``docs/design/explorer.md`` describes every key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torcheer.store import STATISTICS, Rows, Run

SCHEMA = "torcheer.watch/1"
COLUMNS_IN_FILE = 100  # rows of each series in one file


def build(run: Run) -> dict[str, Any]:
    """Return all there is to show of a run, each series at no more steps than a picture has columns."""
    return {
        **overview(run),
        "rows": {str(one.id): rows_of(run, one.id, columns=COLUMNS_IN_FILE) for one in run.series},
        "scalars": {name: scalars_of(run, name) for name in run.scalar_names},
    }


def overview(run: Run) -> dict[str, Any]:
    """Return what a run is and has, without the numbers themselves."""
    cursor = run.follow(None).cursor  # first: whatever comes while the rest is read is then told again
    newest = {model: version for version, model, _ in run.structure_versions}
    return {
        "schema": SCHEMA,
        "title": run.name,
        "folder": run.folder.name,
        "is_live": run.is_live,
        "ranks": run.ranks,
        "sessions": run.sessions,
        "state": run.state,
        "lanes": run.lanes,
        "last_step": run.last_step,
        "structures": [run.structure(version=version) for version in newest.values()],
        "series": [one.facts() for one in run.series],
        "scalar_names": run.scalar_names,
        "alerts": [alert._asdict() for alert in run.alerts()],
        "notes": [note._asdict() for note in run.notes()],
        "cursor": cursor,
    }


def rows_of(run: Run, series: int, since: int | None = None, columns: int | None = None) -> dict[str, Any]:
    """Return histograms and statistics of one series over steps: a row for each step, or for several."""
    rows = run.rows(run.find(series), since=since, columns=columns)
    return {"series": series, **_plain(rows)}


def scalars_of(run: Run, name: str, since: int | None = None) -> dict[str, Any]:
    """Return a number over the steps it was logged at."""
    scalars = run.scalars(name, since=since)
    return {"steps": scalars.steps.tolist(), "values": _short(scalars.values), "times": scalars.times.tolist()}


def at_step(run: Run, step: int | None, lane: str) -> dict[str, Any]:
    """Return one statistic of all series at a step: what a graph is coloured by."""
    rows = run.at(step, lane)
    if rows is None:
        return {"step": None, "series": [], "stats": {}}
    stats = rows.stats[rows.rows]
    columns = {name: _short(stats[:, place]) for place, name in enumerate(STATISTICS)}
    return {"step": rows.step, "series": rows.series.tolist(), "stats": columns}


def _plain(rows: Rows) -> dict[str, Any]:
    return {
        "steps": rows.steps.tolist(),
        "last_steps": rows.last_steps.tolist(),
        "stats": {name: _short(rows[name]) for name in STATISTICS},
        "counts": rows.counts.tolist(),
    }


def _short(numbers: np.ndarray[Any, Any]) -> list[float | None]:
    """Six digits say all that float32 knows; a NaN, which stands for "does not apply", is None."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in numbers.tolist()]
