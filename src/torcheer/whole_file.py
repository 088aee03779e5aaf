"""Files that are there whole or not at all: written beside their place, then renamed.

Whatever is killed or runs out of disk on the way leaves the file as it was before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torcheer.errors import RecordFileError, TorcheerError


def check_writable(path: Path) -> None:
    """Raise if a file could not be written there, before anything is run for it."""
    if path.is_dir():
        raise _unwritable(path, "it is a folder")
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise _unwritable(path, f"{folder} is not a folder")
    # Tried, not asked: root may write everywhere by its permissions, and still not in /proc or on a read-only disk.
    trial = folder / f".{path.name}.{os.getpid()}.part"
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise _unwritable(path, f"{error.strerror or error} in {folder}") from error


@contextmanager
def writing(path: Path, kind: type[TorcheerError] = RecordFileError) -> Iterator[Path]:
    """Yields where to write what is to be at ``path``, whose folders are made; an ``OSError`` becomes this error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error), kind) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write(path: str | os.PathLike[str], content: str | bytes, kind: type[TorcheerError] = RecordFileError) -> None:
    """Write a file."""
    with writing(Path(path), kind) as part:
        part.write_bytes(content.encode("utf-8", "replace") if isinstance(content, str) else content)


def _unwritable(path: Path, reason: str, kind: type[TorcheerError] = RecordFileError) -> TorcheerError:
    return kind(f"{path} cannot be written: {reason}. Give a path in a folder you may write to.")
