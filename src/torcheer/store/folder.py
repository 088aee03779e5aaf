"""A run's folder: made, found, locked; which file is whose, and how SQLite keeps it.

runs/resnet-1/
  run.json            what it is; written whole, once
  rank-0.sqlite       all that process 0 saw; rank-1.sqlite of process 1, and so on
  rank-0.lock         held by the process that writes rank-0.sqlite, for as long as it lives
  graph-0001.tch/     a recording of one forward pass, as `tl.load` reads it
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torcheer.errors import StoreError
from torcheer.store.schema import FORMAT, FORMAT_VERSION, MANIFEST, TABLES

_RANK_FILE = re.compile(r"rank-(\d+)\.sqlite")
# File systems of other machines: SQLite's write-ahead log needs memory shared between its readers and its writer.
_REMOTE = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "fuse.sshfs",
    "fuse.glusterfs", "9p", "fuse.gcsfuse", "fuse.s3fs",
}  # fmt: skip


def rank_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.sqlite"


def ranks_in(folder: Path) -> list[int]:
    """Numbers of the processes that have written into a run."""
    found = (_RANK_FILE.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match.group(1)) for match in found if match)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says, checked."""
    path = folder / MANIFEST
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(
            f"{folder} holds no watched run: it has no {MANIFEST}. Give the folder of one run, as tl.watch prints it."
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}. Give the folder of a run, as tl.watch prints it.") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise StoreError(f"{path} is not the file of a watched run. Give the folder of one, as tl.watch prints it.")
    check_version(folder, facts.get("version"))
    return facts


def check_version(folder: Path, version: object) -> None:
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise StoreError(
            f"{folder} has version {version} of the format, and this torcheer reads up to version {FORMAT_VERSION}. "
            "Upgrade with pip install -U torcheer"
        )


def make_folder(folder: Path, facts: dict[str, Any]) -> None:
    """Make a run's folder with its ``run.json``. Does nothing where the run is there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / MANIFEST).exists():
            read_manifest(folder)
            return
        whole = {"format": FORMAT, "version": FORMAT_VERSION, "id": uuid.uuid4().hex, "created": time.time(), **facts}
        part = folder / f".{MANIFEST}.{os.getpid()}.part"
        part.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        part.replace(folder / MANIFEST)
    except OSError as error:
        raise StoreError(
            f"The folder of the run, {folder}, cannot be written: {error.strerror or error}. "
            "Give another one: tl.watch(model, dir=...)"
        ) from None


class Lock:
    """Held while a process writes its file; the system gives it back when the process ends, however it ends."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank-{rank}.lock"
        self._connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._connection.close()
            if "locked" not in str(error):
                raise StoreError(f"{self.path} cannot be written: {error}. Give another folder with dir=...") from None
            raise StoreError(
                f"Another process is writing the run {folder} (process number {rank}). "
                "Give this one another name: tl.watch(model, name=...)"
            ) from None

    def release(self) -> None:
        self._connection.close()
        with suppress(OSError):
            self.path.unlink()


def is_locked(folder: Path, rank: int) -> bool:
    """Is a process writing this file now?"""
    path = folder / f"rank-{rank}.lock"
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=rw", uri=True, timeout=0)) as connection:
            connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def open_to_write(folder: Path, rank: int) -> sqlite3.Connection:
    """The file of one process, made if it is not there."""
    path = rank_path(folder, rank)
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        check_version(folder, version)
        connection.execute(f"PRAGMA journal_mode={'DELETE' if is_remote(folder) else 'WAL'}")
        # A power cut may cost the last steps, never the file; the end of the process costs nothing.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA journal_size_limit=4194304")
        if version == 0:
            connection.executescript(f"BEGIN;{TABLES}PRAGMA user_version={FORMAT_VERSION};COMMIT;")
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"{path} cannot be written: {error}. Give another folder with dir=...") from None
    except StoreError:
        connection.close()
        raise
    return connection


def open_to_read(folder: Path, rank: int) -> sqlite3.Connection:
    """The same, read only; also while it is written, after a kill, and in a folder that cannot be written."""
    path = rank_path(folder, rank)
    if not path.exists():
        raise StoreError(
            f"{folder} has nothing of process {rank}. Take one of these: {ranks_in(folder) or 'none has written yet'}."
        )
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"file:{_quoted(path)}?{options}", uri=True, timeout=5, isolation_level=None, check_same_thread=False
        )
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            check_version(folder, version)
            if version == 0:  # its tables are being made
                raise StoreError(f"{path} holds nothing yet. Open it a little later.")
            return connection
        except sqlite3.OperationalError as error:  # a folder without write access: no shared memory for the log
            connection.close()
            failure = error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise StoreError(
                f"{path} is damaged or no file of a watched run: {error}. Copy it from where it was whole."
            ) from None
        except StoreError:
            connection.close()
            raise
    raise StoreError(f"{path} cannot be read: {failure}. Check its permissions, and that nothing else holds it.")


def is_remote(folder: Path) -> bool:
    """Is the folder on a network file system? Unknown counts as no."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    best, kind = "", ""
    here = os.path.realpath(folder)
    for point, file_system in _mount_points(mounts):
        inside = here == point or here.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, file_system
    return kind in _REMOTE


def _mount_points(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        words = line.split(" ")
        if len(words) > 2:
            yield words[1].replace("\\040", " "), words[2]


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
