"""A recording appears whole or not at all, and replaces nothing but a recording."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.make_record import loop_record, make_record, small_record
from tests.unit.record.recording import SHARD, seal, structure, write_recording
from torcheer import __version__
from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file import TensorWriter, read, write
from torcheer.record.file_structure import FILE_NAME, VERSION


def listing(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "run.tch")


@pytest.mark.parametrize("make", [small_record, loop_record, make_record])
def test_a_record_comes_back_from_disk(make: Any, tmp_path: Path) -> None:
    path = write(make(), {}, tmp_path / "run.tch")
    assert path == tmp_path / "run.tch"
    assert listing(tmp_path) == ["run.tch"]
    assert listing(path) == ["structure.json"]
    record, payloads = read(path)
    assert repr(record) == repr(make())
    assert len(payloads) == 0


def test_the_header_says_what_the_file_is(recording: Path) -> None:
    text = (recording / FILE_NAME).read_text(encoding="ascii")
    start = f'{{"format":"torcheer-record","version":1,"torcheer":"{__version__}","crc32":"'
    assert text.startswith(start)
    assert VERSION == 1
    assert structure(recording)["body"]["record"]["fields"]["ops"]["columns"]["call"][:3] == [0, 2, 3]


def test_the_structure_is_compact(tmp_path: Path) -> None:
    # One object per row would take more than a thousand bytes for each.
    record = make_record()
    size = (write(record, {}, tmp_path / "run.tch") / FILE_NAME).stat().st_size
    assert size < 250 * (len(record.ops) + len(record.aten) + len(record.values))


def test_names_of_tensors_are_known_without_opening_them(recording: Path) -> None:
    _, payloads = read(recording)
    assert list(payloads) == ["value.4", "value.5"]
    assert "value.4" in payloads
    assert "value.6" not in payloads
    assert 4 not in payloads
    assert payloads.unsaved == {"value.6": "its layout is sparse_coo"}
    with pytest.raises(NotSavedError, match=r"'value\.6' was not saved: its layout is sparse_coo\. Its shape"):
        payloads["value.6"]
    with pytest.raises(NotSavedError, match=r"'value\.7' is not in the recording .*run\.tch"):
        payloads["value.7"]


def test_what_is_no_tensor_is_listed_as_not_saved(tmp_path: Path) -> None:
    record, payloads = read(write(make_record(), {"value.4": [1.0]}, tmp_path / "run.tch"))
    assert payloads.unsaved == {"value.4": "it is a list and no tensor of torch, Paddle or numpy"}
    assert listing(tmp_path / "run.tch") == ["structure.json"]
    # Written again, the reason is kept.
    _, again = read(write(record, payloads, tmp_path / "again.tch"))
    assert again.unsaved == payloads.unsaved


@pytest.mark.parametrize("name", ["", "a b", "a\n", "__metadata__", "ü", "x" * 201])
def test_a_name_that_a_tensor_file_could_not_hold_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordFileError, match="is no name for a tensor: use letters, digits and dots"):
        write(make_record(), {name: 1}, tmp_path / "run.tch")
    assert listing(tmp_path) == []


def test_an_existing_recording_is_replaced_only_when_asked_for(recording: Path) -> None:
    before = (recording / FILE_NAME).read_bytes()
    with pytest.raises(RecordFileError, match=r"exists already\. Choose another path, or pass overwrite=True"):
        write(loop_record(), {}, recording)
    assert (recording / FILE_NAME).read_bytes() == before
    write(loop_record(), {}, recording, overwrite=True)
    assert read(recording)[0] == loop_record()
    assert listing(recording) == [FILE_NAME]
    assert listing(recording.parent) == ["run.tch"]


def _file(path: Path) -> None:
    path.write_text("mine")


def _empty(path: Path) -> None:
    path.mkdir()


def _other_json(path: Path) -> None:
    path.mkdir()
    (path / FILE_NAME).write_text('{"format": "other"}')


def _with_notes(path: Path) -> None:
    write_recording(path)
    (path / "notes.txt").write_text("mine")


def _with_folder(path: Path) -> None:
    write_recording(path)
    (path / "more").mkdir()


def _link(path: Path) -> None:
    path.symlink_to(write_recording(path.with_name("real.tch")), target_is_directory=True)


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_file, "it is not a folder"),
        (_empty, "its structure.json cannot be read"),
        (_other_json, "its structure.json is something else"),
        (_with_notes, "it holds 'notes.txt'"),
        (_with_folder, "it holds 'more'"),
        (_link, "it is not a folder"),
        (_dangling, "it is not a folder"),
    ],
)
def test_overwrite_replaces_nothing_but_recordings(make: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "run.tch"
    make(path)
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    with pytest.raises(RecordFileError) as caught:
        write(make_record(), {}, path, overwrite=True)
    assert "is not a torcheer recording (" + reason in str(caught.value)
    assert "overwrite=True replaces nothing else. Choose another path, or remove it yourself." in str(caught.value)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_a_recording_of_a_newer_torcheer_may_be_replaced(recording: Path) -> None:
    seal(recording, structure(recording), version=9)
    write(loop_record(), {}, recording, overwrite=True)
    assert read(recording)[0] == loop_record()


def test_the_place_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(RecordFileError, match=r"there is no folder '.*/none'\. Create it first"):
        write(make_record(), {}, tmp_path / "none" / "run.tch")
    for path in ("a\0b", "\ud800"):
        with pytest.raises(RecordFileError, match=r"no file can have that name\. Choose another path"):
            write(make_record(), {}, tmp_path / path)


def test_a_record_that_would_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    record = make_record()
    record.ops[1].args = ({1, 2},)
    with pytest.raises(RecordFileError) as caught:
        write(record, {}, tmp_path / "run.tch")
    assert str(caught.value) == (
        f"{tmp_path / 'run.tch'}: this record cannot be written (Contents.record: Record.ops: Op.args: a "
        "value of type 'set' is not plain data). That is a mistake in torcheer: please report it. "
        "To go on, keep the record in memory."
    )
    record = make_record()
    record.ops[1].call = 77
    with pytest.raises(RecordFileError, match=r"ops\[1\]\.call is 77: the number of calls is 6"):
        write(record, {}, tmp_path / "run.tch")
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (28, r"cannot be written \(No space left on device\)\. Free some space, or choose another path"),
        (13, r"cannot be written \(Permission denied\)\. Choose a path where you may write"),
        (5, r"cannot be written \(Input/output error\)\. Choose another path"),
    ],
)
def test_nothing_is_left_when_the_disk_fails(
    code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RecordFileError, match=message):
        write(make_record(), {}, tmp_path / "run.tch")
    assert listing(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of files")
def test_a_file_cut_short_by_the_system_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from torcheer.errors import RecordFileError;"
        "from tests.unit.make_record import make_record; from torcheer.record.file import write\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write(make_record(), {}, sys.argv[1])\n"
        "except RecordFileError as error: print(error)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.tch")],
        capture_output=True, text=True, check=True, timeout=60, cwd=root,
    )  # fmt: skip
    assert "the recording cannot be written (File too large). A file may not grow that large here" in done.stdout
    assert listing(tmp_path) == []


def test_the_old_recording_stays_when_the_new_one_fails(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, calls = os.rename, []

    def second_fails(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(RecordFileError, match="Input/output error"):
        write(loop_record(), {}, recording, overwrite=True)
    assert read(recording)[0] == make_record()
    assert listing(recording.parent) == ["run.tch"]


def test_leaving_a_writer_unfinished_leaves_nothing(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch"):
        assert len(listing(tmp_path)) == 1
    assert listing(tmp_path) == []
    writer = TensorWriter(tmp_path / "run.tch")
    writer.finish(make_record())
    writer.abort()
    assert listing(tmp_path) == ["run.tch"]
    with pytest.raises(RecordFileError, match=r"is finished or given up\. Add to it with TensorWriter\.reopen"):
        writer.put("value.1", 1)


def test_a_place_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch") as writer:
        write(loop_record(), {}, tmp_path / "run.tch")
        with pytest.raises(RecordFileError, match="exists already"):
            writer.finish(make_record())
    assert read(tmp_path / "run.tch")[0] == loop_record()
    assert listing(tmp_path) == ["run.tch"]


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TensorWriter("run.tch") as writer:
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        writer.finish(make_record())
    assert listing(tmp_path) == ["other", "run.tch"]


def test_a_record_can_be_replaced_in_its_recording(recording: Path) -> None:
    record, _ = read(recording)
    record.run.num_backward = 7
    writer = TensorWriter.reopen(recording)
    writer.skip("grad.4", "it is a meta tensor, which has no contents")
    assert list(writer) == ["value.4", "value.5"]
    writer.finish(record)
    loaded, payloads = read(recording)
    assert loaded.run.num_backward == 7
    assert set(payloads.unsaved) == {"value.6", "grad.4"}
    assert listing(recording) == [FILE_NAME, SHARD]
