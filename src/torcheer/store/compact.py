"""Turns written steps into compressed chunks per series, chunks into coarser ones, and thins what grew too large.

A step is written as one row for all series, which is the cheapest to write. When ``2 * CHUNK_STEPS`` of them
have come together, the older half becomes one chunk for each series, which is cheap to read and small. ``PYRAMID``
windows of chunks become one window of the next level, in which a row stands for ``PYRAMID`` rows. The table
``windows`` says which steps which level covers; all series of a lane share them.
"""

from __future__ import annotations

import sqlite3

import numpy as np

from torcheer.store.rows import Rows, joined, merged, pack_chunk, unpack_chunk, unpack_step
from torcheer.store.schema import CHUNK_STEPS, PYRAMID
from torcheer.store.series import StepRows

MAX_LEVEL = 6  # a row of it stands for 262,144 logged steps


class Compactor:
    """Keeps one file compact while it grows."""

    def __init__(self, max_size_bytes: int | None) -> None:
        self._max_size_bytes = max_size_bytes
        self._tail: dict[str, int] = {}

    def after_step(self, db: sqlite3.Connection, lane: str) -> None:
        """Called in the transaction that wrote a step."""
        waiting = self._tail.get(lane)
        if waiting is None:
            waiting = int(db.execute("SELECT count(*) FROM steps WHERE lane = ?", (lane,)).fetchone()[0]) - 1
        self._tail[lane] = waiting + 1
        if self._tail[lane] >= 2 * CHUNK_STEPS:
            self._tail[lane] -= compact_tail(db, lane, CHUNK_STEPS)
            for level in range(MAX_LEVEL):
                if not roll_up(db, lane, level):
                    break
            if self._max_size_bytes is not None:
                thin(db, self._max_size_bytes)


def compact_tail(db: sqlite3.Connection, lane: str, num_steps: int) -> int:
    """Move the oldest steps of a lane into chunks. Returns how many steps were moved."""
    sql = "SELECT step, time, body FROM steps WHERE lane = ? ORDER BY step LIMIT ?"
    steps = [unpack_step(lane, step, moment, body) for step, moment, body in db.execute(sql, (lane, num_steps))]
    if not steps:
        return 0
    packed: dict[int, bytes] = {}  # series that are one tensor have one body
    bodies = []
    for number, rows in by_series(steps).items():
        if id(rows) not in packed:
            packed[id(rows)] = pack_chunk(rows)
        bodies.append((number, 0, int(rows.steps[0]), int(rows.last_steps[-1]), len(rows), packed[id(rows)]))
    _insert_chunks(db, bodies)
    first, last = steps[0].step, steps[-1].step
    db.execute("INSERT OR REPLACE INTO windows VALUES(?, 0, ?, ?, ?, 1)", (lane, first, last, len(steps)))
    db.execute("DELETE FROM steps WHERE lane = ? AND step <= ?", (lane, last))
    return len(steps)


def by_series(steps: list[StepRows]) -> dict[int, Rows]:
    """Steps of all series as series of all steps. Series that share their rows share the result."""
    places: dict[int, list[tuple[int, int]]] = {}
    for place, step in enumerate(steps):
        for number, row in zip(step.series.tolist(), step.rows.tolist(), strict=True):
            places.setdefault(number, []).append((place, row))
    starts = np.cumsum([0, *(len(step.stats) for step in steps)])
    all_stats = np.concatenate([step.stats for step in steps])
    all_counts = np.concatenate([step.counts for step in steps])
    all_steps = np.array([step.step for step in steps], np.int64)
    made: dict[bytes, Rows] = {}
    result = {}
    for number, where in places.items():
        of_step, rows = np.array(where, np.int64).T
        at = starts[of_step] + rows
        key = at.tobytes()
        if key not in made:
            numbers = all_steps[of_step]
            made[key] = Rows(numbers, numbers, all_stats[at], all_counts[at].astype(np.uint32))
        result[number] = made[key]
    return result


def roll_up(db: sqlite3.Connection, lane: str, level: int) -> bool:
    """Make one window of the next level when enough windows of this one have none above them yet."""
    sql = "SELECT max(last_step) FROM windows WHERE lane = ? AND level = ?"
    covered = db.execute(sql, (lane, level + 1)).fetchone()[0]
    sql = (
        "SELECT first_step, last_step, num_rows FROM windows WHERE lane = ? AND level = ? AND first_step > ? ORDER BY 1"
    )
    waiting = db.execute(sql, (lane, level, -1 if covered is None else covered)).fetchall()[:PYRAMID]
    if len(waiting) < PYRAMID:
        return False
    first, last = waiting[0][0], waiting[-1][1]
    sql = (
        "SELECT c.series, c.body FROM chunks c JOIN series s ON s.id = c.series "
        "WHERE s.lane = ? AND c.level = ? AND c.first_step >= ? AND c.last_step <= ? ORDER BY c.series, c.first_step"
    )
    parts: dict[int, list[Rows]] = {}
    for number, body in db.execute(sql, (lane, level, first, last)):
        parts.setdefault(number, []).append(unpack_chunk(body))
    bodies = []
    for number, found in parts.items():
        rows = merged(joined(found, found[0].counts.shape[1]), PYRAMID)
        bodies.append((number, level + 1, int(rows.steps[0]), int(rows.last_steps[-1]), len(rows), pack_chunk(rows)))
    _insert_chunks(db, bodies)
    num_rows = -(-sum(window[2] for window in waiting) // PYRAMID)
    db.execute("INSERT OR REPLACE INTO windows VALUES(?, ?, ?, ?, ?, 1)", (lane, level + 1, first, last, num_rows))
    return True


def _insert_chunks(db: sqlite3.Connection, bodies: list[tuple[int, int, int, int, int, bytes]]) -> None:
    sql = "INSERT INTO chunks(series, level, first_step, last_step, num_rows, body) VALUES(?, ?, ?, ?, ?, ?)"
    db.executemany(sql, bodies)


def size_bytes(db: sqlite3.Connection) -> int:
    """What the file holds, free pages not counted."""
    pages, free, size = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def thin(db: sqlite3.Connection, max_size_bytes: int) -> None:
    """Drop the finest rows of the oldest steps, where coarser ones stand for them, until the file is small enough."""
    while size_bytes(db) > max_size_bytes:
        sql = (
            "SELECT w.lane, w.level, w.first_step, w.last_step FROM windows w WHERE w.kept = 1 AND EXISTS("
            "SELECT 1 FROM windows c WHERE c.lane = w.lane AND c.level = w.level + 1 AND c.kept = 1 "
            "AND c.first_step <= w.first_step AND c.last_step >= w.last_step) ORDER BY w.level, w.first_step LIMIT 1"
        )
        oldest = db.execute(sql).fetchone()
        if oldest is None:
            return
        lane, level, first, last = oldest
        _delete_chunks(db, lane, level, (first, last))
        sql = "UPDATE windows SET kept = 0 WHERE lane = ? AND level = ? AND first_step = ?"
        db.execute(sql, (lane, level, first))


def drop_from(db: sqlite3.Connection, step: int) -> None:
    """Forget everything from ``step`` on. What lies in a window that reaches beyond it is kept as single rows."""
    for (lane,) in db.execute("SELECT DISTINCT lane FROM windows").fetchall():
        sql = "SELECT first_step, level, last_step FROM windows WHERE lane = ? AND last_step >= ? ORDER BY level DESC"
        for first, level, last in db.execute(sql, (lane, step)).fetchall():
            if level and _is_kept_below(db, lane, level, (first, last)):
                _delete_window(db, lane, level, (first, last))  # it is made anew from the finer rows
            else:
                _cut_window(db, lane, level, (first, last), step)
    for table in ("steps", "scalars", "alerts", "notes"):
        db.execute(f"DELETE FROM {table} WHERE step >= ?", (step,))
    db.execute("DELETE FROM structure WHERE step >= ?", (step,))


def _is_kept_below(db: sqlite3.Connection, lane: str, level: int, span: tuple[int, int]) -> bool:
    sql = "SELECT min(kept) FROM windows WHERE lane = ? AND level = ? AND first_step >= ? AND last_step <= ?"
    return bool(db.execute(sql, (lane, level - 1, *span)).fetchone()[0])


def _delete_chunks(db: sqlite3.Connection, lane: str, level: int, span: tuple[int, int]) -> None:
    sql = (
        "DELETE FROM chunks WHERE level = ? AND first_step >= ? AND last_step <= ? "
        "AND series IN (SELECT id FROM series WHERE lane = ?)"
    )
    db.execute(sql, (level, *span, lane))


def _delete_window(db: sqlite3.Connection, lane: str, level: int, span: tuple[int, int]) -> None:
    _delete_chunks(db, lane, level, span)
    db.execute("DELETE FROM windows WHERE lane = ? AND level = ? AND first_step = ?", (lane, level, span[0]))


def _cut_window(db: sqlite3.Connection, lane: str, level: int, span: tuple[int, int], step: int) -> None:
    sql = (
        "SELECT c.id, c.body FROM chunks c JOIN series s ON s.id = c.series WHERE s.lane = ? AND c.level = ? "
        "AND c.first_step >= ? AND c.last_step <= ? AND c.last_step >= ?"
    )
    num_rows, last = 0, -1
    for number, body in db.execute(sql, (lane, level, *span, step)).fetchall():
        rows = unpack_chunk(body)
        keep = rows.last_steps < step
        rows = Rows(rows.steps[keep], rows.last_steps[keep], rows.stats[keep], rows.counts[keep])
        if len(rows) == 0:
            db.execute("DELETE FROM chunks WHERE id = ?", (number,))
            continue
        num_rows, last = max(num_rows, len(rows)), max(last, int(rows.last_steps[-1]))
        sql_update = "UPDATE chunks SET last_step = ?, num_rows = ?, body = ? WHERE id = ?"
        db.execute(sql_update, (int(rows.last_steps[-1]), len(rows), pack_chunk(rows), number))
    where = (lane, level, span[0])
    if num_rows == 0:
        db.execute("DELETE FROM windows WHERE lane = ? AND level = ? AND first_step = ?", where)
    else:
        sql = "UPDATE windows SET last_step = ?, num_rows = ? WHERE lane = ? AND level = ? AND first_step = ?"
        db.execute(sql, (last, num_rows, *where))
