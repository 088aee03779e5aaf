"""All that a server shows. Runs that begin later are found, and every subject keeps its number."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from torcheer.errors import StoreError, TorcheerError
from torcheer.record import file
from torcheer.store import runs_in
from torcheer.store.folder import ranks_in
from torcheer.store.schema import MANIFEST
from torcheer.web.answers import RequestError
from torcheer.web.runs import RunSubject
from torcheer.web.subjects import HistorySubject, ResultSubject, Subject


class Shelf:
    """The subjects at some paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._subjects: list[Subject] = []
        self._folders: list[Path] = []
        self._runs: dict[tuple[Path, int], int] = {}  # folder of a run, which of its processes
        self._guard = threading.Lock()
        for path in paths:
            self._add(path)

    def _add(self, path: Path) -> None:
        if file.is_recording(path):
            self._subjects.append(HistorySubject(path))
        elif path.is_file() and path.suffix == ".json":
            self._subjects.append(ResultSubject(path))
        elif path.is_dir():
            self._folders.append(path)  # of runs, or of one; it may be empty yet
        elif path.exists():
            raise TorcheerError(
                f"{path} is neither a recording nor the folder of a watched run. Give what history.save, "
                "`torcheer trace -o` or tl.watch wrote."
            )
        else:
            raise TorcheerError(f"{path} does not exist. Give the folder of a recording or of a watched run.")

    def read_ahead(self) -> None:
        """Read what a reader sees first, so that it is there when the page is opened."""
        with suppress(TorcheerError):  # who opens it is told
            shown = self.look()
            if shown:
                self[shown[0]].data({})

    def look(self) -> list[int]:
        """Return the numbers of all subjects, in the order to list them: runs last written to first."""
        with self._guard:
            runs: list[int] = []
            for folder in self._folders:
                for path in runs_in(folder):
                    runs.extend(self._ranks(path))
            others = [index for index in range(len(self._subjects)) if index not in runs]
            return [*others, *runs]

    def _ranks(self, path: Path) -> Iterator[int]:
        """Numbers of a run's processes; each has seen its own batches."""
        for rank in ranks_in(path):
            key = path, rank
            if key not in self._runs and _has_begun(path, rank):
                self._runs[key] = len(self._subjects)
                self._subjects.append(RunSubject(path, rank))
            if key in self._runs:
                yield self._runs[key]

    def __getitem__(self, index: int) -> Subject:
        if not 0 <= index < len(self._subjects):
            raise RequestError(404, f"There is no subject {index}; there are {len(self._subjects)}, from 0.")
        return self._subjects[index]

    def run(self, index: int) -> RunSubject:
        """Return a subject that must be a run."""
        subject = self[index]
        if not isinstance(subject, RunSubject):
            raise RequestError(404, f"Subject {index}, {subject.title!r}, is no watched run, so it has no series.")
        return subject


def _has_begun(path: Path, rank: int) -> bool:
    try:
        subject = RunSubject(path, rank)
        subject.run.close()
    except StoreError:
        return False
    return (path / MANIFEST).is_file()
