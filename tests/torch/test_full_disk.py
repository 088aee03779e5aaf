"""Where a file cannot grow, a recording is refused with a remedy, and what was there before is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torcheer as tl

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")

# The limit holds for the process and everything it starts, so it is set in one of its own.
PROGRAM = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # or the process is ended
import torch, torcheer as tl
from torcheer.errors import RecordFileError
folder = sys.argv[1]
model, x = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]), torch.randn(64, 256)
history = tl.log_forward_pass(model, x)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for write in (
    lambda: history.save(f"{folder}/new.tch"),
    lambda: history.save(f"{folder}/old.tch", overwrite=True),
    lambda: tl.log_forward_pass(model, x, save_to=f"{folder}/direct.tch"),
    lambda: tl.log_forward_pass(model, x[:1], save_to=f"{folder}/small.tch").log_backward(torch.zeros(1)),
):
    try:
        write()
    except RecordFileError as error:
        print(str(error).replace(folder, "DIR"))
    except RuntimeError as error:
        print(type(error).__name__)
    print(sorted(os.listdir(folder)))
assert torch.equal(history.output, model(x))
"""


def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(3, 3), torch.rand(2, 3)
    before = tl.log_forward_pass(model, x)
    before.save(tmp_path / "old.tch")
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    remedy = (
        "the recording cannot be written (File too large). A file may not grow that large here (ulimit -f): "
        "raise the limit, or choose another path."
    )
    assert ran.stdout.splitlines() == [
        f"DIR/new.tch: {remedy}",
        "['old.tch']",
        f"DIR/old.tch: {remedy}",
        "['old.tch']",
        f"DIR/direct.tch: {remedy}",
        "['old.tch']",
        "RuntimeError",  # the loss has no graph; the recording itself is small enough, and there
        "['old.tch', 'small.tch']",
    ]
    assert torch.equal(tl.load(tmp_path / "old.tch")[-1].tensor_contents, before.output)
