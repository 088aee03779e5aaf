"""Where in the user's source an operation was called."""

from __future__ import annotations

import os
from pathlib import Path

from torcheer.history.structure import Structure
from torcheer.record.model import Frame


def frame_text(frame: Frame | None) -> str:
    """Return ``model.py:34 in forward``; the path relative to the working directory where it is below it."""
    return f"{shown_path(frame.file)}:{frame.line} in {frame.function}" if frame is not None else "not known"


def shown_path(file: str) -> str:
    """Return a path relative to the working directory where it is below it."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory is gone
        return file
    # Everything is below the root, where a relative path would say less and not be shorter.
    if here == Path(here.anchor) or not Path(file).is_relative_to(here):
        return file
    return os.path.relpath(file, here)


def stack(structure: Structure, op: int) -> tuple[Frame, ...]:
    """Return the frames from the model's forward down to the call of an op."""
    record = structure.record
    sites = [record.calls[call].site for call in structure.call_chain(record.ops[op].call)]
    sites.append(record.ops[op].site)
    return tuple(frame for site in sites if site is not None for frame in record.sites[site].frames)
