"""What is said when something was raised: a message for our own errors, the user's own lines for theirs."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType, TracebackType

from torcheer.errors import TorcheerError

HOME = str(Path(__file__).parents[1])
FRAMEWORKS = ("torch", "paddle")


def described(error: BaseException) -> str:
    """The message of our own error; of another, its traceback without our frames and the framework's."""
    if isinstance(error, TorcheerError):
        return f"torcheer: {error}"
    if isinstance(error, OSError) and error.filename is not None and not _is_users(error.__traceback__):
        return f"torcheer: {error.filename}: {error.strerror}."
    frames = [
        summary
        for (frame, _), summary in zip(
            traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__), strict=True
        )
        if not _is_internal(frame)
    ]
    if frames:
        lines = ["Traceback of your code (frames of torcheer and the framework are left out):\n"]
        lines += traceback.format_list(frames)
    else:
        lines = ["This is a mistake in torcheer. Please report it with these lines:\n"]
        lines += traceback.format_tb(error.__traceback__)
    lines += traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip("\n")


def _is_users(trace: TracebackType | None) -> bool:
    return any(not _is_internal(frame) for frame, _ in traceback.walk_tb(trace))


def _is_internal(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = frame.f_code.co_filename
    return file.startswith((HOME, "<frozen")) or package in {*FRAMEWORKS, "importlib", "runpy"}
