"""A watched run as the page draws it: what it is, its series over steps, its scalars, what went wrong.

``build`` is all of a run, for one file. A server hands out the parts: ``overview``, then ``rows_of`` each series that
somebody looks at, and after a change only what is new. ``docs/design/explorer.md`` describes every key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
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


def scalars_of(run: Run, name: str, since: int | None = None, columns: int | None = None) -> dict[str, Any]:
    """Return a number over the steps it was logged at.

    columns: of so many stretches only the least, the greatest and the first NaN of each: what a curve is drawn from.
    """
    scalars = run.scalars(name, since=since)
    kept = slice(None) if columns is None else _extremes(scalars.values, columns)
    return {
        "steps": scalars.steps[kept].tolist(),
        "values": _short(scalars.values[kept]),
        "times": scalars.times[kept].tolist(),
    }


def at_step(
    run: Run, step: int | None, lane: str, names: Sequence[str] = STATISTICS, kind: str | None = None
) -> dict[str, Any]:
    """Return statistics of all series, or of those of a kind, at a step: what a graph is coloured by."""
    rows = run.at(step, lane)
    if rows is None:
        return {"step": None, "series": [], "stats": {}}
    series, stats = rows.series, rows.stats[rows.rows]
    if kind is not None:
        wanted = np.isin(series, [one.id for one in run.series if one.kind == kind])
        series, stats = series[wanted], stats[wanted]
    columns = {name: _short(stats[:, place]) for place, name in enumerate(STATISTICS) if name in names}
    return {"step": rows.step, "series": series.tolist(), "stats": columns}


def _extremes(values: np.ndarray[Any, Any], columns: int) -> np.ndarray[Any, Any]:
    """Return which values a curve of so many columns needs, in their order."""
    if len(values) <= 2 * columns:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    bounds = np.linspace(0, len(values), columns + 1).astype(int)
    for first, end in pairwise(bounds):
        missing = np.isnan(values[first:end])
        if missing.any():
            kept.add(first + int(missing.argmax()))
        if not missing.all():
            kept |= {first + int(np.nanargmin(values[first:end])), first + int(np.nanargmax(values[first:end]))}
    return np.array(sorted(kept))


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
