"""Writes the tensors of a recording as they come, and the recording around them in the end.

There is this one way to write: ``file.write`` uses it too.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, BinaryIO
from uuid import uuid4

from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file_place import (
    check_place,
    hold,
    move,
    new_file,
    release,
    remove,
    remove_abandoned,
    sync,
    write_synced,
    writing,
)
from torcheer.record.file_shard import (
    UnsavableError,
    check_savable,
    num_bytes_of,
    own_part,
    to_block,
    write_shard,
)
from torcheer.record.file_structure import FILE_NAME, Contents, load, to_text
from torcheer.record.file_tensors import (
    FilePayloads,
    Shard,
    Stored,
    TensorIndex,
    Unsaved,
    check_shard,
    unsaved_text,
)
from torcheer.record.interrupts import no_interrupts
from torcheer.record.model import Record

BUFFER_BYTES = 64 * 2**20
MAX_SHARD_TENSORS = 10_000  # a safetensors header may have at most 100 MB
PAYLOAD_NAME = re.compile(r"[!-~]{1,200}")


class TensorWriter:
    """Takes tensors one by one, keeps few in memory, and makes a recording of them in the end.

    Until it is finished it is a payload store of what it has taken. A tensor is only referred to until its
    file is written: while ``is_pending(name)``, whoever is about to change it in place puts a copy under the
    same name. ``put`` runs tensor operations, so no mode of the capture may be active when it is called.

    Any error removes what was written. Ctrl-C may come between the making of a writer and the ``with`` or ``try``
    that looks after it: make it in a block of ``no_interrupts``. (A ``__del__`` would not do: what is raised in one
    is lost, Ctrl-C included.)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        # The working directory may change before the recording is finished.
        place = Path(os.path.abspath(path))
        check_place(place, overwrite)
        part = place.with_name(f".{place.name}.{uuid4().hex[:8]}.part")
        with writing(place), no_interrupts():
            remove_abandoned(place)
            # Held before it gets the name by which another process would find it.
            fresh = part.with_suffix(".new")
            fresh.mkdir()
            self._hold = hold(fresh)
            fresh.rename(part)
            self._begin(place, part, TensorIndex(), buffer_bytes)
            self._overwrite = overwrite

    @classmethod
    def reopen(cls, path: str | os.PathLike[str], *, buffer_bytes: int = BUFFER_BYTES) -> TensorWriter:
        """Continue a recording: tensors put are added, or replace those of the same name, on ``finish``."""
        place = Path(os.path.abspath(path))
        index = load(place).tensors
        for shard in index.shards:
            check_shard(place, shard)
        writer = cls.__new__(cls)
        writer._hold = None
        writer._begin(place, place, index, buffer_bytes)
        return writer

    def _begin(self, place: Path, folder: Path, index: TensorIndex, buffer_bytes: int) -> None:
        self.path = place
        self._folder = folder  # where files go until finish: the place itself when reopened
        self._shards = index.shards
        self._stored = {stored.name: stored for stored in index.stored}
        self._unsaved = {entry.name: entry.reason for entry in index.unsaved}
        self._buffer: dict[str, Any] = {}
        self._buffered_bytes = 0
        self._buffer_bytes = buffer_bytes
        self._new_files: list[Path] = []
        self._dropped: set[str] = set()
        self._reader: FilePayloads | None = None
        self._overwrite = False
        self._done = False
        # Modules may run in several threads; reentrant, because an error aborts from within.
        self._lock = RLock()

    def put(self, name: str, tensor: Any) -> None:
        """Keep a tensor under a name. One that cannot be stored is listed with the reason instead."""
        if not PAYLOAD_NAME.fullmatch(name) or name == "__metadata__":
            raise RecordFileError(f"{name!r} is no name for a tensor: use letters, digits and dots.")
        with self._lock, self._aborting():
            self._check_open()
            self._forget(name)
            tensor = own_part(tensor)
            try:
                check_savable(tensor)
            except UnsavableError as error:
                self._unsaved[name] = str(error)
                return
            self._buffer[name] = tensor
            self._buffered_bytes += num_bytes_of(tensor)
            if self._buffered_bytes >= self._buffer_bytes or len(self._buffer) >= MAX_SHARD_TENSORS:
                self._flush()

    def skip(self, name: str, reason: str) -> None:
        """List a tensor as not saved; the reason completes "… was not saved: "."""
        with self._lock:
            self._check_open()
            self._forget(name)
            self._unsaved[name] = reason

    def is_pending(self, name: str) -> bool:
        """Whether a tensor is only referred to so far, and would be stored as changed if it were changed."""
        return name in self._buffer

    def finish(self, record: Record) -> FilePayloads:
        """Complete the recording and move it to its place; return its tensors."""
        with self._lock, self._aborting():
            self._check_open()
            self._flush()
            self._drop_empty_shards()
            text = to_text(Contents(record, self._index()), self.path)
            self._close_reader()
            with writing(self.path):
                for file in self._new_files:
                    sync(file)
                if self._folder == self.path:
                    self._replace_structure(text)
                else:
                    write_synced(self._folder / FILE_NAME, text)
                    sync(self._folder)
                    move(self._folder, self.path, self._overwrite)
                sync(self.path.parent)
            self._done = True
            release(self._hold)
            return FilePayloads(self.path, self._index())

    def abort(self) -> None:
        """Remove what was written. Does nothing once the recording is finished."""
        with no_interrupts(), self._lock:
            if self._done:
                return
            self._done = True
            self._buffer.clear()
            self._close_reader()
            if self._folder == self.path:
                for file in self._new_files:
                    with suppress(OSError):
                        file.unlink()
            else:
                remove(self._folder)
            release(self._hold)

    @property
    def unsaved(self) -> dict[str, str]:
        """Names of tensors that could not be stored, and why."""
        return dict(self._unsaved)

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def __contains__(self, name: object) -> bool:
        return name in self._buffer or name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter([*self._stored, *self._buffer])

    def __len__(self) -> int:
        return len(self._stored) + len(self._buffer)

    def __getitem__(self, name: str) -> Any:
        with self._lock:
            if name in self._buffer:
                return self._buffer[name]
            if name in self._unsaved:
                raise NotSavedError(unsaved_text(name, self._unsaved[name]))
            if self._reader is None:
                self._reader = FilePayloads(self._folder, self._index())
            return self._reader[name]

    def _check_open(self) -> None:
        if self._done:
            raise RecordFileError(
                f"{self.path}: the recording is finished or given up. Add to it with TensorWriter.reopen."
            )

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise

    def _forget(self, name: str) -> None:
        if name in self._buffer:
            self._buffered_bytes -= num_bytes_of(self._buffer.pop(name))
        self._unsaved.pop(name, None)
        if self._stored.pop(name, None) is not None:
            self._close_reader()

    def _flush(self) -> None:
        """Write the buffered tensors as one file and let go of them."""
        blocks = []
        for name, tensor in self._buffer.items():
            try:
                blocks.append(to_block(name, tensor))
            except UnsavableError as error:
                self._unsaved[name] = str(error)
        self._buffer.clear()
        self._buffered_bytes = 0
        if not blocks:
            return
        with writing(self.path), self._next_file() as file:
            size_bytes = write_shard(file, blocks)
        self._shards.append(Shard(self._new_files[-1].name, size_bytes))
        for block in blocks:
            checksum = zlib.crc32(block.data)
            self._stored[block.name] = Stored(block.name, len(self._shards) - 1, block.stands_for, checksum)
        self._close_reader()

    @contextmanager
    def _next_file(self) -> Iterator[BinaryIO]:
        """Open the next tensor file. One that exists is never touched: it could be a link to anywhere."""
        number = max((int(shard.file[8:-12]) for shard in self._shards), default=0)
        with ExitStack() as stack:
            while True:
                number += 1
                path = self._folder / f"tensors-{number:05}.safetensors"
                with suppress(FileExistsError):
                    file = stack.enter_context(new_file(path))
                    self._new_files.append(path)
                    break
            yield file

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _index(self) -> TensorIndex:
        unsaved = [Unsaved(name, reason) for name, reason in self._unsaved.items()]
        return TensorIndex(list(self._shards), list(self._stored.values()), unsaved)

    def _drop_empty_shards(self) -> None:
        """Forget files all of whose tensors were replaced."""
        used = sorted({stored.shard for stored in self._stored.values()})
        places = {shard: place for place, shard in enumerate(used)}
        self._dropped = {shard.file for shard in self._shards}
        self._shards = [self._shards[shard] for shard in used]
        self._dropped -= {shard.file for shard in self._shards}
        self._stored = {name: replace(stored, shard=places[stored.shard]) for name, stored in self._stored.items()}

    def _replace_structure(self, text: bytes) -> None:
        part = self._folder / f".{uuid4().hex[:8]}.part"
        self._new_files.append(part)
        write_synced(part, text)
        os.replace(part, self._folder / FILE_NAME)
        self._done = True  # nothing may be taken back from here on
        for name in self._dropped:
            with suppress(OSError):
                (self._folder / name).unlink()
        sync(self._folder)
