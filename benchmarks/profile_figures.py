"""A measured figure of the profile's benchmark, beside the bounds it must keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Figure:
    """One figure. Bounds are of the measured figure, never of the rounded one."""

    row: int
    what: str
    case: str
    value: float | None  # None: it could not be measured, and ``note`` says why
    low: float | None = None  # the figure must not be smaller
    high: float | None = None  # nor larger
    unit: str = "×"  # "×" | "s" | "MB" | "%" | ""
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "FAILED"
        if self.low is None and self.high is None:
            return ""
        below = self.low is not None and self.value < self.low
        above = self.high is not None and self.value > self.high
        return "MISS" if below or above else "PASS"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}

    def cells(self) -> tuple[str, ...]:
        value = "–" if self.value is None else self._text(self.value)
        return (str(self.row), self.what, self.case, value, self._bounds(), self.verdict, self.note)

    def _bounds(self) -> str:
        low, high = self.low, self.high
        if low is not None and high is not None:
            return f"= {self._text(low)}" if low == high else f"{self._text(low)} to {self._text(high)}"
        if high is not None:
            return f"≤ {self._text(high)}"
        return "" if low is None else f"≥ {self._text(low)}"

    def _text(self, value: float) -> str:
        digits = {"×": 3, "s": 2, "MB": 0, "%": 1}.get(self.unit, 0)
        return f"{value:,.{digits}f}{'' if self.unit in ('×', '') else ' '}{self.unit}"


def within(row: int, what: str, case: str, value: float, share: float, **more: Any) -> Figure:
    """A ratio that should be 1, give or take a share."""
    return Figure(row, what, case, value, 1 - share, 1 + share, **more)


def exactly(row: int, what: str, case: str, value: float, truth: float = 1.0, **more: Any) -> Figure:
    """A figure that must be this one."""
    return Figure(row, what, case, value, truth, truth, **more)
