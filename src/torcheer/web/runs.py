"""Watched runs as subjects: what a run is, and the parts of it that a page asks for while it grows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torcheer.errors import StoreError
from torcheer.store import STATISTICS, Run
from torcheer.views import watch
from torcheer.web.answers import RequestError, number
from torcheer.web.subjects import Subject

MOST_COLUMNS = 2000
MOST_SERIES = 400  # in one request


class RunSubject(Subject):
    """A watched run as one of its processes saw it. It may be growing."""

    kind = "watch"

    def __init__(self, path: Path, rank: int) -> None:
        super().__init__(path)
        self._rank = rank
        self._run: Run | None = None
        self._guard = threading.Lock()
        self._cursor: str | None = None

    @property
    def run(self) -> Run:
        with self._guard:
            if self._run is None:
                self._run = Run.open(self.path, self._rank)
            return self._run

    @property
    def title(self) -> str:
        return self.run.name if self.run.ranks == [0] else f"{self.run.name} · rank {self._rank}"

    def last_step(self) -> int | None:
        try:
            return self.run.last_step
        except StoreError:  # gone: there is nothing to tell of it
            return None

    def mark(self) -> str | None:
        try:
            self._cursor = self.run.follow(self._cursor).cursor
            return f"{self._cursor} {self.run.is_live}"
        except StoreError:
            return None

    def data(self, _options: Mapping[str, str]) -> dict[str, Any]:
        return watch.overview(self.run)

    def series(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Rows of the series asked for, those since a step if one is given."""
        asked = [text for text in options.get("series", "").split(",") if text]
        if not all(text.isdigit() for text in asked) or not asked or len(asked) > MOST_SERIES:
            raise RequestError(400, f"series= takes 1 to {MOST_SERIES} numbers of series, with commas between them.")
        since = number(options, "since", -1, -1)
        columns = number(options, "columns", 200, 1, MOST_COLUMNS)
        rows = [watch.rows_of(self.run, int(text), since if since >= 0 else None, columns) for text in asked]
        return {"last_step": self.run.last_step, "rows": rows}

    def scalars(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Numbers by name over steps, those since a step if one is given; all of them, or those a curve needs."""
        since = number(options, "since", -1, -1)
        columns = number(options, "columns", MOST_COLUMNS, 1, MOST_COLUMNS) if "columns" in options else None
        names = [options["name"]] if "name" in options else self.run.scalar_names
        return {name: watch.scalars_of(self.run, name, since if since >= 0 else None, columns) for name in names}

    def changes(self, options: Mapping[str, str]) -> dict[str, Any]:
        """What is new since a cursor: where to read on, and the few things that are told at once."""
        change = self.run.follow(options.get("cursor") or None)
        since_alert = number(options, "alert", 0)
        since_note = number(options, "note", 0)
        return {
            "cursor": change.cursor,
            "last_step": change.last_step,
            "is_live": self.run.is_live,
            "steps": change.steps,
            "series": change.series,
            "structure": change.structure,
            "scalars": change.scalars,
            "alerts": [alert._asdict() for alert in self.run.alerts(since_alert)] if change.alerts else [],
            "notes": [note._asdict() for note in self.run.notes(since_note)] if change.notes else [],
        }

    def at(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Statistics of all series at a step, the newest if none is given; all, or those named."""
        step = number(options, "step", -1, -1)
        names = options["stats"].split(",") if "stats" in options else STATISTICS
        if unknown := set(names) - set(STATISTICS):
            raise RequestError(400, f"There is no statistic {min(unknown)!r}; there are {', '.join(STATISTICS)}.")
        lane, kind = options.get("lane", "train"), options.get("kind")
        return watch.at_step(self.run, step if step >= 0 else None, lane, names, kind)

    def _versions(self) -> list[tuple[int, str, int]]:
        return self.run.structure_versions
