"""Reads a run: while it is written, after it was killed, and when it is over.

run = Run.open("torcheer_runs/ResNet-1")
rows = run.rows(run.find("layer1.0.relu:1/output/0"), columns=200)
change = run.follow()               # everything counts as new
change = run.follow(change.cursor)  # what has come since
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from torcheer.errors import LookupKeyError, StoreError, near_or_all
from torcheer.store.export import export
from torcheer.store.folder import is_locked, open_to_read, ranks_in, read_manifest
from torcheer.store.rows import Rows, joined, merged, unpack_chunk, unpack_step
from torcheer.store.schema import MANIFEST, PYRAMID
from torcheer.store.series import Alert, Change, Note, Scalars, Series, StepRows

_RETRIES = 3  # a compaction between two of our queries moves rows from one table to another


def runs_in(folder: str | PathLike[str]) -> list[Path]:
    """Folders of the runs in a folder (or the folder itself), the one last written to first."""
    root = Path(folder)
    found = [root] if (root / MANIFEST).exists() else [path.parent for path in root.glob(f"*/{MANIFEST}")]
    return sorted(found, key=lambda run: -max((path.stat().st_mtime for path in run.iterdir()), default=0))


class Run:
    """A watched run on disk, as one of its processes saw it."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.facts: dict[str, Any] = read_manifest(folder)  # of run.json: "name", "created", "id", "options", …
        self._connection = open_to_read(folder, rank)
        finalize(self, self._connection.close)  # of a run that nobody closes
        self._guard = threading.Lock()
        self._series: dict[int, Series] = {}

    @classmethod
    def open(cls, path: str | PathLike[str], rank: int | None = None) -> Run:
        """Open a run's folder. ``rank`` is the number of a process; the default is the first there is."""
        folder = Path(path).absolute()
        read_manifest(folder)
        ranks = ranks_in(folder)
        if not ranks:
            raise StoreError(f"{folder} holds nothing yet: no process has written into it. Open it a little later.")
        return cls(folder, ranks[0] if rank is None else rank)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._guard:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise StoreError(f"{self.folder} cannot be read: {error}. Copy it from where it was whole.") from None

    # -- what the run is -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return str(self.facts.get("name", self.folder.name))

    @property
    def ranks(self) -> list[int]:
        """Numbers of the processes that have written into the run; open each with ``Run.open(path, rank)``."""
        return ranks_in(self.folder)

    @property
    def is_live(self) -> bool:
        """Is the process still writing?"""
        return is_locked(self.folder, self.rank)

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The starts of the run: one, and one more for each time it was resumed."""
        rows = self._all("SELECT session, started, first_step, facts FROM sessions ORDER BY session")
        return [{"session": n, "started": at, "first_step": step, **json.loads(facts)} for n, at, step, facts in rows]

    @property
    def state(self) -> dict[str, Any]:
        """What the process said about itself: options, device, how it ended."""
        return {key: json.loads(value) for key, value in self._all("SELECT key, value FROM facts")}

    def structure(self, model: str | None = None, version: int | None = None) -> dict[str, Any] | None:
        """Modules, their calls and the edges between these; the newest version of the model's, or a given one."""
        sql = "SELECT version, model, step, body FROM structure WHERE 1"
        values: list[Any] = []
        for column, value in (("model", model), ("version", version)):
            if value is not None:
                sql += f" AND {column} = ?"
                values.append(value)
        rows = self._all(sql + " ORDER BY version DESC LIMIT 1", *values)
        if not rows:
            return None
        number, owner, step, body = rows[0]
        return {"version": number, "model": owner, "step": step, **json.loads(zlib.decompress(body))}

    @property
    def structure_versions(self) -> list[tuple[int, str, int]]:
        """(version, model, step it was seen at)"""
        rows = self._all("SELECT version, model, step FROM structure ORDER BY version")
        return [(version, model, step) for version, model, step in rows]

    # -- series --------------------------------------------------------------------------------------

    @property
    def series(self) -> list[Series]:
        """Every tensor watched so far."""
        newest = max(self._series, default=0)
        for number, facts in self._all("SELECT id, facts FROM series WHERE id > ? ORDER BY id", newest):
            self._series[number] = Series.from_facts(number, json.loads(facts))
        return [self._series[number] for number in sorted(self._series)]

    def find(self, key: str | int, lane: str | None = None) -> Series:
        """A series by its id, or by its name (``fc1:1/output/0``); training rather than evaluation."""
        if isinstance(key, int) and lane is None and key in self._series:
            return self._series[key]  # known: a model of 10,000 operations has 20,000 to look through
        known = self.series
        found = [one for one in known if key in (one.id, one.name) and lane in (None, one.lane)]
        if not found:
            hint = near_or_all(str(key), sorted({one.name for one in known}))
            raise LookupKeyError(f"The run {self.name!r} has no series {key!r}.{hint}")
        return min(found, key=lambda one: "train" not in one.lane)

    @property
    def lanes(self) -> list[str]:
        """Clocks of the run: ``train``, ``eval``; with several models ``generator/train`` and so on."""
        sql = "SELECT DISTINCT lane FROM windows UNION SELECT DISTINCT lane FROM steps ORDER BY 1"
        return [row[0] for row in self._all(sql)]

    @property
    def last_step(self) -> int | None:
        """Newest logged step; None before the first."""
        rows = self._all("SELECT (SELECT max(step) FROM steps), (SELECT max(last_step) FROM windows)")
        return max((step for step in rows[0] if step is not None), default=None)

    def rows(
        self,
        series: Series | str | int,
        since: int | None = None,
        until: int | None = None,
        columns: int | None = None,
    ) -> Rows:
        """Histograms and statistics of one series over the steps ``since <= step < until``.

        columns: at most about so many rows; then each stands for several steps, and the coarse rows that the
        file keeps are read, so a long run is as quick as a short one. None: every step there is.
        """
        one = series if isinstance(series, Series) else self.find(series)
        for _ in range(_RETRIES):
            before = self._all("SELECT max(last_step), count(*) FROM windows WHERE lane = ?", one.lane)
            rows = self._read(one, since, until, columns)
            if before == self._all("SELECT max(last_step), count(*) FROM windows WHERE lane = ?", one.lane):
                break
        return rows

    histograms = rows

    def _read(self, one: Series, since: int | None, until: int | None, columns: int | None) -> Rows:
        low, high = -1 if since is None else since, 2**62 if until is None else until
        windows = self._all(
            "SELECT level, first_step, last_step, num_rows FROM windows "
            "WHERE lane = ? AND kept = 1 AND last_step >= ? AND first_step < ? ORDER BY level DESC, first_step",
            one.lane, low, high,
        )  # fmt: skip
        num_rows = sum(window[3] for window in windows if window[0] == 0)
        wanted = 0
        while columns is not None and wanted < 12 and num_rows // PYRAMID ** (wanted + 1) >= columns:
            wanted += 1
        parts: list[Rows] = []
        covered: list[tuple[int, int]] = []
        # The level asked for first, then finer ones for what is recent, then coarser ones where it has been thinned.
        for level in sorted({window[0] for window in windows}, key=lambda it: (it > wanted, abs(it - wanted))):
            spans = [(first, last) for its, first, last, _ in windows if its == level]
            for first, last in spans:
                if not _is_inside(first, last, covered):
                    parts += [_outside(rows, covered) for rows in self._chunks(one, level, first, last)]
            covered += spans
        parts = [rows for rows in parts if len(rows)]
        parts.sort(key=lambda rows: int(rows.steps[0]))
        tail = self._tail(one, low, high)
        bins = next((part.counts.shape[1] for part in (*parts, tail) if len(part)), 0)
        rows = joined([*parts, _outside(tail, covered)], bins).between(since, until)
        if columns is not None and len(rows) > columns:
            rows = merged(rows, -(-len(rows) // columns))
        return rows

    def _chunks(self, one: Series, level: int, first: int, last: int) -> list[Rows]:
        sql = (
            "SELECT body FROM chunks WHERE series = ? AND level = ? AND first_step >= ? AND first_step <= ? "
            "ORDER BY first_step"
        )
        return [unpack_chunk(body) for (body,) in self._all(sql, one.id, level, first, last)]

    def _tail(self, one: Series, low: int, high: int) -> Rows:
        found = []
        for step in self.steps(one.lane, low, high):
            places = np.flatnonzero(step.series == one.id)
            if len(places):
                row = int(step.rows[places[0]])
                at = np.array([step.step], np.int64)
                counts = step.counts[row : row + 1].astype(np.uint32)
                found.append(Rows(at, at, step.stats[row : row + 1], counts))
        return joined(found, 0)

    def steps(self, lane: str = "train", since: int | None = None, until: int | None = None) -> list[StepRows]:
        """Newest steps with all their series, as they were written; older ones are found by series only."""
        low, high = -1 if since is None else since, 2**62 if until is None else until
        sql = "SELECT step, time, body FROM steps WHERE lane = ? AND step >= ? AND step < ? ORDER BY step"
        return [unpack_step(lane, step, moment, body) for step, moment, body in self._all(sql, lane, low, high)]

    def at(self, step: int | None = None, lane: str = "train") -> StepRows | None:
        """All series at a step (default: the newest), or at the last logged one before it."""
        limit = 2**62 if step is None else step
        sql = "SELECT step, time, body FROM steps WHERE lane = ? AND step <= ? ORDER BY step DESC LIMIT 1"
        rows = self._all(sql, lane, limit)
        if rows:
            return unpack_step(lane, *rows[0])
        sql = (
            "SELECT c.series, c.body FROM chunks c JOIN series s ON s.id = c.series WHERE s.lane = ? "
            "AND c.first_step <= ? AND c.last_step >= ? ORDER BY c.series, c.level DESC"
        )
        sql_window = (
            "SELECT first_step, last_step FROM windows WHERE lane = ? AND kept = 1 AND first_step <= ? "
            "ORDER BY level, first_step DESC LIMIT 1"
        )
        window = self._all(sql_window, lane, limit)
        if not window:
            return None
        inside = min(limit, window[0][1])
        best: dict[int, Rows] = {}
        for number, body in self._all(sql, lane, inside, window[0][0]):
            rows_of = unpack_chunk(body).between(None, inside + 1)
            if len(rows_of):
                best[number] = rows_of
        return _one_step(lane, best)

    # -- scalars, alerts, notes ----------------------------------------------------------------------

    @property
    def scalar_names(self) -> list[str]:
        return [name for (name,) in self._all("SELECT name FROM scalar_names ORDER BY id")]

    def scalars(self, name: str, since: int | None = None) -> Scalars:
        """A number over the steps it was logged at. A NaN is a NaN."""
        sql = (
            "SELECT s.step, s.value, s.time FROM scalars s JOIN scalar_names n ON n.id = s.name "
            "WHERE n.name = ? AND s.step >= ? ORDER BY s.step, s.seq"
        )
        rows = self._all(sql, name, -1 if since is None else since)
        if not rows and name not in self.scalar_names:
            raise LookupKeyError(f"The run {self.name!r} has no scalar {name!r}.{near_or_all(name, self.scalar_names)}")
        steps, values, times = zip(*rows, strict=True) if rows else ((), (), ())
        return Scalars(np.array(steps, np.int64), np.array(values, np.float64), np.array(times, np.float64))

    def alerts(self, since_seq: int = 0) -> list[Alert]:
        sql = "SELECT seq, step, rule, series, message FROM alerts WHERE seq > ? ORDER BY seq"
        return [Alert(*row) for row in self._all(sql, since_seq)]

    def notes(self, since_seq: int = 0) -> list[Note]:
        return [Note(*row) for row in self._all("SELECT * FROM notes WHERE seq > ? ORDER BY seq", since_seq)]

    def export(self, path: str | PathLike[str], table: str = "series") -> None:
        """Write a table as ``.csv`` or ``.parquet``: a row for each series and step, or ``table="scalars"``."""
        export(self, Path(path), table)

    # -- following -----------------------------------------------------------------------------------

    def follow(self, cursor: str | None = None, timeout: float = 0.0) -> Change:
        """What has come since the cursor of an earlier ``follow``; without one, everything.

        timeout: wait so many seconds for something new before an empty answer.
        """
        end = time.monotonic() + timeout
        while True:
            change = self._change(cursor)
            if change.anything or time.monotonic() >= end:
                return change
            time.sleep(min(0.1, max(0.0, end - time.monotonic())))

    def _change(self, cursor: str | None) -> Change:
        sql = (
            "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'steps'), (SELECT max(id) FROM series), "
            "(SELECT max(version) FROM structure), (SELECT seq FROM sqlite_sequence WHERE name = 'scalars'), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'alerts'), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'notes')"
        )
        now = [value or 0 for value in self._all(sql)[0]]
        before = _cursor_of(cursor, len(now))
        new = [a > b for a, b in zip(now, before, strict=True)]
        steps: dict[str, int] = {}
        if new[0]:
            for lane, step in self._all("SELECT lane, min(step) FROM steps WHERE seq > ? GROUP BY lane", before[0]):
                steps[lane] = step
            oldest = self._all("SELECT min(seq) FROM steps")[0][0]
            if oldest is None or oldest > before[0] + 1:
                # Some of what is new has been compacted: all of those steps may be, so all count as new.
                for lane, step in self._all("SELECT lane, min(first_step) FROM windows GROUP BY lane"):
                    steps[lane] = step if before[0] == 0 else min(step, steps.get(lane, step))
        return Change("-".join(map(str, now)), self.last_step, steps, *new[1:])


def _cursor_of(text: str | None, length: int) -> list[int]:
    if not text:
        return [0] * length
    try:
        numbers = [int(part) for part in text.split("-")]
    except ValueError:
        numbers = []
    if len(numbers) != length:
        raise StoreError(f"{text!r} is no cursor. Hand follow() the cursor of an earlier answer, or none.")
    return numbers


def _is_inside(first: int, last: int, spans: list[tuple[int, int]]) -> bool:
    """Do the spans, which may follow one another with gaps that hold no step, cover all from first to last?"""
    inside = [span for span in spans if span[0] <= last and span[1] >= first]
    return bool(inside) and min(inside)[0] <= first and max(end for _, end in inside) >= last


def _outside(rows: Rows, spans: list[tuple[int, int]]) -> Rows:
    """The rows that stand for no step of the spans."""
    keep = np.ones(len(rows), bool)
    for first, last in spans:
        keep &= (rows.last_steps < first) | (rows.steps > last)
    return rows if keep.all() else Rows(rows.steps[keep], rows.last_steps[keep], rows.stats[keep], rows.counts[keep])


def _one_step(lane: str, best: dict[int, Rows]) -> StepRows | None:
    if not best:
        return None
    step = max(int(rows.steps[-1]) for rows in best.values())
    now = {number: rows for number, rows in best.items() if int(rows.steps[-1]) == step}
    numbers = np.array(sorted(now), np.uint32)
    stats = np.stack([now[number].stats[-1] for number in numbers.tolist()])
    counts = np.stack([now[number].counts[-1] for number in numbers.tolist()])
    fitting = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)
    return StepRows(lane, step, float("nan"), numbers, np.arange(len(numbers), dtype=np.uint32), stats, fitting)
