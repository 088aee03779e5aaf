"""Tensors are written as they come, within a bounded memory, and can be added later; damage is noticed."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.make_record import loop_record, make_record
from tests.unit.record.recording import seal, structure
from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file import TensorWriter, read, write


def test_the_buffer_is_bounded_and_references_are_dropped(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch", buffer_bytes=4000) as writer:
        first = torch.zeros(600)
        writer.put("value.0", first)
        assert writer.is_pending("value.0")
        assert writer["value.0"] is first
        writer.put("value.1", torch.ones(600))
        assert not writer.is_pending("value.0")
        assert writer["value.0"] is not first
        first.add_(5)  # it was written before
        writer.put("value.2", torch.full((2,), 2.0))
        assert [name in writer for name in ("value.0", "value.1", "value.2", "value.3")] == [True] * 3 + [False]
        assert list(writer) == ["value.0", "value.1", "value.2"]
        assert len(writer) == 3
        assert [float(writer[name][0]) for name in writer] == [0, 1, 2]
        with pytest.raises(NotSavedError, match=r"'value\.9' is not in the recording"):
            writer["value.9"]
        payloads = writer.finish(make_record())
    assert sorted(entry.name for entry in payloads.path.iterdir()) == [
        "structure.json",
        "tensors-00001.safetensors",
        "tensors-00002.safetensors",
    ]
    assert [float(payloads[name][0]) for name in payloads] == [0, 1, 2]


def test_putting_a_name_again_replaces_it(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch", buffer_bytes=1000) as writer:
        writer.put("a", torch.zeros(3))
        writer.put("a", torch.ones(3))  # while pending: a copy made before a change in place
        writer.put("big", torch.zeros(500))
        assert not writer.is_pending("a")
        writer.put("a", torch.full((3,), 2.0))  # after it was written
        writer.put("b", torch.ones(2).to_sparse())
        writer.put("b", torch.ones(2))
        writer.put("big", torch.ones(2).to_sparse())
        payloads = writer.finish(make_record())
    assert list(payloads) == ["a", "b"]
    assert payloads["a"].tolist() == [2, 2, 2]
    assert payloads.unsaved == {"big": "its layout is sparse_coo"}
    # Nothing of the first file is left in use, so it is not listed; the checks on reading agree.
    assert read(payloads.path)[1]["b"].tolist() == [1, 1]


def test_gradients_are_added_to_a_finished_recording(tmp_path: Path) -> None:
    path = write(make_record(), {"value.4": torch.ones(2), "value.5": torch.zeros(2)}, tmp_path / "run.tch")
    before = read(path)[1]
    for turn in (1, 2):
        record, _ = read(path)
        record.run.num_backward = turn
        with TensorWriter.reopen(path) as writer:
            assert writer["value.4"].tolist() == [1, 1]
            writer.put("grad.4", torch.full((2,), float(turn)))
            payloads = writer.finish(record)
        assert payloads["grad.4"].tolist() == [turn, turn]
    record, payloads = read(path)
    assert record.run.num_backward == 2
    assert sorted(payloads) == ["grad.4", "value.4", "value.5"]
    assert payloads["grad.4"].tolist() == [2, 2]
    assert before["value.5"].tolist() == [0, 0]
    # The gradient of the first turn was replaced, and its file with it.
    assert sorted(entry.name for entry in path.iterdir()) == [
        "structure.json",
        "tensors-00001.safetensors",
        "tensors-00003.safetensors",
    ]


def test_giving_up_an_addition_leaves_the_recording_as_it_was(tmp_path: Path) -> None:
    path = write(make_record(), {"value.4": torch.ones(2)}, tmp_path / "run.tch")
    before = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    with TensorWriter.reopen(path, buffer_bytes=1) as writer:
        writer.put("grad.4", torch.ones(2))
        assert len(list(path.iterdir())) == 3
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before
    wrong = make_record()
    wrong.ops[0].call = 99
    writer = TensorWriter.reopen(path)
    writer.put("grad.4", torch.ones(2))
    with pytest.raises(RecordFileError, match="cannot be written"):
        writer.finish(wrong)
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before


def test_an_addition_writes_through_no_link_of_a_stranger(tmp_path: Path) -> None:
    path = write(make_record(), {"value.4": torch.ones(2)}, tmp_path / "run.tch")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (path / "tensors-00002.safetensors").symlink_to(victim)
    with TensorWriter.reopen(path) as writer:
        writer.put("grad.4", torch.ones(2))
        writer.finish(make_record())
    assert victim.read_text() == "mine"
    assert read(path)[1]["grad.4"].tolist() == [1, 1]


def test_a_full_disk_gives_up_the_recording_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, os.strerror(28))

    writer = TensorWriter(tmp_path / "run.tch", buffer_bytes=100)
    writer.put("value.1", torch.ones(100))
    monkeypatch.setattr("torcheer.record.file_writer.write_shard", full)
    with pytest.raises(RecordFileError, match=r"No space left on device.*Free some space"):
        writer.put("value.2", torch.ones(100))
    assert list(tmp_path.iterdir()) == []


def test_memory_freed_while_it_was_pending_is_noticed(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch") as writer:
        tensor = torch.ones(10)
        writer.put("value.1", tensor)
        tensor.untyped_storage().resize_(0)
        payloads = writer.finish(make_record())
    assert payloads.unsaved == {"value.1": "its memory has been freed"}


def test_putting_a_tensor_leaves_it_as_it_is(tmp_path: Path) -> None:
    tensor = torch.randn(3, 4, requires_grad=True).t()
    before = (tensor.data_ptr(), tensor.stride(), tensor._version, tensor.requires_grad, tensor.grad_fn)
    state = torch.get_rng_state()
    write(make_record(), {"a": tensor}, tmp_path / "run.tch")
    assert (
        tensor.data_ptr(),
        tensor.stride(),
        tensor._version,
        tensor.requires_grad,
        tensor.grad_fn,
    ) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_may_put_at_once(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch", buffer_bytes=2000) as writer:

        def work(thread: int) -> None:
            for i in range(50):
                writer.put(f"value.{thread}.{i}", torch.full((20,), float(100 * thread + i)))
                assert writer[f"value.{thread}.{i}"][0] == 100 * thread + i

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        payloads = writer.finish(loop_record())
    assert len(payloads) == 200
    assert all(float(payloads[f"value.{t}.{i}"][19]) == 100 * t + i for t in range(4) for i in range(50))


def test_damaged_tensor_files_are_refused_or_read(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(4), "b": torch.randn(2, 2, dtype=torch.complex64), "c": torch.tensor([True])}
    path = write(make_record(), tensors, tmp_path / "run.tch")
    shard, chance = path / "tensors-00001.safetensors", random.Random(3)
    text = shard.read_bytes()
    num_header = 8 + int.from_bytes(text[:8], "little")
    num_refused = 0
    for _ in range(400):
        damaged = bytearray(text)
        for _ in range(chance.choice((1, 2, 5))):
            damaged[chance.randrange(num_header)] ^= 1 << chance.randrange(8)
        # A new file, since the old one is mapped.
        shard.unlink()
        shard.write_bytes(damaged)
        payloads = read(path)[1]
        for name in tensors:
            try:
                payloads[name]
            except RecordFileError as refusal:
                text_of_error = str(refusal)
                assert str(shard) in text_of_error or str(path) in text_of_error
                num_refused += 1
        payloads.close()
    assert num_refused > 600


def test_changed_bits_of_contents_are_never_shown(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(7), "b": torch.randn(2, 2, dtype=torch.complex64), "c": torch.ones(3).bfloat16()}
    path = write(make_record(), {**tensors, "none": torch.zeros(0)}, tmp_path / "run.tch")
    shard, chance = path / "tensors-00001.safetensors", random.Random(4)
    text = shard.read_bytes()
    first = 8 + int.from_bytes(text[:8], "little")
    for _ in range(100):
        damaged = bytearray(text)
        damaged[chance.randrange(first, len(text))] ^= 1 << chance.randrange(8)
        # A new file, since the old one is mapped.
        shard.unlink()
        shard.write_bytes(damaged)
        payloads = read(path)[1]
        refusals = []
        for name in payloads:
            try:
                payloads[name]
            except RecordFileError as refusal:
                refusals.append(str(refusal))
        (refusal,) = refusals
        assert "its checksum is wrong" in refusal
        assert refusal.endswith("restore it from a copy, or record again.")
        payloads.close()


def test_recordings_from_before_there_were_checksums_open(tmp_path: Path) -> None:
    path = write(make_record(), {"a": torch.ones(2)}, tmp_path / "run.tch")
    data = structure(path)
    for stored in data["body"]["tensors"]["fields"]["stored"]["columns"].values():
        assert stored  # a column is there
    del data["body"]["tensors"]["fields"]["stored"]["columns"]["crc32"]
    seal(path, data)
    assert read(path)[1]["a"].tolist() == [1, 1]


def test_a_dtype_that_does_not_fit_its_stand_in_is_refused(tmp_path: Path) -> None:
    path = write(make_record(), {"a": torch.zeros(4, dtype=torch.complex64)}, tmp_path / "run.tch")
    shard = path / "tensors-00001.safetensors"
    shard.write_bytes(shard.read_bytes().replace(b'"shape":[4,2]', b'"shape":[2,4]'))
    with pytest.raises(RecordFileError, match=r"'a' cannot be read \(.*\)\. The recording is damaged"):
        read(path)[1]["a"]
