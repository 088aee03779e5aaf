"""Measured figures as a text table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HEADERS = ("row", "model", "what", "plain", "torcheer", "figure", "bar", "", "torchlens", "spread")


@dataclass
class Line:
    """One figure with its bar."""

    row: int
    model: str
    what: str
    figure: float | None  # None: it could not be measured, and ``note`` says why
    unit: str = "×"  # "×", "ms", "bytes"
    bar: float | None = None  # the figure must not be larger
    is_equality: bool = False  # the bar is to be met, to two digits
    digits: int = 3
    rival: float | str | None = None  # TorchLens's figure, or why there is none
    baseline_ms: float | None = None
    torcheer_ms: float | None = None
    spread: tuple[float, float] | None = None  # median ÷ minimum of the baseline and of torcheer
    note: str = ""
    timings: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "FAILED"
        if self.bar is None:
            return ""
        # Never the rounded figure, but where the bar is an equality, which no measurement meets exactly.
        figure = round(self.figure, 2) if self.is_equality else self.figure
        return "PASS" if figure <= self.bar else "MISS"

    def cells(self) -> tuple[str, ...]:
        spread = "" if self.spread is None else " ".join(f"{value:.2f}" for value in self.spread)
        return (
            str(self.row), self.model, self.what, _time(self.baseline_ms), _time(self.torcheer_ms),
            "–" if self.figure is None else self._value(self.figure),
            "" if self.bar is None else f"≤ {self._value(self.bar)}",
            self.verdict, self._rival(), spread,
        )  # fmt: skip

    def _rival(self) -> str:
        if self.rival is None:
            return ""
        return self.rival if isinstance(self.rival, str) else self._value(self.rival)

    def _value(self, value: float) -> str:
        if self.unit == "×":
            return f"{value:.{self.digits}f}×"
        return f"{value:,.0f} B" if self.unit == "bytes" else f"{value:.1f} ms"


def _time(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.{3 if milliseconds < 10 else 1}f} ms"


def table(headers: tuple[str, ...], rows: list[tuple[str, ...]], num_left: int) -> str:
    """Text in columns, the first ``num_left`` of them aligned to the left."""
    widths = [max(len(row[place]) for row in (headers, *rows)) for place in range(len(headers))]

    def text(row: tuple[str, ...]) -> str:
        cells = [
            cell.ljust(width) if place < num_left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([text(headers), "  ".join("─" * width for width in widths), *map(text, rows)])


def print_report(lines: list[Line], conditions: dict[str, Any]) -> None:
    """The table, with what has to be known to read it."""
    print(f"\n{'; '.join(f'{name} {value}' for name, value in conditions.items())}\n")
    print(table(HEADERS, [line.cells() for line in lines], num_left=3))
    for line in lines:
        if line.note:
            print(f"\nrow {line.row}, {line.model}, {line.what}: {line.note}")
    misses = sum(line.verdict in ("MISS", "FAILED") for line in lines)
    judged = sum(line.verdict != "" for line in lines)
    print(f"\n{judged - misses} of {judged} bars held. Spread: median ÷ minimum, of plain and of torcheer.")


def write_json(path: Path, lines: list[Line], conditions: dict[str, Any]) -> None:
    """Everything that was measured."""
    rows = [{**asdict(line), "verdict": line.verdict} for line in lines]
    path.write_text(json.dumps({"conditions": conditions, "lines": rows}, indent=2) + "\n", encoding="utf-8")


def conditions(**chosen: Any) -> dict[str, Any]:
    """What the figures depend on."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"python": platform.python_version()}
    for name in ("torch", "transformers", "torchlens"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found.update(chosen)
    found["CPUs"] = os.cpu_count()
    if sys.platform != "win32":
        found["load"] = round(os.getloadavg()[0], 1)
    return found
