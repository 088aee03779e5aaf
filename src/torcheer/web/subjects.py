"""What the explorer shows: recordings, watched runs, and results that Python wrote down for it.

A subject is a path given on the command line. Everything shown comes from below these paths.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torcheer import shown
from torcheer.api.history import load
from torcheer.errors import TorcheerError
from torcheer.history import ModelHistory
from torcheer.views import contents
from torcheer.views.figures import figures_of
from torcheer.web.answers import RequestError, number

RESULT_LIMIT = 1 << 30  # bytes; a result larger than this is no result


class Subject(ABC):
    """One thing to look at."""

    kind: str  # which view draws it: "history", "profile", "comparison", "watch"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def title(self) -> str:
        return self.path.stem

    @abstractmethod
    def data(self, _options: Mapping[str, str]) -> dict[str, Any]:
        """Return what its view builds."""

    def last_step(self) -> int | None:
        """Return how far a run is; None for what does not grow."""
        return None

    def mark(self) -> str | None:
        """Return a text that changes whenever there is something new; None for what does not grow."""
        return None

    def details(self, _options: Mapping[str, str]) -> dict[str, Any]:
        """Return more about one thing in it than its data has."""
        raise RequestError(404, f"{self.title} has no details: only recordings have.")

    def figures(self, _options: Mapping[str, str]) -> dict[str, Any]:
        """Return figures of its operations that its data does not have."""
        raise RequestError(404, f"{self.title} has no figures: only recordings have.")


class HistorySubject(Subject):
    """A recording."""

    kind = "history"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._history: ModelHistory | None = None
        self._built: dict[str, Any] | None = None
        self._figures: dict[str, Any] | None = None
        self._guard = threading.Lock()

    @property
    def history(self) -> ModelHistory:
        with self._guard:  # several windows ask at once, and the server reads ahead
            if self._history is None:
                self._history = load(self.path, arrays=True)
            return self._history

    @property
    def title(self) -> str:
        return self.history.record.run.model

    def data(self, _options: Mapping[str, str]) -> dict[str, Any]:
        history = self.history
        with self._guard:
            if self._built is None:
                self._built = shown.data("history", history)
            return self._built

    def details(self, options: Mapping[str, str]) -> dict[str, Any]:
        return contents.build(self.history, number(options, "value"))

    def figures(self, _options: Mapping[str, str]) -> dict[str, Any]:
        history = self.history
        with self._guard:
            if self._figures is None:
                self._figures = figures_of(history)
            return self._figures


class ResultSubject(Subject):
    """A result that ``torcheer.explore`` wrote down: ``{"kind": "profile", "title": "…", "data": {…}}``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if path.stat().st_size > RESULT_LIMIT:
            raise TorcheerError(
                f"{path} is larger than {RESULT_LIMIT} bytes: that is no result of torcheer. "
                "Show results with tl.explore(result)."
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            self.kind, self._title = content["kind"], str(content["title"])
            self._data: dict[str, Any] = content["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise TorcheerError(
                f"{path} is not a result that torcheer wrote ({type(error).__name__}: {error}). "
                "Show results with tl.explore(result)."
            ) from None
        if self.kind not in shown.VIEWS or not isinstance(self._data, dict):
            raise TorcheerError(f"{path} holds a {self.kind!r}. There are: {', '.join(shown.VIEWS)}.")

    @property
    def title(self) -> str:
        return self._title

    def data(self, _options: Mapping[str, str]) -> dict[str, Any]:
        return self._data
