"""Verbs in processes of their own: what a shell, a terminal and a browser see."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch

import torcheer as tl

SOURCES = str(Path(tl.__file__).resolve().parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8"}


def test_open_serves_without_torch_until_it_is_interrupted(tmp_path: Path) -> None:
    tl.log_forward_pass(torch.nn.ReLU(), torch.ones(3)).save(tmp_path / "run.tch")
    code = (
        "import sys\nfrom torcheer.cli.main import main\ncode = main(sys.argv[1:])\nassert 'torch' not in sys.modules\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "open", str(tmp_path / "run.tch"), "--no-browser", "--port", "0"],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as said:
        line = said.readline()
        address = re.search(r"http://\S+", line)
        assert address is not None, line + said.read()
        with urllib.request.urlopen(address[0], timeout=20) as page:
            assert b"torcheer" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0, said.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address[0], timeout=5)


def test_progress_is_shown_on_a_terminal_only(folder: Path) -> None:
    command = [sys.executable, "-m", "torcheer", "trace", "nets_of_a_user.py:Net", "-i", "2x4"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == ""
    terminal, end = pty.openpty()
    process = subprocess.Popen(command, env={**ENVIRONMENT, "TERM": "xterm"}, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # what Linux says at the end of a terminal
            break
        shown += more
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert b"recording" in shown
    assert b"3/3" in shown or b"2/3" in shown
