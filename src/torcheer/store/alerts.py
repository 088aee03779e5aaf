"""Rules over the series of a run: what is worth a look. Pure: rows in, findings out.

A finding is reported when it begins, and again only after it has been gone. Thresholds are in ``Thresholds``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from torcheer.store.schema import COLUMN, FLAG_SAMPLED
from torcheer.store.series import Series, StepRows


@dataclass(frozen=True)
class Thresholds:
    """When a rule speaks."""

    vanishing: float = 1e-6  # gradient norm ÷ the largest gradient norm among the parameters of the step
    exploding: float = 1e3  # gradient norm ÷ what it usually was
    dead: float = 0.9  # share of units
    saturated: float = 0.9  # share of values
    update: float = 0.1  # change by an optimizer's step ÷ the parameter's norm
    patience: int = 5  # logged steps in a row, for what may happen once
    usual: int = 10  # logged steps before "usually" is known


class Finding(NamedTuple):
    """What a rule has to say."""

    rule: str
    series: int | None
    message: str


@dataclass
class Rules:
    """All rules, with what they remember of earlier steps: a few numbers for each series."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    _active: set[tuple[str, int]] = field(default_factory=set)
    _streaks: dict[tuple[str, int], int] = field(default_factory=dict)
    _usual: dict[int, tuple[int, float]] = field(default_factory=dict)  # steps seen, mean of the norm's logarithm
    _steps_with: dict[str, int] = field(default_factory=dict)
    _with_gradient: set[tuple[str, str, str]] = field(default_factory=set)

    def check(self, rows: StepRows, series: dict[int, Series]) -> list[Finding]:
        """Findings that begin with this step."""
        stats = rows.stats[rows.rows]
        table = [(series[number], stats[place]) for place, number in enumerate(rows.series.tolist())]
        findings = [*self._not_finite(table), *self._gradients(table), *self._shares(table)]
        if rows.lane.endswith("train"):
            findings += self._unused(rows.lane, table)
        return findings

    def _begins(self, rule: str, series: int, holds: bool, patience: int = 1) -> bool:
        key = (rule, series)
        self._streaks[key] = self._streaks.get(key, 0) + 1 if holds else 0
        if not holds:
            self._active.discard(key)
            return False
        if key in self._active or self._streaks[key] < patience:
            return False
        self._active.add(key)
        return True

    def _not_finite(self, table: list[tuple[Series, np.ndarray]]) -> Iterator[Finding]:
        bad = [(one, row) for one, row in table if _num_bad(row) > 0]
        if not self._begins("nan", -1 if not table else hash(table[0][0].lane), bool(bad)):
            return
        one, row = bad[0]
        what = " and ".join(
            f"{int(row[COLUMN[name]])} {word}" for name, word in (("nan", "NaN"), ("inf", "Inf")) if row[COLUMN[name]] > 0
        )
        where = {
            "input": "It came with the input, or from an operation in front of this module.",
            "output": "Its inputs were finite: it was born in this module.",
            "attached": "It was born before this tensor was attached.",
            "param": "The parameter itself is no longer finite: an earlier update spoiled it. Lower the learning rate "
            "or clip gradients, and go on from a checkpoint.",
        }.get(one.kind, "Values were finite in the forward pass: it was born in the backward pass.")
        yield Finding("nan", one.id, f"{one.name}: {what or 'values that are not finite'}, the first of "
                      f"{len(bad)} series that have them. {where}")  # fmt: skip

    def _gradients(self, table: list[tuple[Series, np.ndarray]]) -> Iterator[Finding]:
        norms = [(one, float(row[COLUMN["norm"]])) for one, row in table if one.kind == "param_grad"]
        largest = max((norm for _, norm in norms if math.isfinite(norm)), default=0.0)
        limit = self.thresholds
        for one, norm in norms:
            small = math.isfinite(norm) and largest > 0 and norm < limit.vanishing * largest
            if self._begins("vanishing", one.id, small, limit.patience):
                yield Finding("vanishing", one.id, f"{one.name}: gradient norm {norm:.2g}, {norm / largest:.1g} of the "
                              f"largest in the model, for {limit.patience} logged steps. It hardly learns.")  # fmt: skip
            if not math.isfinite(norm) or norm <= 0:
                continue
            count, mean = self._usual.get(one.id, (0, 0.0))
            usual = math.exp(mean)
            large = count >= limit.usual and norm > limit.exploding * usual
            if self._begins("exploding", one.id, large):
                yield Finding("exploding", one.id, f"{one.name}: gradient norm {norm:.2g}, usually {usual:.2g}. "
                              "Clip gradients, or lower the learning rate.")  # fmt: skip
            if not large:
                count += 1
                self._usual[one.id] = (count, mean + (math.log(norm) - mean) / min(count, 100))

    def _shares(self, table: list[tuple[Series, np.ndarray]]) -> Iterator[Finding]:
        limit = self.thresholds
        for one, row in table:
            dead, saturated, update = (float(row[COLUMN[name]]) for name in ("dead", "saturated", "update"))
            if not math.isnan(dead) and self._begins("dead", one.id, dead >= limit.dead):
                yield Finding("dead", one.id, f"{one.name}: {dead:.0%} of its units are 0 for the whole batch.")
            if not math.isnan(saturated) and self._begins("saturated", one.id, saturated >= limit.saturated, limit.patience):
                yield Finding("saturated", one.id, f"{one.name}: {saturated:.0%} of its values are at a bound, where "
                              f"no gradient flows, for {limit.patience} logged steps.")  # fmt: skip
            if not math.isnan(update) and self._begins("update", one.id, update > limit.update, limit.patience):
                yield Finding("update", one.id, f"{one.name}: optimizer steps change it by {update:.0%} of its size, for "
                              f"{limit.patience} logged steps. Is the learning rate too large?")  # fmt: skip

    def _unused(self, lane: str, table: list[tuple[Series, np.ndarray]]) -> Iterator[Finding]:
        params = [one for one, _ in table if one.kind == "param"]
        seen = {(one.lane, one.module, one.path) for one, _ in table if one.kind == "param_grad"}
        if not seen:
            return
        self._with_gradient |= seen
        self._steps_with[lane] = self._steps_with.get(lane, 0) + 1
        for one in params:
            missing = (one.lane, one.module, one.path) not in self._with_gradient
            if self._begins("unused", one.id, missing, self.thresholds.patience):
                yield Finding("unused", one.id, f"{one.name}: no gradient in {self.thresholds.patience} logged steps. "
                              "It is frozen, or the loss does not depend on it.")  # fmt: skip


def _num_bad(row: np.ndarray) -> float:
    counted = float(np.nan_to_num(row[COLUMN["nan"]]) + np.nan_to_num(row[COLUMN["inf"]]))
    norm = float(row[COLUMN["norm"]])
    sampled = int(np.nan_to_num(row[COLUMN["flags"]])) & FLAG_SAMPLED
    return counted if counted or not sampled else float(math.isinf(norm))
