"""A recording on disk: one folder, by convention named ``run.tch``.

    run.tch/
      structure.json              the record, and which tensor is in which file: ``file_structure.py``
      tensors-00001.safetensors   tensors, in files of about 64 MiB: ``file_shard.py``
      tensors-00002.safetensors

It opens without torch. Nothing in it is code: no pickle, no names to import, and everything is checked before
it is used, so a recording from a stranger is safe to open. The structure is read at once; tensors are mapped
into memory one by one, when asked for (``file_tensors.py``).

A recording appears whole or not at all: it is written to a folder beside its place, ``.run.tch.….part``, and
renamed when complete. Files the structure does not list do not count, and the structure is replaced in one
step, so tensors can be added later, too.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file_place import unfinished
from torcheer.record.file_structure import FILE_NAME, load
from torcheer.record.file_tensors import FilePayloads, check_shard
from torcheer.record.file_writer import TensorWriter
from torcheer.record.interrupts import no_interrupts
from torcheer.record.model import Record
from torcheer.record.payload import Payloads, unsaved_of

__all__ = ["FilePayloads", "TensorWriter", "is_recording", "read", "recordings_in", "write"]


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a recording, as far as its folder tells."""
    return os.path.isfile(os.path.join(path, FILE_NAME))


def recordings_in(path: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """The recordings that a folder holds, in order of name; none where it is a recording itself."""
    folder = Path(path)
    if is_recording(folder) or not folder.is_dir():
        return []
    return [*sorted(one for one in folder.iterdir() if one.suffix == ".tch" and is_recording(one))]


def write(record: Record, payloads: Payloads, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a recording and return its path. ``overwrite`` replaces a recording, and nothing else."""
    with ExitStack() as stack:
        with no_interrupts():
            writer = stack.enter_context(TensorWriter(path, overwrite=overwrite))
        for name in payloads:
            try:
                contents = payloads[name]
            except NotSavedError as error:  # overwritten since; the others are worth saving all the same
                writer.skip(name, str(error))
            else:
                writer.put(name, contents)
        for name, reason in unsaved_of(payloads).items():
            writer.skip(name, reason)
        return writer.finish(record).path


def read(path: str | os.PathLike[str], *, arrays: bool = False) -> tuple[Record, FilePayloads]:
    """Open a recording: its record, and its tensors, which are read when asked for; with ``arrays`` as numpy's."""
    folder = Path(os.path.abspath(path))  # tensors are read later, maybe from another working directory
    if not os.path.lexists(folder) and (found := unfinished(folder)):
        raise RecordFileError(f"{folder}: does not exist. {_why_unfinished(found[-1])}")
    contents = load(folder)
    for shard in contents.tensors.shards:
        check_shard(folder, shard)
    return contents.record, FilePayloads(folder, contents.tensors, arrays=arrays)


def _why_unfinished(found: Path) -> str:
    if found.suffix == ".old":
        return f"{found.name} beside it is the recording that was being replaced when its process ended: rename it."
    return (
        f"{found.name} beside it is not finished: its process is still writing, or was ended. "
        "Wait for it, or record to the same path again, which removes what ended processes left."
    )
