"""examples:
  torcheer profile net.py:Net -i 8x3x224x224 --backward
  torcheer profile net.py:Net -i 8x3x224x224 --sort time --depth 2 --ops
  torcheer profile net.py:Net -i 8x3x224x224 --backward --columns output,needed,saved --sort saved   what takes memory
  torcheer profile net.py:Net -i 1x128:int64 --fake      FLOPs and predicted memory; nothing is computed
  torcheer profile net.py:Net -i x.npy --measure nan --fail-on-nan        for CI
  torcheer profile net.py:Net -i x.npy -o report.html --chrome trace.json

result: what report.to_dict() gives (docs/design/profiling.md)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.cli import ranks, subject
from torcheer.cli.answer import DIFFERENT, Answer
from torcheer.cli.progress import progress
from torcheer.errors import CaptureError

if TYPE_CHECKING:
    from torcheer.profiling import Report

MEASURES = ("time", "memory", "flops", "nan")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subject.add_model(parser)
    parser.add_argument("--backward", action="store_true", help="also profile a backward pass, from the output's mean")
    parser.add_argument(
        "--measure", default=",".join(MEASURES), metavar="WHAT", help=f"any of {','.join(MEASURES)} (default: all)"
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timed runs (5)")
    parser.add_argument("--fake", action="store_true", help="compute nothing: shapes, FLOPs and predicted memory")
    parser.add_argument(
        "--sort", metavar="COLUMN", help="order rows by a column, falling: time, flops, needed, saved, …"
    )
    parser.add_argument("--depth", type=int, metavar="N", help="how many levels of modules to show (all)")
    parser.add_argument("--columns", metavar="NAMES", help="which columns, with commas between: output,saved,needed,…")
    parser.add_argument("--ops", action="store_true", help="show the operations of each module too")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the report: .html or .json")
    parser.add_argument("--chrome", type=Path, metavar="FILE", help="write a trace for Perfetto or chrome://tracing")
    parser.add_argument("--gadgets", type=Path, metavar="FILE", help="write the JSON of Inspector Gadgets")
    parser.add_argument("--fail-on-nan", action="store_true", help="exit with 1 where NaN or Inf is born")
    subject.add_options(parser)


def run(given: argparse.Namespace) -> Answer:
    import torcheer as tl  # the package imports nothing until it is used

    if given.output is not None and given.output.suffix not in (".html", ".json"):
        raise CaptureError(f"--output {given.output}: a report is written as .html or .json. Give one of these.")
    measure = tuple(filter(None, given.measure.split(",")))
    with progress(3) as step:
        one = subject.make(given, step)
        step("profiling")
        report = tl.profile(
            one.model,
            *one.args,
            backward=given.backward,
            measure=measure,
            repeats=given.repeats,
            execution="fake" if given.fake else "real",
            **one.kwargs,
        )
    text = report.table(sort=given.sort, depth=given.depth, ops=given.ops, columns=_columns(given))
    has_nan = given.fail_on_nan and bool(report.alarms)
    return Answer(
        text, report.to_dict(), _written(report, given) if ranks.speaks() else [], code=DIFFERENT if has_nan else 0
    )


def _columns(given: Any) -> tuple[str, ...] | None:
    return None if given.columns is None else tuple(filter(None, given.columns.split(",")))


def _written(report: Report, given: Any) -> list[str]:
    """Write what was asked for; return the paths."""
    writers: list[tuple[Any, Any]] = [
        (given.chrome, report.to_chrome_trace),
        (given.gadgets, report.to_inspector_gadgets),
    ]
    if given.output is not None:
        writers.append((given.output, report.to_html if given.output.suffix == ".html" else report.to_json))
    for path, write in writers:
        if path is not None:
            write(path)
    return [str(path) for path, _ in writers if path is not None]
