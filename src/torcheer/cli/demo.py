"""examples:
  torcheer demo
  torcheer demo --where                                  where the demo's sources are, to read and to copy

result: folder
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import torcheer
from torcheer.cli.answer import Answer
from torcheer.errors import TorcheerError

PACKAGE = Path(torcheer.__file__).parent
# In a wheel they are inside the package; in a clone beside its sources (pyproject.toml, force-include).
PLACES = (PACKAGE / "examples", PACKAGE.parents[1] / "examples")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", action="store_true", help="only print the folder of its sources")


def run(given: argparse.Namespace) -> Answer:
    folder = next((place for place in PLACES if (place / "demo.py").is_file()), None)
    if folder is None:
        raise TorcheerError(
            "The demo's sources are not in this installation. Install torcheer from its wheel or a clone."
        )
    answer = Answer(result={"folder": str(folder)})
    if given.where:
        answer.text = str(folder)
        return answer
    sys.path.insert(0, str(folder))  # it imports the models beside it
    runpy.run_path(str(folder / "demo.py"), run_name="__main__")
    return answer
