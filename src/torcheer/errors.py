"""Every error torcheer raises on purpose.

    TorcheerError
    ├── LookupKeyError    a key names no layer, module or position   (also a KeyError)
    ├── NotSavedError     the thing exists, its tensor was not kept
    ├── CaptureError      the model or its input cannot be recorded as asked
    ├── ComparisonError   two models or recordings cannot be compared as asked
    ├── NonFiniteError    NaN or Inf was born, and the run was to stop there
    ├── RecordFileError   a recording on disk cannot be written or read
    ├── DrawError         a picture cannot be drawn as asked
    ├── StoreError        a watched run on disk cannot be written or read
    ├── WatchError        a model cannot be watched as asked
    └── MissingExtraError an optional dependency is not installed    (also an ImportError)

A message says what is wrong, where, and how to mend it; the remedy comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TorcheerError(Exception):
    """Base class of all errors torcheer raises on purpose."""


class LookupKeyError(TorcheerError, KeyError):
    """A lookup key names nothing in the record."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message, with its newlines escaped.
        return str(self.args[0]) if self.args else ""


class NotSavedError(TorcheerError):
    """The tensor asked for was seen but not kept."""


class CaptureError(TorcheerError):
    """The model or its input cannot be recorded as asked."""


class ComparisonError(TorcheerError):
    """Two models or recordings cannot be compared as asked."""


class NonFiniteError(TorcheerError):
    """NaN or Inf was born in a run that was to stop there."""


class RecordFileError(TorcheerError):
    """A recording on disk cannot be written or read."""


class DrawError(TorcheerError):
    """A picture cannot be drawn as asked."""


class StoreError(TorcheerError):
    """A watched run on disk cannot be written or read."""


class WatchError(TorcheerError):
    """A model cannot be watched as asked."""


class MissingExtraError(TorcheerError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        # torch itself is no extra.
        wanted = f"'torcheer[{extra}]'" if extra else package
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. Install it with: pip install {wanted}"
        )


def near_misses(key: str, known: Iterable[str], limit: int = 5) -> str:
    """Return ``" Did you mean 'a', 'b'?"``, or an empty string when nothing is close."""
    candidates = list(known)
    close = get_close_matches(key, candidates, n=limit, cutoff=0.6)
    inside = [name for name in candidates if key and key.lower() in name.lower()]
    names = list(dict.fromkeys([*close, *inside]))[:limit]
    if not names:
        return ""
    return " Did you mean " + ", ".join(repr(name) for name in names) + "?"


def near_or_all(key: str, known: Iterable[str], limit: int = 10) -> str:
    """Return what is close, or else what there is to choose from."""
    names = list(known)
    listed = ", ".join(map(repr, names[:limit])) or "none"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return near_misses(key, names) or f" There are: {listed}{more}."
