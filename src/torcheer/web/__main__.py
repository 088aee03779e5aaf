"""``python -m torcheer.web PATH … [--port 5000]``: serve the explorer, print its address, run until nobody looks."""

from __future__ import annotations

import argparse
import gc
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from torcheer.api.explore import DEFAULT_PORT, PREFIX
from torcheer.errors import TorcheerError
from torcheer.web.serve import Address, serve
from torcheer.web.shelf import Shelf


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torcheer.web", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a recording, or the folder of a run")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the next free one is taken (default: 5000)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; any but the default wants a token")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a further name of this host")
    parser.add_argument("--token", help="what to ask for instead of a random token, with --host")
    parser.add_argument("--parent", type=int, metavar="PID", help="do not end while this process lives")
    parser.add_argument(
        "--idle", type=float, default=0, metavar="SECONDS", help="end after so long without a reader (default: never)"
    )
    parser.add_argument("--temporary", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)  # removed at the end
    return parser


def main() -> int:
    given = arguments().parse_args()
    # Recordings are hundreds of thousands of objects that stay; at its usual pace, collection walks them over and
    # over while they are read, which takes a third of the time.
    gc.set_threshold(200_000, 50, 50)
    # While one thread reads a recording, another sends the page: it is not to wait 5 ms whenever it has a word to say.
    sys.setswitchinterval(0.0005)
    # The server ends by itself on these; then this process is to end as usual, with what is under `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        shelf = Shelf([path.absolute() for path in given.paths])
        address = Address(given.host, given.port, tuple(given.allow_host), given.token)
        serve(shelf, address, idle_s=given.idle, parent=given.parent)
    except TorcheerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        if given.temporary is not None:
            remove_temporary(given.temporary)
    return 0


def remove_temporary(folder: Path) -> None:
    """Remove what ``torcheer.explore`` wrote for this server, and no other folder."""
    if folder.name.startswith(PREFIX) and folder.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
