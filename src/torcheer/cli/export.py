"""examples:
  torcheer export run.tch net.svg                        a picture: also .png, .pdf, .dot
  torcheer export run.tch net.png --rolled --depth 2 --colour-by time
  torcheer export run.tch page.html                      the explorer in one file, which can be mailed
  torcheer export run.tch layers.csv                     a table: also .parquet and .json
  torcheer export run.tch modules.csv --table modules
  torcheer export torcheer_runs/net-1 run.html           a watched run: also .json, .csv and .parquet

No torch is needed.

result: format, source
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer import whole_file
from torcheer.cli import subject
from torcheer.cli.answer import Answer
from torcheer.cli.progress import progress
from torcheer.errors import MissingExtraError, RecordFileError, TorcheerError

if TYPE_CHECKING:
    from torcheer.history import ModelHistory

PICTURES = (".svg", ".png", ".pdf", ".dot")
TABLES = (".csv", ".parquet", ".json")
KINDS = ("layers", "ops", "modules", "params", "aten")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a recording, or the folder of a watched run")
    parser.add_argument("output", type=Path, metavar="FILE", help="what to write; its ending says in which format")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    parser.add_argument("--table", choices=KINDS, default="layers", help="which table (layers)")
    picture = parser.add_argument_group("pictures")
    picture.add_argument("--rolled", action="store_true", help="draw loops and rows of equal blocks once")
    picture.add_argument("--depth", type=int, metavar="N", help="how many levels of modules to open (all)")
    picture.add_argument("--direction", choices=("down", "right"), default="down", help="(down)")
    picture.add_argument(
        "--colour-by", choices=("kind", "time", "backward", "memory", "params"), default="kind", help="(kind)"
    )
    picture.add_argument("--gradients", action="store_true", help="also draw the gradients of recorded backward passes")
    picture.add_argument("--level", choices=("function", "aten"), default="function", help="(function)")
    picture.add_argument("--theme", choices=("light", "dark"), default="light", help="(light)")


def run(given: argparse.Namespace) -> Answer:
    ending = given.output.suffix.lower()
    if ending not in (*PICTURES, *TABLES, ".html"):
        raise TorcheerError(
            f"{given.output}: {ending or 'no ending'!r} is no format. Name a file that ends in one of "
            f"{', '.join((*PICTURES, '.html', *TABLES))}."
        )
    subject.check_free(given.output, overwrite=given.overwrite)
    with progress(2) as step:
        step("reading")
        if subject.is_recording(given.source):
            write = _recording
        elif (given.source / "run.json").is_file():
            write = _run
        else:
            what = "is neither a recording nor a watched run" if given.source.exists() else "does not exist"
            raise RecordFileError(f"{given.source} {what}. Give what `torcheer trace -o` or tl.watch wrote.")
        write(given, ending, step)
    return Answer(result={"source": str(given.source), "format": ending[1:]}, files=[str(given.output)])


def _recording(given: Any, ending: str, step: Any) -> None:
    import torcheer as tl  # the package imports nothing until it is used

    history = tl.load(given.source)
    step("writing")
    if ending in TABLES:
        whole_file.write(given.output, table(history, given.table, ending))
        return
    history.draw(
        given.output,
        rolled=given.rolled,
        depth=given.depth,
        direction=given.direction,
        colour_by=given.colour_by,
        gradients=given.gradients,
        level=given.level,
        theme=given.theme,
    )


def _run(given: Any, ending: str, step: Any) -> None:
    # They compute with numpy, which takes a moment.
    from torcheer import shown
    from torcheer.store import Run
    from torcheer.views.page import encoded

    if ending not in (".html", ".json", ".csv", ".parquet"):
        raise TorcheerError(
            f"{given.source} is a watched run, which is written as .html, .json, .csv or .parquet. Give one of these."
        )
    with Run.open(given.source) as watched:
        step("writing")
        if ending in (".csv", ".parquet"):
            watched.export(given.output)
            return
        made = shown.html("watch", watched).encode() if ending == ".html" else encoded(shown.data("watch", watched))
        whole_file.write(given.output, made)


def table(history: ModelHistory, kind: str, ending: str) -> bytes:
    """A table of a history as a file."""
    # Only a table needs it.
    from torcheer.history.dataframe import columns_of

    columns = {name: [_plain(cell) for cell in cells] for name, cells in columns_of(history, kind).items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if ending == ".json":
        return (json.dumps(rows, ensure_ascii=False, indent=1) + "\n").encode()
    if ending == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(cell) for name, cell in row.items()} for row in rows)
        return text.getvalue().encode()
    return _parquet(columns)


def _parquet(columns: Mapping[str, list[Any]]) -> bytes:
    try:
        pyarrow = import_module("pyarrow")  # optional, and slow to import
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "export to .parquet") from error
    target = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), target)
    return target.getvalue()


def _plain(cell: Any) -> Any:
    return list(cell) if isinstance(cell, tuple) else cell


def _text(cell: Any) -> Any:
    """Lists as words with spaces between, as spreadsheets and shells read them."""
    return " ".join(map(str, cell)) if isinstance(cell, list) else cell
