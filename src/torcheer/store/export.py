"""A run as a table for other tools: ``.csv`` or ``.parquet``, a row for each series and step.

Series are read and written one after the other, so a long run needs no more memory than a short one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer import whole_file
from torcheer.errors import MissingExtraError, StoreError
from torcheer.store.rows import SIGNAL
from torcheer.store.schema import STATISTICS

if TYPE_CHECKING:
    from torcheer.store.reader import Run

Columns = dict[str, list[Any]]
TABLES = ("series", "scalars")


def export(run: Run, path: Path, table: str = "series") -> None:
    """Write a table of a run. It is there whole or not at all."""
    if table not in TABLES:
        raise StoreError(f"table={table!r}: it takes one of {', '.join(map(repr, TABLES))}.")
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise StoreError(f"{path.name}: a run is exported as {' or '.join(_WRITERS)}. Give one of these endings.")
    with whole_file.writing(path, StoreError) as part:
        write(_series(run) if table == "series" else _scalars(run), part)


def _series(run: Run) -> Iterator[Columns]:
    for one in run.series:
        rows = run.rows(one)
        yield {
            **{
                name: [getattr(one, name)] * len(rows)
                for name in ("lane", "model", "module", "call", "kind", "path", "dtype", "name")
            },
            "step": rows.steps.tolist(), "last_step": rows.last_steps.tolist(),
            **{name: rows[name].tolist() for name in (*STATISTICS, SIGNAL)}, "counts": rows.counts.tolist(),
        }  # fmt: skip


def _scalars(run: Run) -> Iterator[Columns]:
    for name in run.scalar_names:
        found = run.scalars(name)
        yield {
            "name": [name] * len(found.steps), "step": found.steps.tolist(), "value": found.values.tolist(),
            "time": found.times.tolist(),
        }  # fmt: skip


def _csv(parts: Iterator[Columns], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        is_first = True
        for columns in parts:
            if is_first:
                writer.writerow(columns)
                is_first = False
            writer.writerows([_text(cell) for cell in row] for row in zip(*columns.values(), strict=True))


def _text(cell: Any) -> Any:
    """Counts as numbers with spaces between; what does not apply as nothing."""
    if isinstance(cell, list):
        return " ".join(map(str, cell))
    return "" if cell != cell else cell  # noqa: PLR0124 - only a NaN is unequal to itself


def _parquet(parts: Iterator[Columns], path: Path) -> None:
    try:
        pyarrow = import_module("pyarrow")  # an extra, and slow to import
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "Exporting to .parquet") from error
    first = next(parts, {})
    table = pyarrow.table(first)
    with parquet.ParquetWriter(str(path), table.schema) as writer:
        writer.write_table(table)
        for columns in parts:
            writer.write_table(pyarrow.table(columns, schema=table.schema))


_WRITERS: dict[str, Callable[[Iterator[Columns], Path], None]] = {".csv": _csv, ".parquet": _parquet}
