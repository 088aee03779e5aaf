"""Watched training runs on disk: written by the training process, followed by others, read when it is over.

A run is a folder; each process of the run writes one SQLite file in it. `docs/design/store.md` has the format.
Nothing here imports torch: a run opens on a machine that has none.
"""

from torcheer.store.reader import Run, runs_in
from torcheer.store.rows import Rows
from torcheer.store.schema import FORMAT_VERSION, STATISTICS
from torcheer.store.series import Alert, Change, Note, Scalars, Series, StepRows
from torcheer.store.writer import Writer

__all__ = [
    "FORMAT_VERSION",
    "STATISTICS",
    "Alert",
    "Change",
    "Note",
    "Rows",
    "Run",
    "Scalars",
    "Series",
    "StepRows",
    "Writer",
    "runs_in",
]
