"""What a capture costs, beside plain PyTorch and TorchLens. ``make bench`` runs it, README.md explains it."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import other_rows
import report
import rival
import time_rows
import torch
from measure import CLOCKS
from report import Line
from time_rows import Effort

ROWS: dict[int, Callable[[Effort], list[Line]]] = {
    1: time_rows.row_1,
    2: time_rows.row_2,
    3: time_rows.row_3,
    4: time_rows.row_4,
    5: time_rows.row_5,
    6: other_rows.row_6,
    7: other_rows.row_7,
    8: other_rows.row_8,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that it works")
    parser.add_argument("--rows", default="1,2,3,4,5,6,7,8", help="which rows, such as 1,3")
    parser.add_argument("--json", type=Path, help="also write everything that was measured to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (2)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="thread: CPU time, with --threads 1")
    parser.add_argument("--no-rival", action="store_true", help="do not measure TorchLens")
    return parser.parse_args(arguments)


def title(row: int) -> str:
    return (ROWS[row].__doc__ or "").splitlines()[0].rstrip(".")


def measured(row: int, effort: Effort) -> list[Line]:
    """The lines of a row. One that cannot be measured says why, and the others are still measured."""
    try:
        return ROWS[row](effort)
    except Exception as error:  # noqa: BLE001  # whatever a model or a tool raises concerns this row only
        traceback.print_exc()
        return [Line(row, "–", title(row), None, note=f"{type(error).__name__}: {error}")]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.clock == "thread" and options.threads != 1:
        sys.exit("--clock thread sees one thread only. Add --threads 1.")
    torch.set_num_threads(options.threads)
    effort = Effort(options.clock, 3, 6, 1) if options.quick else Effort(options.clock, 15, 30, 5)
    if options.no_rival:
        effort.rival_samples = 0
    chosen = {"threads": options.threads, "clock": options.clock, "quick": options.quick}
    conditions = report.conditions(**chosen)
    lines = []
    for row in sorted({int(row) for row in options.rows.split(",")}):
        print(f"row {row}: {title(row)} …", file=sys.stderr, flush=True)
        lines += measured(row, effort)
        if options.json is not None:
            # After each row, so that a run that is cut off leaves what it measured.
            report.write_json(options.json, lines, conditions)
    report.print_report(lines, conditions)
    if not rival.is_installed():
        print("TorchLens is not installed: pip install torchlens fills its column.")
    return int(options.check and any(line.verdict in ("MISS", "FAILED") for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
