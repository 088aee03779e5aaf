"""Where a recording may come to be, and how it gets there whole; errors of the file system in plain words."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from torcheer.errors import RecordFileError
from torcheer.record.file_structure import why_foreign
from torcheer.record.interrupts import no_interrupts

if sys.platform != "win32":
    import fcntl

_UNFINISHED = re.compile(r"[0-9a-f]{8}\.(part|old)")


def check_place(place: Path, overwrite: bool) -> None:
    """Raise unless a recording may come to be there."""
    try:
        null = b"\0" in os.fsencode(place)
    except UnicodeEncodeError:
        null = True
    if null:
        raise RecordFileError(f"{str(place)!r}: no file can have that name. Choose another path.")
    with writing(place):
        if not place.parent.is_dir():
            raise RecordFileError(f"{place}: there is no folder {str(place.parent)!r}. Create it first.")
        if not os.path.lexists(place):
            return
        if not overwrite:
            raise RecordFileError(
                f"{place}: exists already. Choose another path, or pass overwrite=True to replace the recording."
            )
        reason = why_foreign(place)
    if reason is not None:
        raise RecordFileError(
            f"{place}: is not a torcheer recording ({reason}), and overwrite=True replaces nothing else. "
            "Choose another path, or remove it yourself."
        )


_REMEDIES = {
    errno.ENOSPC: "Free some space, or choose another path.",
    errno.EDQUOT: "Free some space, or choose another path.",
    errno.EFBIG: "A file may not grow that large here (ulimit -f): raise the limit, or choose another path.",
    errno.EACCES: "Choose a path where you may write.",
    errno.EPERM: "Choose a path where you may write.",
    errno.EROFS: "Choose a path where you may write.",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an error of the file system what it means for the recording."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Choose another path.")
        raise RecordFileError(
            f"{path}: the recording cannot be written ({error.strerror or error}). {remedy}"
        ) from error


def remove(folder: Path) -> None:
    """Remove a folder of ours: its files, no folders in it, and no error when something else is there."""
    with suppress(OSError):
        for name in os.listdir(folder):
            (folder / name).unlink()
        folder.rmdir()


def hold(folder: Path) -> int | None:
    """Mark a folder as being written for as long as this process lives; None where it is, or cannot be, marked.

    The system takes the mark back when the process ends, however it ends.
    """
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else holds it, or the file system knows no locks
        os.close(descriptor)
        return None
    return descriptor


def release(descriptor: int | None) -> None:
    """Take the mark of ``hold`` back."""
    if descriptor is not None:
        os.close(descriptor)


def unfinished(place: Path) -> list[Path]:
    """What was being written to a place, or replaced there, and never came to be there."""
    name = f".{place.name}."
    try:
        found = [entry for entry in os.listdir(place.parent) if entry.startswith(name)]
    except OSError:
        return []
    return [
        place.parent / entry for entry in sorted(found) if re.fullmatch(r"[0-9a-f]{8}\.(part|old)", entry[len(name) :])
    ]


def remove_abandoned(place: Path) -> None:
    """Remove what processes that are dead were writing to a place."""
    for folder in unfinished(place):
        if folder.suffix == ".part" and (descriptor := hold(folder)) is not None:
            remove(folder)
            release(descriptor)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that does not exist yet. Ctrl-C waits until it is closed: between the opening and the ``with``
    nobody would close it."""
    with no_interrupts(), open(path, "xb") as file:
        yield file


def write_synced(path: Path, text: bytes) -> None:
    """Write a file that does not exist yet and have the disk keep it."""
    with new_file(path) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder, through a loss of power."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    with no_interrupts():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def move(folder: Path, place: Path, overwrite: bool) -> None:
    """Rename a finished folder to its place; a recording that is there steps aside meanwhile."""
    check_place(place, overwrite)
    if not os.path.lexists(place):
        os.rename(folder, place)
        return
    old = place.with_name(f".{place.name}.{uuid4().hex[:8]}.old")
    os.rename(place, old)
    try:
        os.rename(folder, place)
    except OSError:
        os.rename(old, place)
        raise
    remove(old)
