"""Recordings on disk made without torch, and ways to damage them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.unit.make_record import make_record
from torcheer.record.file_shard import Block, write_shard
from torcheer.record.file_structure import FILE_NAME, Contents, to_text
from torcheer.record.file_tensors import Shard, Stored, TensorIndex, Unsaved

SHARD = "tensors-00001.safetensors"


def write_recording(path: Path) -> Path:
    """A recording with one file of tensors, written piece by piece."""
    path.mkdir()
    with open(path / SHARD, "xb") as file:
        blocks = [
            Block("value.4", "U8", (3,), None, b"abc", None),
            Block("value.5", "F32", (), None, b"1234", 0),
        ]
        size_bytes = write_shard(file, blocks)
    index = TensorIndex(
        [Shard(SHARD, size_bytes)],
        [Stored("value.4", 0, crc32=zlib.crc32(b"abc")), Stored("value.5", 0, crc32=zlib.crc32(b"1234"))],
        [Unsaved("value.6", "its layout is sparse_coo")],
    )
    (path / FILE_NAME).write_bytes(to_text(Contents(make_record(), index), path))
    return path


def structure(path: Path) -> Any:
    return json.loads((path / FILE_NAME).read_bytes())


def seal(path: Path, data: Any, **header: Any) -> None:
    """Write a changed structure with a checksum that fits, as someone who means harm would."""
    body = json.dumps(data["body"], separators=(",", ":")).encode()
    head = {**{key: data[key] for key in data if key != "body"}, "crc32": f"{zlib.crc32(body):08x}", **header}
    text = json.dumps(head, separators=(",", ":")).encode()[:-1] + b',\n"body":' + body + b"}\n"
    (path / FILE_NAME).write_bytes(text)


def containers(data: Any) -> Iterator[Any]:
    """Every non-empty list and dict in JSON data."""
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, dict)) and item:
            yield item
            stack.extend(item.values() if isinstance(item, dict) else item)
