"""A process that is killed while it writes leaves no recording, and nothing that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.make_record import make_record
from torcheer.errors import RecordFileError
from torcheer.record.file import TensorWriter, read, write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks of POSIX")

_WRITES_FOR_EVER = """
import sys
import numpy as np
from torcheer.record.file import TensorWriter
with TensorWriter(sys.argv[1], buffer_bytes=1000) as writer:
    for turn in range(10**6):
        writer.put(f"value.{turn}", np.zeros(200))
        print("wrote", flush=True)
        if turn == 3:
            input()
"""


def killed_while_writing(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITES_FOR_EVER, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == "wrote\n"
        # It lives and holds what it writes: nobody may take that away.
        TensorWriter(place).abort()
        (part,) = place.parent.iterdir()
        assert len(list(part.iterdir())) == 4
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_opening_says_what_lies_beside(tmp_path: Path) -> None:
    place = tmp_path / "run.tch"
    killed_while_writing(place)
    (part,) = tmp_path.iterdir()
    with pytest.raises(RecordFileError) as refusal:
        read(place)
    assert str(refusal.value) == (
        f"{place}: does not exist. {part.name} beside it is not finished: its process is still writing, or was ended. "
        "Wait for it, or record to the same path again, which removes what ended processes left."
    )


def test_writing_again_removes_what_was_left(tmp_path: Path) -> None:
    place = tmp_path / "run.tch"
    killed_while_writing(place)
    (tmp_path / ".run.tch.notes.part").mkdir()  # not of the form that torcheer gives
    (tmp_path / ".run.tch.0123abcd.part").symlink_to(tmp_path)  # a link of a stranger
    write(make_record(), {"value.4": np.ones(2)}, place)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        ".run.tch.0123abcd.part",
        ".run.tch.notes.part",
        "run.tch",
    ]
    assert read(place)[1]["value.4"].tolist() == [1, 1]


def test_a_recording_that_was_being_replaced_is_pointed_out(tmp_path: Path) -> None:
    place = write(make_record(), {}, tmp_path / "run.tch")
    place.rename(tmp_path / ".run.tch.0123abcd.old")
    with pytest.raises(
        RecordFileError, match=r"\.0123abcd\.old beside it is the recording that was being replaced.*rename"
    ):
        read(place)
    write(make_record(), {}, place)
    assert (tmp_path / ".run.tch.0123abcd.old").exists()
