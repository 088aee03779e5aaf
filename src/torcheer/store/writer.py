"""Writes one process's file of a run, from a thread of its own, one commit for each logged step.

The training thread hands over a step and goes on; it waits only when the step before is not written yet, so one step
is in flight: in memory, and in what a kill can cost. What fails in the thread (a full
disk) stops the writing, never the training: ``failure`` says what happened, and the run on disk stays readable.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.store import compact
from torcheer.store.folder import Lock, make_folder, open_to_write
from torcheer.store.rows import pack_step
from torcheer.store.series import Series, StepRows

MAX_PENDING = 10_000  # numbers, notes and the like that wait for the next step
IDLE_SECONDS = 0.25

Work = Callable[[], object]


class Writer:
    """One process's file of a run."""

    def __init__(
        self, folder: Path, rank: int = 0, facts: dict[str, Any] | None = None, max_size_bytes: int | None = None
    ) -> None:
        """Open the file, or make it. Raises before anything is harmed if that cannot be."""
        self.folder, self.rank, self.max_size_bytes = folder, rank, max_size_bytes
        make_folder(folder, facts or {})
        self._lock = Lock(folder, rank)
        try:
            self._connection = open_to_write(folder, rank)
        except BaseException:
            self._lock.release()
            raise
        self.failure: str | None = None  # why nothing is written any more
        self._series = self._known_series()
        self._names = {name: number for number, name in self._rows("SELECT id, name FROM scalar_names")}
        self._queue: queue.Queue[list[Work] | None] = queue.Queue(1)
        self._pending: deque[Work] = deque()
        self._compactor = compact.Compactor(max_size_bytes)
        self._thread: threading.Thread | None = None
        self._closed = False
        # Called on the writer's thread when there is nothing to do; returns what there is to do after all.
        self.when_idle: Callable[[], list[Work]] | None = None

    # -- what is there already -----------------------------------------------------------------------

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def _known_series(self) -> dict[tuple[str, str], Series]:
        found = self._rows("SELECT id, lane, name, facts FROM series")
        return {(lane, name): Series.from_facts(number, json.loads(facts)) for number, lane, name, facts in found}

    def last_step(self, lane: str | None = None) -> int | None:
        """Newest step on disk when the file was opened, or of what has been written since."""
        where, values = ("WHERE lane = ?", [lane]) if lane is not None else ("", [])
        newest = [
            self._rows(f"SELECT max(step) FROM steps {where}", *values)[0][0],
            self._rows(f"SELECT max(last_step) FROM windows {where}", *values)[0][0],
        ]
        return max((step for step in newest if step is not None), default=None)

    def session(self, first_step: int, facts: dict[str, Any]) -> int:
        """Note that a process begins, or goes on with, the run. Returns the session's number, from 1."""
        number = int(self._rows("SELECT count(*) FROM sessions")[0][0]) + 1
        values = (number, time.time(), first_step, json.dumps(facts))
        self._connection.execute("INSERT INTO sessions VALUES(?, ?, ?, ?)", values)
        return number

    def drop_from(self, step: int) -> None:
        """Forget everything from this step on: training goes on from an earlier checkpoint."""
        with self._transaction():
            compact.drop_from(self._connection, step)

    # -- handing over --------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closed

    def do(self, work: Work) -> None:
        """Run it on the writer's thread, in order with all else that is handed over; it may call ``write_…``."""
        self._put(work)

    def series(self, lane: str, name: str, make: Callable[[int], Series]) -> Series:
        """The series of that name, registered when it is new."""
        known = self._series.get((lane, name))
        if known is None:
            known = self._series[lane, name] = make(len(self._series) + 1)
            values = (known.id, lane, name, json.dumps(known.facts()))
            self._put(lambda: self._connection.execute("INSERT INTO series VALUES(?, ?, ?, ?)", values))
        return known

    def add_step(self, rows: StepRows | Callable[[], StepRows | None]) -> None:
        """Write one logged step. What is given as a function is computed on the writer's thread."""
        if self._closed or self.failure is not None:
            return
        self._pending.append(lambda: self.write_step(rows() if callable(rows) else rows))
        self._hand_over()

    def add_scalars(self, step: int, values: dict[str, float], at: float | None = None) -> None:
        """Write numbers of one step: loss, learning rate."""
        moment = time.time() if at is None else at
        self._put(lambda: self.write_scalars(step, values, moment))

    def add_alert(self, step: int, rule: str, series: int | None, message: str) -> None:
        self._put(lambda: self.write_alert(step, rule, series, message))

    def add_note(self, step: int, code: str, message: str) -> None:
        sql = "INSERT INTO notes(step, code, message) VALUES(?, ?, ?)"
        self._put(lambda: self._connection.execute(sql, (step, code, message)))

    def add_structure(self, model: str, step: int, structure: dict[str, Any]) -> None:
        """Write what the model looks like. It may change while it trains; each one is a version."""
        self._put(lambda: self.write_structure(model, step, structure))

    def set_facts(self, facts: dict[str, Any]) -> None:
        values = [(key, json.dumps(value)) for key, value in facts.items()]
        self._put(lambda: self._connection.executemany("INSERT OR REPLACE INTO facts VALUES(?, ?)", values))

    def _put(self, work: Work) -> None:
        """Small things: written together with the next step, or by the thread when it has nothing else to do."""
        if self._closed or self.failure is not None:
            return
        self._pending.append(work)
        if self._thread is None or len(self._pending) > MAX_PENDING:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._thread is None:
            # A daemon, so that a script which ends without a word ends; `close` waits for what is in flight.
            self._thread = threading.Thread(target=self._work, name="torcheer-writer", daemon=True)
            self._thread.start()
        self._queue.join()
        self._queue.put(self._take_pending())

    def _take_pending(self) -> list[Work]:
        taken = []
        while True:
            try:
                taken.append(self._pending.popleft())
            except IndexError:
                return taken

    # -- on the writer's thread ----------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                works = self._queue.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                idle = self.when_idle() if self.when_idle is not None else []
                self._write([*idle, *self._take_pending()])
                continue
            try:
                if works is None:
                    self._write(self._take_pending())
                    return
                self._write(works)
            finally:
                works = []  # what they hold, a step's tensors or a recording, is not to wait for the next
                self._queue.task_done()

    def _write(self, works: list[Work]) -> None:
        if not works or self.failure is not None:
            return
        try:
            with self._transaction():
                for work in works:
                    work()
        except (sqlite3.Error, OSError) as error:
            self.failure = f"{self.folder}: {error}"
        except Exception as error:  # noqa: BLE001 - whatever it is must not end the thread that drains the queue
            self.failure = f"{self.folder}: {type(error).__name__}: {error}"

    def _transaction(self) -> _Transaction:
        return _Transaction(self._connection)

    # These run on the writer's thread only, inside a transaction.

    def write_step(self, rows: StepRows | None) -> None:
        if rows is None:
            return
        db = self._connection
        sql = "INSERT OR REPLACE INTO steps(lane, step, time, body) VALUES(?, ?, ?, ?)"
        is_new = (
            db.execute("SELECT 1 FROM steps WHERE lane = ? AND step = ?", (rows.lane, rows.step)).fetchone() is None
        )
        db.execute(sql, (rows.lane, rows.step, rows.time, pack_step(rows)))
        if is_new:
            self._compactor.after_step(db, rows.lane)

    def write_scalars(self, step: int, values: dict[str, float], moment: float) -> None:
        db = self._connection
        for name in values:
            if name not in self._names:
                self._names[name] = len(self._names) + 1
                db.execute("INSERT INTO scalar_names VALUES(?, ?)", (self._names[name], name))
        rows = [(self._names[name], step, _number(value), moment) for name, value in values.items()]
        db.executemany("INSERT INTO scalars(name, step, value, time) VALUES(?, ?, ?, ?)", rows)

    def write_alert(self, step: int, rule: str, series: int | None, message: str) -> None:
        sql = "INSERT INTO alerts(step, rule, series, message, time) VALUES(?, ?, ?, ?, ?)"
        self._connection.execute(sql, (step, rule, series, message, time.time()))

    def write_structure(self, model: str, step: int, structure: dict[str, Any]) -> None:
        body = zlib.compress(json.dumps(structure).encode(), 6)
        sql = "INSERT INTO structure(model, step, body) VALUES(?, ?, ?)"
        self._connection.execute(sql, (model, step, body))

    # -- the end -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything handed over is on disk."""
        if self._pending:
            self._hand_over()
        if self._thread is not None and self._thread.is_alive():
            self._queue.join()

    def close(self, seconds: float = 30.0) -> None:
        """Write what is in flight and close the file. Waits at most so long."""
        if self._closed:
            return
        if self._pending and self._thread is None:
            self._hand_over()
        self._closed = True
        if self._thread is not None and self._thread.is_alive():
            try:
                self._queue.put(None, timeout=seconds)
            except queue.Full:
                self.failure = self.failure or f"{self.folder}: writing took longer than {seconds:.0f} s at the end"
            self._thread.join(seconds)
            if self._thread.is_alive():
                return  # the connection is in use; the system closes it
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            self.failure = self.failure or f"{self.folder}: {error}"
        self._connection.close()
        self._lock.release()


class _Transaction:
    """All of it or nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _number(value: float) -> float | None:
    """SQLite keeps a NaN as NULL; so does this, on purpose."""
    return None if np.isnan(value) else float(value)
