"""What a verb answers, in both forms: text for people, one JSON shape for programs; and its exit code.

With ``--json``, stdout carries one JSON object and nothing else, whatever the user's model prints:

    {"torcheer": "0.1.0", "verb": "trace", "status": "done", "exit": 0,
     "result": {…}, "files": ["run.tch"], "notes": ["…"], "error": null}

Messages and progress go to stderr in either form.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, TextIO

DONE = 0  # equal, all well
DIFFERENT = 1  # compare: not equal; doctor: something is missing; profile --fail-on-nan, watch --nan: NaN was born
FAILED = 2  # it could not be done, or was not asked for rightly
STATUS = {DONE: "done", DIFFERENT: "different", FAILED: "failed"}


@dataclass(slots=True)
class Answer:
    """What a verb did."""

    text: str = ""  # for people
    result: dict[str, Any] = field(default_factory=dict)  # for programs: each verb says what is in it
    files: list[str] = field(default_factory=list)  # that were written
    notes: list[str] = field(default_factory=list)  # what the reader must know
    code: int = DONE
    error: BaseException | None = None  # of the user's model, where there is an answer all the same


def as_json(verb: str, answer: Answer, error: BaseException | None = None) -> bytes:
    """The answer as JSON."""
    # They are only needed for programs.
    from torcheer import __version__
    from torcheer.views.page import encoded

    error = error or answer.error
    what = None if error is None else {"kind": type(error).__name__, "message": str(error)}
    return encoded(
        {
            "torcheer": __version__,
            "verb": verb,
            "status": STATUS[answer.code],
            "exit": answer.code,
            "result": answer.result,
            "files": answer.files,
            "notes": answer.notes,
            "error": what,
        }
    )


def say(message: str) -> None:
    """A message for people, beside the answer."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def stdout_for_answer() -> Iterator[TextIO]:
    """Yields the real stdout; what anybody else writes to stdout goes to stderr meanwhile, C code and children too."""
    out = sys.stdout
    out.flush()
    try:
        is_real = out.fileno() == 1
    except (OSError, ValueError):  # a test's, or a notebook's
        is_real = False
    if not is_real:
        with redirect_stdout(sys.stderr):
            yield out
        return
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding="utf-8", closefd=False) as answer, redirect_stdout(sys.stderr):
            yield answer
    finally:
        os.dup2(kept, 1)
        os.close(kept)
