"""Whatever happens to a file, reading it gives a record that holds together or a RecordFileError."""

from __future__ import annotations

import random
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.unit.record.recording import SHARD, containers, seal, structure, write_recording
from torcheer.errors import RecordFileError
from torcheer.record.file import read
from torcheer.record.file_check import check_record
from torcheer.record.file_structure import FILE_NAME, HINT
from torcheer.record.file_tensors import RESTORE

# What replaces a value: every JSON type, and those that look like forms of the format.
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 10**6, 2**63, 10**30, 0.5, 1e308, "", "x", "\ud800", [], {}, [[]], [None],
    [0], [-1], {"all": [0]}, {"all": []}, {"pool": [0], "rows": [0]}, {"len": [1], "item": [0]},
    {"null": [0], "rest": []}, {"fields": {}}, {"count": 10**9, "columns": {}}, {"r": 10**6},
    {"t": [{"t": []}]}, {"s": [0, 0, 0]}, {"d": [[0, 0]]}, {"f": "nan"}, {"i": "0x1"},
]  # fmt: skip


def outcome(path: Path) -> str:
    """ "loaded" or "refused"; any other error goes through."""
    try:
        record, payloads = read(path)
    except RecordFileError as refusal:
        text = str(refusal)
    else:
        text = ""
    if text:
        assert str(path) in text
        assert text.endswith((RESTORE, HINT, "pip install -U torcheer"))
        return "refused"
    check_record(record)
    assert all(isinstance(name, str) for name in payloads)
    repr(record)
    return "loaded"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "run.tch")


def test_flipped_bytes(recording: Path) -> None:
    path, chance = recording / FILE_NAME, random.Random(1)
    text = path.read_bytes()
    outcomes = []
    for _ in range(400):
        damaged = bytearray(text)
        for _ in range(chance.choice((1, 1, 1, 8))):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        outcomes.append(outcome(recording))
    # Only the version of torcheer in the header is not covered by the checksum.
    assert outcomes.count("refused") >= 395


def test_truncated_and_lengthened(recording: Path) -> None:
    path, chance = recording / FILE_NAME, random.Random(2)
    text = path.read_bytes()
    for length in [*range(120), *(chance.randrange(len(text)) for _ in range(100)), len(text) - 1]:
        path.write_bytes(text[:length])
        assert outcome(recording) == "refused"
    path.write_bytes(text + text)
    assert outcome(recording) == "refused"


def changed(data: Any, chance: random.Random) -> None:
    """Put something odd somewhere, delete something, double something, or swap two things."""
    place = chance.choice(list(containers(data)) or [[0]])
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = chance.choice(keys)
    action = chance.randrange(5)
    if action <= 1:
        place[key] = deepcopy(chance.choice(ODD))  # it may be changed in its turn
    elif action == 2:
        del place[key]
    elif action == 3 and isinstance(place, list):
        place.insert(key, deepcopy(place[key]))
    else:
        other = chance.choice(keys)
        place[key], place[other] = place[other], place[key]


@pytest.mark.parametrize("seed", range(4))
def test_changed_with_intent(seed: int, recording: Path) -> None:
    """The checksum fits: every check behind it has to hold by itself."""
    chance = random.Random(seed)
    outcomes = []
    for _ in range(250):
        data = structure(recording)
        for _ in range(chance.choice((1, 1, 2, 5))):
            changed(data["body"], chance)
        copy = recording.parent / "copy.tch"
        shutil.copytree(recording, copy)
        seal(copy, data)
        outcomes.append(outcome(copy))
        shutil.rmtree(copy)
    # Both must happen, or the test would not test.
    assert 20 < outcomes.count("loaded") < 230


def test_every_value_of_every_odd_kind_in_turn(recording: Path) -> None:
    """Each column of the ops, values and calls is replaced as a whole by each odd thing."""
    original = structure(recording)
    for table in ("ops", "values", "calls", "sites"):
        columns = original["body"]["record"]["fields"][table]["columns"]
        for name in list(columns):
            kept = columns[name]
            for odd in ODD[:28]:
                columns[name] = odd
                seal(recording, original)
                outcome(recording)
            columns[name] = kept
    seal(recording, original)
    assert outcome(recording) == "loaded"


def test_damaged_tensor_files_of_the_right_size_still_open(recording: Path) -> None:
    """Their contents are looked at when a tensor is asked for; tests/torch/test_record_file.py does that."""
    path = recording / SHARD
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert outcome(recording) == "loaded"
