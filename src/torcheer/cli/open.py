"""examples:
  torcheer open run.tch
  torcheer open torcheer_runs                            all runs of a folder, live while they train
  torcheer open before.tch after.tch --port 8000 --no-browser

The server listens on this machine only and ends with Ctrl-C. It needs no torch.

result: address
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torcheer.cli.answer import Answer, say
from torcheer.errors import TorcheerError

DEFAULT_PORT = 5000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a recording, a watched run, or a folder of these"
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the next free one where it is taken (5000)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(given: argparse.Namespace) -> Answer:
    # It loads the views.
    from torcheer.api.explore import start_server

    missing = next((path for path in given.paths if not path.exists()), None)
    if missing is not None:
        raise TorcheerError(f"{missing} does not exist. Give the path of a recording or of a watched run.")
    with start_server([path.absolute() for path in given.paths], port=given.port) as server:
        say(f"Explorer: {server.address} (Ctrl-C ends it)")
        if not given.no_browser:
            import webbrowser  # only here is one opened

            webbrowser.open(server.address)
        try:
            server.wait()
        except KeyboardInterrupt:
            say("ended")
    return Answer(result={"address": server.address})
