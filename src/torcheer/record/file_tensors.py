"""The tensors of a recording on disk: opened when the first is asked for, and mapped, not read."""

from __future__ import annotations

import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file_plain import MalformedError
from torcheer.record.file_shard import AS_BYTES, AS_PAIRS, NUMPY_CODES, raw_bytes

SHARD_NAME = re.compile(r"tensors-[0-9]{5,9}\.safetensors")


@dataclass(slots=True)
class Shard:
    """A file of tensors."""

    file: str  # its name in the folder
    size_bytes: int


@dataclass(slots=True)
class Stored:
    """Where a tensor is."""

    name: str
    shard: int  # index into Contents.shards
    dtype: str | None = None  # what the dtype in the file stands for; None: itself
    crc32: int | None = None  # checksum of its bytes in the file; None: written before there was one


@dataclass(slots=True)
class Unsaved:
    """A tensor that was to be kept and could not be."""

    name: str
    reason: str  # "its layout is sparse_coo"


@dataclass(slots=True)
class TensorIndex:
    """What structure.json says of tensors."""

    shards: list[Shard] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    unsaved: list[Unsaved] = field(default_factory=list)


def check_index(index: TensorIndex) -> None:
    """Raise ``MalformedError`` unless file names are plain and every tensor is in one of them, once."""
    for shard in index.shards:
        if not SHARD_NAME.fullmatch(shard.file):
            raise MalformedError(f"{shard.file[:80]!r} is not a name of a tensor file")
        if shard.size_bytes < 0:
            raise MalformedError(f"the size of {shard.file} is negative")
    if len({shard.file for shard in index.shards}) < len(index.shards):
        raise MalformedError("a tensor file is listed twice")
    for stored in index.stored:
        if not 0 <= stored.shard < len(index.shards):
            raise MalformedError(f"{stored.name[:80]!r} is in tensor file {stored.shard} of {len(index.shards)}")
        if stored.crc32 is not None and not 0 <= stored.crc32 < 2**32:
            raise MalformedError(f"{stored.name[:80]!r} has a checksum of more than 32 bits")
        if stored.dtype is not None and stored.dtype not in AS_BYTES and stored.dtype not in AS_PAIRS:
            raise MalformedError(f"{stored.name[:80]!r} has the unknown dtype {stored.dtype[:80]!r}")
    names = [stored.name for stored in index.stored] + [entry.name for entry in index.unsaved]
    if len(set(names)) < len(names):
        raise MalformedError("a tensor is listed twice")


def check_shard(folder: Path, shard: Shard) -> Path:
    """Return the path of a shard if it is a file of the folder itself and of the right size."""
    path = folder / shard.file
    try:
        # Not followed: a link could lead out of the folder, and opening a pipe would wait for ever.
        status = os.lstat(path)
    except OSError as error:
        raise RecordFileError(f"{path}: cannot be opened ({error.strerror}). {RESTORE}") from error
    if not stat.S_ISREG(status.st_mode):
        raise RecordFileError(f"{path}: is not a regular file. {RESTORE}")
    if status.st_size != shard.size_bytes:
        raise RecordFileError(f"{path}: has {status.st_size} bytes instead of {shard.size_bytes}. {RESTORE}")
    return path


RESTORE = "The recording is damaged or was changed: restore it from a copy, or record again."


class FilePayloads:
    """The tensors of one recording, by name; a payload store (``payload.py``).

    They come as torch tensors where torch is installed, else as numpy arrays. Those of torch share the mapped
    memory: changing one in place is seen by the next reader in this process, and never reaches the file.

    arrays: as numpy arrays in any case, but for dtypes that numpy lacks; torch is then not even imported.
    """

    def __init__(self, path: Path, index: TensorIndex, *, arrays: bool = False) -> None:
        self.path = path
        self._arrays = arrays
        self._shards = index.shards
        self._stored = {stored.name: stored for stored in index.stored}
        self._unsaved = {entry.name: entry.reason for entry in index.unsaved}
        self._open: dict[tuple[int, str], Any] = {}
        self._intact: set[str] = set()  # whose checksum has been found right
        self._lock = Lock()

    @property
    def unsaved(self) -> dict[str, str]:
        """Names of tensors that were to be kept and could not be, and why."""
        return dict(self._unsaved)

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, name: str) -> Any:
        if name in self._unsaved:
            raise NotSavedError(unsaved_text(name, self._unsaved[name]))
        if name not in self._stored:
            raise NotSavedError(f"{name!r} is not in the recording {self.path}. Record again and save it.")
        stored = self._stored[name]
        path = self.path / self._shards[stored.shard].file
        # safetensors derives its error from Exception alone, so it has to be named; the others come out of
        # torch and numpy for a header that makes no sense to them.
        from safetensors import SafetensorError

        try:
            framework = self._framework_for(stored)
            source = self._source(stored.shard, framework)
            if name not in self._intact:
                _check_bytes(source, stored, framework)
                self._intact.add(name)
            return _to_torch(source, stored) if framework == "pt" else _to_numpy(source, stored, path)
        except (SafetensorError, RuntimeError, ValueError, TypeError, OSError) as error:
            raise RecordFileError(f"{path}: {name!r} cannot be read ({error}). {RESTORE}") from error
        except ImportError as error:
            raise RecordFileError(
                f"{path}: torch is installed and cannot be imported ({error}). Repair its installation."
            ) from error

    def _framework_for(self, stored: Stored) -> str:
        if not self._arrays or find_spec("numpy") is None:
            return _framework()
        code = self._source(stored.shard, "np").get_slice(stored.name).get_dtype()
        is_numpys = code in NUMPY_CODES and (stored.dtype is None or stored.dtype in AS_PAIRS)
        return "np" if is_numpys else _framework()

    def _source(self, number: int, framework: str) -> Any:
        with self._lock:
            if (number, framework) not in self._open:
                # Only whoever reads tensors pays for the import.
                from safetensors import safe_open

                path = check_shard(self.path, self._shards[number])
                self._open[number, framework] = safe_open(str(path), framework=framework)
            return self._open[number, framework]

    def close(self) -> None:
        """Close the files. Tensors already read stay valid; the next read opens a file again."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].__exit__(None, None, None)


def unsaved_text(name: str, reason: str) -> str:
    """Why a tensor is not to be had."""
    return f"{name!r} was not saved: {reason}. Its shape, dtype and place in the graph are in the record."


def _framework() -> str:
    if find_spec("torch") is not None:
        return "pt"
    if find_spec("numpy") is not None:
        return "np"
    raise RecordFileError("Reading tensors of a recording needs torch or numpy. Install one: pip install numpy")


def _check_bytes(source: Any, stored: Stored, framework: str) -> None:
    """Raise ``ValueError`` where the bytes of a tensor are not those that were written."""
    if stored.crc32 is None:
        return
    if framework == "np" and source.get_slice(stored.name).get_dtype() not in NUMPY_CODES:
        return  # it will be refused
    if zlib.crc32(raw_bytes(source.get_tensor(stored.name))) != stored.crc32:
        raise ValueError("its checksum is wrong")


def _to_torch(source: Any, stored: Stored) -> Any:
    tensor = source.get_tensor(stored.name)
    if stored.dtype is None:
        return tensor
    torch = sys.modules["torch"]
    if stored.dtype in AS_PAIRS:
        return torch.view_as_complex(tensor)
    dtype = getattr(torch, stored.dtype, None)
    if dtype is None:
        raise RecordFileError(f"{stored.name!r} is of dtype {stored.dtype}, which this torch lacks. Upgrade torch.")
    return tensor.view(dtype)


def _to_numpy(source: Any, stored: Stored, path: Path) -> Any:
    dtype = stored.dtype
    if dtype is None:
        code = source.get_slice(stored.name).get_dtype()
        if code in NUMPY_CODES:
            return source.get_tensor(stored.name)
        dtype = code
    if dtype not in ("complex64", "complex128"):
        raise RecordFileError(f"{path}: {stored.name!r} is of dtype {dtype}, which numpy lacks. Install torch.")
    pairs = source.get_tensor(stored.name)
    return pairs.view(dtype).reshape(pairs.shape[:-1])
