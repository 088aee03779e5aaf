"""Whose code is a line of source: told from the path of its file alone, since a recording is read on other machines."""

from __future__ import annotations

import re
from types import FrameType

from torcheer.record.model import Frame

_INSTALLED = re.compile(r"[\\/](site-packages|dist-packages)[\\/]|[\\/]lib[\\/]python3[^\\/]*[\\/]|^<frozen ")
_FRAMEWORK = re.compile(r"[\\/](site-packages|dist-packages)[\\/](torch|paddle)[\\/]|^<frozen ")


def is_installed(frame: Frame) -> bool:
    """Is it of an installed package, or of Python's own library?"""
    return _INSTALLED.search(frame.file) is not None


def is_framework(frame: Frame) -> bool:
    """Is it of PyTorch or Paddle?"""
    return _FRAMEWORK.search(frame.file) is not None


def source(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the innermost frame of the user's own code.

    A model that comes whole from an installed package has none: then it is the innermost frame outside the framework.
    """
    for skipped in (is_installed, is_framework):
        for frame in reversed(frames):
            if not skipped(frame):
                return frame
    return frames[-1] if frames else None


def callers(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return the lines of the user's own code that led to a running frame, outermost first."""
    found: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        found.append(Frame(code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    return tuple(one for one in reversed(found) if not is_installed(one))
