"""``explore``: look at anything torcheer made in a browser. The server is a process of its own.

Whatever is only in memory is written to a temporary folder for it; the server removes the folder when it ends. It
lives as long as this process or somebody looks, and ends ten minutes after the last look.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from torcheer import shown
from torcheer.errors import TorcheerError
from torcheer.history import ModelHistory
from torcheer.record import file
from torcheer.views import page

PREFIX = "torcheer-explore-"  # web/__main__.py removes folders with this name only
DEFAULT_PORT = 5000
IDLE_S = 600.0  # how long a server that nobody looks at outlives the process that started it
START_S = 60.0
CONTENTS_LIMIT = 1 << 30  # bytes of tensors written for the explorer unless told otherwise
NOT_STARTED = "The explorer's server did not start, and gave no reason."
FRAME_HEIGHT = 640  # in a notebook, in CSS pixels
# A result is shown by the view of the room it comes from.
ROOMS = {"torcheer.profiling": "profile", "torcheer.diff": "comparison"}


class Server:
    """A running explorer. In a notebook it shows the page; ``close()`` ends it."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address = address
        self._process = process
        # Python complains about a process that is forgotten while it runs; this one is meant to outlive us.
        _running.append(self)

    def close(self) -> None:
        """End the server, and wait until it has."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(timeout=10)
        if self in _running:
            _running.remove(self)

    def wait(self) -> None:
        """Return when the server has ended."""
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self._process.poll() is None else "ended"
        return f"<torcheer explorer at {self.address}: {state}>"

    def _repr_html_(self) -> str:
        address = escape(self.address)
        return (
            f'<iframe src="{address}" width="100%" height="{FRAME_HEIGHT}" frameborder="0" title="torcheer explorer">'
            f'</iframe><p><a href="{address}" target="_blank">{address}</a></p>'
        )


_running: list[Server] = []


@atexit.register
def _let_go() -> None:
    """Leave servers running for whoever looks; they end by themselves."""
    for server in _running:
        server._process.returncode = 0  # else Popen warns about a child that is still running


def explore(*things: Any, port: int = DEFAULT_PORT, contents: bool | None = None, open_browser: bool = False) -> Server:
    """Show anything torcheer made in a browser: give one thing or several.

    A thing is a ModelHistory, a profile, a comparison, what ``watch`` returned, or a path: a saved recording,
    the folder of a watched run, or a folder of runs.

    port: where to listen on this machine; the next free one where it is taken.
    contents: whether tensors of a history are shown too, which takes a copy on disk; None: up to 1 GiB of them.
    open_browser: open the page at once. The address is printed in any case.

    The server is a process of its own. It ends with ``close()``, or by itself ten minutes after the last look once
    this process has ended.
    """
    if not things:
        raise TorcheerError("There is nothing to show. Give explore() a history, a result or a path.")
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        paths = [_path_of(thing, folder / str(number), contents) for number, thing in enumerate(things)]
        server = start_server(paths, port=port, temporary=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"Explorer: {server.address}")
    if open_browser:
        webbrowser.open(server.address)
    return server


def start_server(paths: Sequence[Path], *, port: int = DEFAULT_PORT, temporary: Path | None = None) -> Server:
    """Start ``python -m torcheer.web`` for some paths and return it once it answers."""
    command = [sys.executable, "-m", "torcheer.web", *map(str, paths), "--port", str(port)]
    command += ["--idle", str(IDLE_S), "--parent", str(os.getpid())]
    command += ["--temporary", str(temporary)] if temporary is not None else []
    # The child must find the torcheer that runs here, wherever it was imported from.
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C in the terminal is meant for the training, not for this
        )
        assert process.stdout is not None
        with process.stdout as said:
            address = said.readline().strip()
        if not address:
            process.wait(timeout=START_S)
            log.seek(0)
            raise TorcheerError(log.read().strip() or f"{NOT_STARTED} Run `torcheer doctor` to see what is missing.")
    return Server(address, process)


def _path_of(thing: Any, place: Path, contents: bool | None) -> Path:
    """Return where the server finds a thing, which is written to disk where it is only in memory."""
    if isinstance(thing, (str, os.PathLike)):
        return Path(thing).absolute()
    if isinstance(thing, ModelHistory):
        return _save(thing, place.with_suffix(".tch"), contents)
    folder = getattr(thing, "folder", None)
    if isinstance(folder, (str, os.PathLike)):  # what watch returned, or an open run
        return Path(folder).absolute()
    for room, kind in ROOMS.items():
        if type(thing).__module__.startswith(room):
            data = shown.data(kind, thing)
            path = place.with_suffix(".json")
            title = page.title_of(data) or type(thing).__name__
            path.write_bytes(page.encoded({"kind": kind, "title": title, "data": data}))
            return path
    raise TorcheerError(
        f"explore() cannot show a {type(thing).__name__}. It takes a ModelHistory, a profile, a comparison, what watch "
        "returned, or the path of a recording or of a watched run."
    )


def _save(history: ModelHistory, path: Path, contents: bool | None) -> Path:
    record = history.record
    if contents is None:
        contents = sum(record.values[value].size_bytes or 0 for value in record.saved) <= CONTENTS_LIMIT
        if not contents:
            print("Explorer: tensors are left out, since they are more than 1 GiB; explore(…, contents=True) has them.")
    file.write(record, history.payloads if contents else {}, path)
    return path


__all__ = ["Server", "explore", "start_server"]
