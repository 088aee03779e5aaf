"""What is no recording, or no longer one, is refused in plain words; nothing leads out of the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.make_record import make_record
from tests.unit.record.recording import SHARD, seal, structure, write_recording
from torcheer.errors import RecordFileError
from torcheer.record.file import read, write
from torcheer.record.file_structure import FILE_NAME
from torcheer.record.model import Record

RESTORE = "The recording is damaged or was changed: restore it from a copy, or record again."


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "run.tch")


def refused(path: Any) -> str:
    """The text of the error that reading raises; it names the path."""
    with pytest.raises(RecordFileError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_what_is_not_there_or_no_recording_is_said(tmp_path: Path) -> None:
    hint = "A recording is a folder such as 'run.tch', written by torcheer."
    assert refused(tmp_path / "none").endswith(f"none: does not exist. Check the path. {hint}")
    assert refused(tmp_path).endswith(f"is not a torcheer recording (no structure.json). {hint}")
    (tmp_path / "weights.pt").write_bytes(b"PK")
    assert refused(tmp_path / "weights.pt").endswith(f"weights.pt: is a file; a recording is a folder. {hint}")
    (tmp_path / FILE_NAME).write_text("[1, 2]")
    assert refused(tmp_path / FILE_NAME).endswith(f"is a file; give the folder it is in. {hint}")
    assert refused(tmp_path).endswith(f"is not part of a torcheer recording (no format 'torcheer-record'). {hint}")
    with pytest.raises(RecordFileError, match="is not a path"):
        read("a\0b")


def test_a_newer_format_asks_for_an_upgrade(recording: Path) -> None:
    seal(recording, structure(recording), version=3)
    assert refused(recording) == (
        f"{recording / FILE_NAME}: written by a newer torcheer (format 3, this one reads 1). "
        "Upgrade with pip install -U torcheer"
    )
    # Also when the newer one lays the file out otherwise.
    (recording / FILE_NAME).write_text('{"format": "torcheer-record", "version": 3, "pages": []}')
    assert "format 3, this one reads 1" in refused(recording)


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.0])
def test_a_version_that_is_none_is_refused(version: Any, recording: Path) -> None:
    seal(recording, structure(recording), version=version)
    assert refused(recording) == f"{recording / FILE_NAME}: its version is not a number. {RESTORE}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "it is not valid JSON"),
        (b"\xff\xfe\x00", "it is not valid JSON"),
        (b"[" * 200_000, "it is not valid JSON"),
        (b'{"a":' * 200_000, "it is not valid JSON"),
        (b"9" * 5000, "it is not valid JSON"),
        (b'{"format":"torcheer-record","version":1}', "its checksum is wrong"),
        (b'{"format":"torcheer-record","version":NaN}', "it is not valid JSON"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_text_that_is_no_structure_is_refused(text: bytes, what: str, recording: Path) -> None:
    (recording / FILE_NAME).write_bytes(text)
    message = refused(recording)
    assert what in message
    assert message.endswith(RESTORE)


def test_one_changed_byte_is_noticed(recording: Path) -> None:
    path = recording / FILE_NAME
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"conv2d"', b'"conv3d"', 1))
    assert refused(recording) == f"{path}: its checksum is wrong. {RESTORE}"
    path.write_bytes(text[:-10])
    assert refused(recording) == f"{path}: its checksum is wrong. {RESTORE}"


def test_the_place_of_a_fault_is_named(recording: Path) -> None:
    data = structure(recording)
    data["body"]["record"]["fields"]["ops"]["columns"]["call"][3] = "x"
    seal(recording, data)
    assert refused(recording) == (
        f"{recording / FILE_NAME}: Contents.record: Record.ops: Op.call: 'x' is not of type int. {RESTORE}"
    )


def test_a_deep_structure_is_refused(recording: Path, request: pytest.FixtureRequest) -> None:
    # Other libraries raise the limit; the bound on the depth must not hang on it.
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(50_000)
    data = structure(recording)
    deep: Any = 0
    for _ in range(400):
        deep = {"t": [deep]}
    data["body"]["record"]["fields"]["run"]["fields"]["output_data"] = [deep]
    seal(recording, data)
    assert refused(recording).endswith(RESTORE)


@pytest.mark.parametrize(
    "file",
    [
        "../secret.safetensors",
        "/etc/passwd",
        "tensors-00001.safetensors/../../x",
        "..",
        "",
        "sub/tensors-00001.safetensors",
        "tensors-00001.safetensors\n",
        "tensors-٠٠٠٠١.safetensors",
        "model.safetensors",
    ],
)
def test_a_tensor_file_is_never_outside_the_folder(file: str, recording: Path) -> None:
    data = structure(recording)
    data["body"]["tensors"]["fields"]["shards"]["columns"]["file"] = [file]
    seal(recording, data)
    assert refused(recording).endswith(f"{file!r} is not a name of a tensor file. {RESTORE}")


@pytest.mark.parametrize(
    ("table", "column", "cells", "what"),
    [
        ("stored", "shard", [0, 1], "'value.5' is in tensor file 1 of 1"),
        ("stored", "shard", [0, -1], "'value.5' is in tensor file -1 of 1"),
        ("stored", "name", ["value.5", "value.5"], "a tensor is listed twice"),
        ("stored", "name", ["value.6", "value.5"], "a tensor is listed twice"),
        ("stored", "dtype", [None, "__class__"], "'value.5' has the unknown dtype '__class__'"),
        ("shards", "size_bytes", [-1], f"the size of {SHARD} is negative"),
    ],
)
def test_an_index_of_tensors_that_makes_no_sense_is_refused(
    table: str, column: str, cells: list[Any], what: str, recording: Path
) -> None:
    data = structure(recording)
    data["body"]["tensors"]["fields"][table]["columns"][column] = cells
    seal(recording, data)
    assert refused(recording) == f"{recording / FILE_NAME}: {what}. {RESTORE}"


def test_a_tensor_file_that_is_gone_or_cut_is_noticed_at_once(recording: Path) -> None:
    path = recording / SHARD
    text = path.read_bytes()
    path.write_bytes(text[:-1])
    with pytest.raises(RecordFileError) as caught:
        read(recording)
    assert str(caught.value) == f"{path}: has {len(text) - 1} bytes instead of {len(text)}. {RESTORE}"
    path.unlink()
    assert refused(recording) == f"{path}: cannot be opened (No such file or directory). {RESTORE}"


@pytest.mark.skipif(os.name == "nt", reason="links and pipes are made otherwise on Windows")
@pytest.mark.parametrize("name", [FILE_NAME, SHARD])
def test_links_and_pipes_are_not_followed(name: str, recording: Path) -> None:
    path = recording / name
    outside = recording.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    assert refused(recording) == f"{path}: is not a regular file. {RESTORE}"
    path.unlink()
    os.mkfifo(path)
    assert refused(recording) == f"{path}: is not a regular file. {RESTORE}"
    path.unlink()
    path.mkdir()
    assert refused(recording) == f"{path}: is not a regular file. {RESTORE}"


def test_a_file_written_before_a_field_existed_still_loads(recording: Path) -> None:
    data = structure(recording)
    fields = data["body"]["record"]["fields"]
    del fields["ops"]["columns"]["phase"], fields["values"]["columns"]["node_output"], fields["diagnostics"]
    del fields["run"]["fields"]["seed"]
    seal(recording, data)
    record, expected = read(recording)[0], make_record()
    expected.diagnostics, expected.run.seed = [], None
    assert record == expected


def test_a_record_is_not_trusted_more_than_a_captured_one(recording: Path) -> None:
    data = structure(recording)
    data["body"]["record"]["fields"]["modules"]["columns"]["parent"] = [1, 0, 1, 1, 1, 0]
    seal(recording, data)
    assert refused(recording).endswith(f"modules[0].parent leads in a circle. {RESTORE}")


def test_an_empty_record_can_be_kept(tmp_path: Path) -> None:
    record = Record(make_record().run)
    assert read(write(record, {}, tmp_path / "run.tch"))[0] == record


def test_modules_that_are_not_needed_are_not_imported(recording: Path) -> None:
    code = (
        "import sys; from torcheer.record.file import read; record, payloads = read(sys.argv[1]);"
        "assert len(record.ops) == 10 and 'value.4' in payloads;"
        "print(*sorted({'torch', 'numpy', 'safetensors', 'pickle'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(recording)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
