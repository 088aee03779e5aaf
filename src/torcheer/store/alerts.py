"""Rules over the series of a run: what is worth a look. Pure: rows in, findings out.

A finding is reported when it begins, and again only after it has been gone. Thresholds are in ``Thresholds``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torcheer.store.schema import COLUMN, FLAG_AT_LEAST
from torcheer.store.series import Floats, Series, StepRows


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


class _Table:
    """The rows of a step with the series they are of."""

    def __init__(self, ids: npt.NDArray[np.uint32], series: dict[int, Series]) -> None:
        self.ids = ids
        self.series = [series[number] for number in ids.tolist()]
        self.param_grads = np.flatnonzero([one.kind == "param_grad" for one in self.series])
        self.params = np.flatnonzero([one.kind == "param" for one in self.series])
        have = {(one.module, one.path) for one in self.series if one.kind == "param_grad"}
        param_series = [self.series[place] for place in self.params]
        self.has_gradient = np.array([(one.module, one.path) in have for one in param_series], bool)  # of the params


class Rules:
    """All rules, with what they remember of earlier steps: a few numbers for each series."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self._streaks: dict[str, npt.NDArray[np.int64]] = {}  # rule → for each series, for how many steps it holds
        self._held: set[str] = set()  # rules that held for a series when last looked at
        self._num_norms = np.zeros(0, np.int64)  # for each series, of how many steps its usual norm is
        self._usual = np.zeros(0)  # mean of the norm's logarithm
        self._with_gradient = np.zeros(0, bool)
        self._tables: dict[bytes, _Table] = {}

    def check(self, rows: StepRows, series: dict[int, Series]) -> list[Finding]:
        """Findings that begin with this step."""
        self._grow(max(series, default=0) + 1)
        key = rows.series.tobytes()
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) > 16:  # control flow that is never the same
                self._tables.clear()
            table = self._tables[key] = _Table(rows.series, series)
        stats = rows.stats[rows.rows]
        findings = [*self._not_finite(table, stats), *self._gradients(table, stats), *self._shares(table, stats)]
        if rows.lane.endswith("train"):
            findings += self._unused(table)
        return findings

    def _grow(self, size: int) -> None:
        missing = size - len(self._usual)
        if missing > 0:
            self._usual = np.pad(self._usual, (0, missing))
            self._num_norms = np.pad(self._num_norms, (0, missing))
            self._with_gradient = np.pad(self._with_gradient, (0, missing))

    def _begins(self, rule: str, ids: npt.NDArray[Any], holds: npt.NDArray[np.bool_], patience: int = 1) -> list[int]:
        """Places of the series for which a rule has now held for so many steps; each time only once."""
        if rule not in self._held and not holds.any():
            return []
        streak = self._streaks.get(rule)
        if streak is None or len(streak) < len(self._usual):
            streak = np.pad(streak if streak is not None else np.zeros(0, np.int64), (0, len(self._usual)))
            self._streaks[rule] = streak
        streak[ids] = np.where(holds, streak[ids] + 1, 0)
        (self._held.add if streak.any() else self._held.discard)(rule)
        found: list[int] = np.flatnonzero(streak[ids] == patience).tolist() if holds.any() else []
        return found

    def _not_finite(self, table: _Table, stats: Floats) -> Iterator[Finding]:
        bad = (stats[:, COLUMN["nan"]] > 0) | (stats[:, COLUMN["inf"]] > 0)
        norm = stats[:, COLUMN["norm"]]
        at_least = np.flatnonzero(~np.isfinite(norm))
        if len(at_least):
            flags = np.nan_to_num(stats[at_least, COLUMN["flags"]]).astype(np.int64)
            bad[at_least] |= flags & FLAG_AT_LEAST > 0
        begun = self._begins("nan", table.ids, bad)
        places = np.flatnonzero(bad)
        # Only the first of them, and only when none had been spoiled before.
        if not begun or len(begun) < len(places):
            return
        one, row = table.series[places[0]], stats[places[0]]
        what = " and ".join(
            f"{int(row[COLUMN[name]])} {word}"
            for name, word in (("nan", "NaN"), ("inf", "Inf"))
            if row[COLUMN[name]] > 0
        )
        what = what or "values that are not finite"
        birth = _BIRTH.get(one.kind, _IN_BACKWARD)
        yield Finding("nan", one.id, f"{one.name}: {what}, the first of {len(places)} series that have them. {birth}")

    def _gradients(self, table: _Table, stats: Floats) -> Iterator[Finding]:
        if not len(table.param_grads):
            return
        ids = table.ids[table.param_grads]
        norm = stats[table.param_grads, COLUMN["norm"]].astype(np.float64)
        finite = np.isfinite(norm)
        largest = float(norm.max(initial=0.0, where=finite))
        limit = self.thresholds
        small = finite & (norm < limit.vanishing * largest)
        for place in self._begins("vanishing", ids, small, limit.patience):
            one = table.series[table.param_grads[place]]
            text = (
                f"{one.name}: gradient norm {norm[place]:.2g}, the largest in the model is {largest:.2g}, "
                f"for {limit.patience} logged steps. It hardly learns."
            )
            yield Finding("vanishing", one.id, text)
        usual, count = self._usual[ids], self._num_norms[ids]
        logarithm = np.log(np.where(finite & (norm > 0), norm, 1))
        large = finite & (count >= limit.usual) & (logarithm > usual + math.log(limit.exploding))
        for place in self._begins("exploding", ids, large):
            one = table.series[table.param_grads[place]]
            text = (
                f"{one.name}: gradient norm {norm[place]:.2g}, usually {math.exp(usual[place]):.2g}. "
                "Clip gradients, or lower the learning rate."
            )
            yield Finding("exploding", one.id, text)
        normal = finite & (norm > 0) & ~large
        count = count + normal
        self._num_norms[ids] = count
        self._usual[ids] = np.where(normal, usual + (logarithm - usual) / np.clip(count, 1, 100), usual)

    def _shares(self, table: _Table, stats: Floats) -> Iterator[Finding]:
        limit = self.thresholds
        rules = (
            ("dead", limit.dead, 1, "of its units are 0 for the whole batch."),
            ("saturated", limit.saturated, limit.patience, "of its values are at a bound, where no gradient flows."),
            ("update", limit.update, limit.patience, "of its size is changed by each optimizer step: is the "
             "learning rate too large?"),
        )  # fmt: skip
        for rule, threshold, patience, text in rules:
            share = stats[:, COLUMN[rule]]
            if rule not in self._held and not (share >= threshold).any():
                continue
            known = ~np.isnan(share)
            if known.any():
                ids, values = table.ids[known], share[known]
                for place in self._begins(rule, ids, values >= threshold, patience):
                    one = table.series[int(np.flatnonzero(known)[place])]
                    yield Finding(rule, one.id, f"{one.name}: {values[place]:.0%} {text}")

    def _unused(self, table: _Table) -> Iterator[Finding]:
        if not len(table.params) or not len(table.param_grads):
            return
        ids = table.ids[table.params]
        if "unused" not in self._held and table.has_gradient.all():
            self._with_gradient[ids] = True
            return
        self._with_gradient[ids] |= table.has_gradient
        for place in self._begins("unused", ids, ~self._with_gradient[ids], self.thresholds.patience):
            one = table.series[table.params[place]]
            text = (
                f"{one.name}: no gradient in {self.thresholds.patience} logged steps. "
                "It is frozen, or the loss does not depend on it."
            )
            yield Finding("unused", one.id, text)


_BIRTH = {
    "input": "It came with the input, or from an operation in front of this module.",
    "output": "Its inputs were finite: it was born in this module.",
    "attached": "It was born before this tensor was attached.",
    "param": "The parameter itself is no longer finite: an earlier update spoiled it. Lower the learning rate or "
    "clip gradients, and go on from a checkpoint.",
}
_IN_BACKWARD = "Values were finite in the forward pass: it was born in the backward pass."
