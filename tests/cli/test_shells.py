"""Completion in the shells themselves: a verb, an option, a choice and a file, asked for with TAB as a person does."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import torcheer

SOURCES = str(Path(torcheer.__file__).resolve().parents[1])
COMMANDS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
SETUP = {"bash": "", "zsh": "autoload -U compinit && compinit -u -D && "}
LINES = {
    "torcheer su": "torcheer summary ",
    "torcheer trace --ba": "torcheer trace --backward ",
    "torcheer export --theme da": "torcheer export --theme dark ",
    "torcheer trace net_of_": "torcheer trace net_of_mine.py",
    "torcheer open a_": "torcheer open a_run.tch/",
}
KILL_LINE = b"\x15"  # Ctrl-U


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with a model's file and a recording's, and ``torcheer`` on the path."""
    place = tmp_path / "work"
    (place / "a_run.tch").mkdir(parents=True)
    (place / "net_of_mine.py").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "torcheer"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torcheer "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.chdir(place)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": SOURCES, "TERM": "dumb", "HOME": str(tmp_path)}


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


class Typing:
    """A shell in a terminal, and somebody who types."""

    def __init__(self, shell: str, environment: dict[str, str]) -> None:
        self.terminal, end = pty.openpty()
        self.process = subprocess.Popen(
            COMMANDS[shell], stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True
        )
        os.close(end)
        # The quotes keep the echo of what was typed from looking like the answer.
        self.write(f'{SETUP[shell]}eval "$(torcheer completion {shell})"; echo rea""dy\n'.encode())
        assert self.reads("ready\r\n", 60)

    def write(self, typed: bytes) -> None:
        os.write(self.terminal, typed)

    def reads(self, expected: str, seconds: float) -> bool:
        """Whether that comes to stand on the terminal."""
        shown, end = "", time.monotonic() + seconds
        while expected not in shown and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                shown += os.read(self.terminal, 4096).decode(errors="replace")
        return expected in shown

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture(params=["bash", "zsh"])
def typing(request: pytest.FixtureRequest, environment: dict[str, str]) -> Iterator[Typing]:
    need(request.param)
    one = Typing(request.param, environment)
    yield one
    one.end()


def test_tab_completes(typing: Typing) -> None:
    for line, completed in LINES.items():
        typing.write(line.encode() + b"\t")
        assert typing.reads(completed, 30), line
        typing.write(KILL_LINE)


def test_what_does_not_exist_is_not_completed(typing: Typing) -> None:
    typing.write(b"torcheer trace --zz\t")
    assert not typing.reads("torcheer trace --zz ", 3)


def test_fish_completes(environment: dict[str, str]) -> None:
    need("fish")
    asked = "\n".join(f"complete -C '{line}'; echo ---" for line in [*LINES, "torcheer trace --zz"])
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"torcheer completion fish | source\n{asked}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = [answer.split("\t")[0].strip() for answer in done.stdout.split("---\n")]
    assert answers == ["summary", "--backward", "dark", "net_of_mine.py", "a_run.tch/", "", ""]
