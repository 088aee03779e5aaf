"""What profiling promises, measured: ``python -m benchmarks.profile_cost`` from the root of a clone. See README.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import profile_exact, profile_memory, profile_times
from benchmarks.profile_figures import Figure
from benchmarks.report import conditions, table

Row = Callable[[int], Iterator[Figure]]
ROWS: dict[int, Row] = {
    1: profile_exact.forward_flops,
    2: profile_exact.backward_flops,
    3: profile_exact.spinning,
    4: profile_exact.families,
    5: profile_exact.attribution,
    6: profile_memory.peaks,
    7: profile_times.nan_check,
    9: profile_memory.llama_7b,
    10: profile_times.latency,
}
HEADERS = ("row", "what", "case", "figure", "bar", "", "note")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.profile_cost")
    parser.add_argument(
        "--rows", default=",".join(map(str, ROWS)), help="which rows, such as 1,3; 7 measures row 8 too"
    )
    parser.add_argument("--rounds", type=int, default=15, help="how often a step is timed (15)")
    parser.add_argument("--json", type=Path, help="also write everything that was measured to this file")
    parser.add_argument("--text", type=Path, help="also write the table to this file")
    parser.add_argument("--keep", action="store_true", help="keep what --json has of other rows, and show it too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    return parser.parse_args(arguments)


def measured(number: int, rounds: int) -> Iterator[Figure]:
    """The figures of a row. One that cannot be measured says why, and the others are still measured."""
    try:
        yield from ROWS[number](rounds)
    except Exception as error:  # noqa: BLE001  # whatever a model raises concerns this row only
        traceback.print_exc()
        yield Figure(number, title(number), "–", None, note=f"{type(error).__name__}: {error}")


def title(number: int) -> str:
    return (ROWS[number].__doc__ or "").splitlines()[0].rstrip(".")


def write(path: Path, figures: list[Figure], known: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"conditions": known, "figures": [figure.as_dict() for figure in figures]}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept(path: Path, rows: set[int]) -> list[Figure]:
    """Figures of other rows that the file has from an earlier run."""
    if not path.exists():
        return []
    entries = json.loads(path.read_text(encoding="utf-8"))["figures"]
    named = [{name: value for name, value in entry.items() if name != "verdict"} for entry in entries]
    return [Figure(**entry) for entry in named if entry["row"] not in rows]


def text_of(figures: list[Figure], known: dict[str, Any]) -> str:
    judged = [figure for figure in figures if figure.verdict]
    missed = [figure for figure in judged if figure.verdict != "PASS"]
    lines = table(HEADERS, [figure.cells() for figure in figures], num_left=3)
    about = "; ".join(f"{name} {value}" for name, value in known.items())
    return f"\n{about}\n\n{lines}\n\n{len(judged) - len(missed)} of {len(judged)} bars held."


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    known = conditions(rounds=options.rounds)
    numbers = sorted({int(row) for row in options.rows.split(",")} - {8})
    shown = {*numbers, 8} if 7 in numbers else {*numbers}  # one measurement gives both
    figures = kept(options.json, shown) if options.keep and options.json is not None else []
    for number in numbers:
        start = time.perf_counter()
        figures += measured(number, options.rounds)
        print(f"row {number}: {title(number)}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        figures.sort(key=lambda figure: figure.row)
        # After each row, so that a run that is cut off leaves what it measured.
        if options.json is not None:
            write(options.json, figures, known)
        if options.text is not None:
            options.text.parent.mkdir(parents=True, exist_ok=True)
            options.text.write_text(text_of(figures, known) + "\n", encoding="utf-8")
    print(text_of(figures, known))
    return int(options.check and any(figure.verdict not in ("", "PASS") for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
