"""structure.json: the record and the index of its tensors as text, with a header that says what it is.

    {"format":"torcheer-record","version":1,"torcheer":"0.1.0","crc32":"1f00ba42",
    "body":{"record":…,"tensors":…}}

The file is one JSON object. The line break before ``"body"`` is part of the format: the checksum is of the
text of the body, and the header can be read without it. The body's form is in ``file_codec.py``.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torcheer import __version__
from torcheer.errors import RecordFileError
from torcheer.record.file_check import check_record
from torcheer.record.file_codec import Budget, decode_column, encode_column, kind_of
from torcheer.record.file_plain import MalformedError
from torcheer.record.file_tensors import RESTORE, SHARD_NAME, TensorIndex, check_index
from torcheer.record.model import Record

FORMAT = "torcheer-record"
VERSION = 1  # raised when an older torcheer could no longer make sense of the file
FILE_NAME = "structure.json"
MAX_BYTES = 2**30  # of structure.json: about five million ops
_BODY = b',\n"body":'
_END = b"}\n"
HINT = "A recording is a folder such as 'run.tch', written by torcheer."


@dataclass(slots=True)
class Contents:
    """The body of structure.json."""

    record: Record
    tensors: TensorIndex


def to_text(contents: Contents, path: Path) -> bytes:
    """Return the text of structure.json; ``path`` is for messages."""
    try:
        check_record(contents.record)
        check_index(contents.tensors)
        fields = encode_column(kind_of(Contents), [contents])["fields"]
        body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (MalformedError, RecursionError) as error:
        raise RecordFileError(
            f"{path}: this record cannot be written ({error}). That is a mistake in torcheer: please report "
            "it. To go on, keep the record in memory."
        ) from error
    header = {"format": FORMAT, "version": VERSION, "torcheer": __version__, "crc32": _checksum(body)}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")[:-1] + _BODY + body + _END
    if len(text) > MAX_BYTES:
        raise RecordFileError(f"{path}: the record is larger than {MAX_BYTES} bytes. Record a shorter run.")
    return text


def load(folder: Path) -> Contents:
    """Read and check structure.json of a folder."""
    path, text = read_text(folder)
    header, body = _split(path, text)
    check_header(path, header)
    if body is None or header.get("crc32") != _checksum(body):
        raise _damaged(path, "its checksum is wrong")
    try:
        fields = json.loads(body, parse_constant=_refuse_constant)
        (contents,) = decode_column(kind_of(Contents), {"fields": fields}, 1, Budget(len(body)))
        check_record(contents.record)
        check_index(contents.tensors)
    except MalformedError as error:
        raise _damaged(path, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not valid JSON ({error})") from error
    return contents  # type: ignore[no-any-return]  # one cell of the kind asked for


def read_text(folder: Path) -> tuple[Path, bytes]:
    """Return path and text of structure.json, or say why the folder is no recording."""
    path = folder / FILE_NAME
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            what = "give the folder it is in" if folder.name == FILE_NAME else "a recording is a folder"
            raise RecordFileError(f"{folder}: is a file; {what}. {HINT}")
        # Not followed: a link could lead out of the folder, and opening a pipe would wait for ever.
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise RecordFileError(f"{path}: is not a regular file. {RESTORE}")
        if status.st_size > MAX_BYTES:
            raise RecordFileError(f"{path}: is larger than {MAX_BYTES} bytes, the most torcheer reads. {HINT}")
        return path, path.read_bytes()
    except FileNotFoundError as error:
        if os.path.lexists(folder):
            raise RecordFileError(f"{folder}: is not a torcheer recording (no {FILE_NAME}). {HINT}") from error
        raise RecordFileError(f"{folder}: does not exist. Check the path. {HINT}") from error
    except OSError as error:
        raise RecordFileError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error
    except ValueError as error:  # a null character in the path
        raise RecordFileError(f"{str(folder)!r}: is not a path ({error}). Check the path.") from error


def _split(path: Path, text: bytes) -> tuple[Any, bytes | None]:
    """Return the header and the text of the body; None where the file is laid out otherwise."""
    head, mark, body = text.partition(_BODY)
    laid_out = bool(mark) and body.endswith(_END)
    try:
        header = json.loads(head + b"}" if mark else text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not valid JSON ({error})") from error
    return header, body[: -len(_END)] if laid_out else None


def check_header(path: Path, header: Any) -> None:
    """Raise unless the header is one of a recording this version reads."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RecordFileError(f"{path}: is not part of a torcheer recording (no format {FORMAT!r}). {HINT}")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise _damaged(path, "its version is not a number")
    if version > VERSION:
        raise RecordFileError(
            f"{path}: written by a newer torcheer (format {version}, this one reads {VERSION}). "
            "Upgrade with pip install -U torcheer"
        )


def why_foreign(folder: Path) -> str | None:
    """Why a folder is not a recording and nothing else, or None: what ``overwrite`` may replace."""
    if folder.is_symlink() or not folder.is_dir():
        return "it is not a folder"
    others = [name for name in os.listdir(folder) if name != FILE_NAME and not SHARD_NAME.fullmatch(name)]
    if others:
        return f"it holds {sorted(others)[0]!r}"
    try:
        header, _ = _split(*read_text(folder))
    except RecordFileError as error:
        return f"its {FILE_NAME} cannot be read: {error}"
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return f"its {FILE_NAME} is something else"
    return None


def _checksum(body: bytes) -> str:
    return f"{zlib.crc32(body):08x}"


def _damaged(path: Path, what: str) -> RecordFileError:
    return RecordFileError(f"{path}: {what}. {RESTORE}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
