"""Each rule speaks when it should, once, and says what to do; it is silent on a healthy run."""

from __future__ import annotations

from typing import Any

import numpy as np

from torcheer.store.alerts import Rules
from torcheer.store.schema import COLUMN, STATISTICS
from torcheer.store.series import Series, StepRows

KINDS = {1: ("fc1", "input"), 2: ("fc1", "output"), 3: ("fc1", "param"), 4: ("fc1", "param_grad"), 5: ("fc2", "param"),
         6: ("fc2", "param_grad")}  # fmt: skip
SERIES = {
    number: Series(number, "train", "", module, 0 if "param" in kind else 1, kind, "weight" if "param" in kind else "0")
    for number, (module, kind) in KINDS.items()
}


def _check(rules: Rules, step: int, without: tuple[int, ...] = (), **changes: dict[int, float]) -> list[Any]:
    """A healthy step, but for ``statistic={series: value}``."""
    ids = np.array([number for number in SERIES if number not in without], np.uint32)
    stats = np.full((len(ids), len(STATISTICS)), np.nan, np.float32)
    for name, value in {"count": 100, "norm": 1.0, "nan": 0, "inf": 0, "flags": 0, "zeros": 0.1}.items():
        stats[:, COLUMN[name]] = value
    for name, values in changes.items():
        for number, value in values.items():
            stats[ids.tolist().index(number), COLUMN[name]] = value
    counts = np.zeros((len(ids), 30), np.uint16)
    rows = StepRows("train", step, 0.0, ids, np.arange(len(ids), dtype=np.uint32), stats, counts)
    return rules.check(rows, SERIES)


def test_a_healthy_run_is_silent() -> None:
    rules = Rules()
    assert not [finding for step in range(100) for finding in _check(rules, step)]


def test_nan_birth_is_told_once_with_where() -> None:
    rules = Rules()
    assert not _check(rules, 0)
    (finding,) = _check(rules, 1, nan={2: 3, 4: 7})
    assert (finding.rule, finding.series) == ("nan", 2)
    assert finding.message == (
        "fc1:1/output/0: 3 NaN, the first of 2 series that have them. "
        "Its inputs were finite: it was born in this module."
    )
    assert not _check(rules, 2, nan={2: 3, 4: 7})


def test_nan_of_gradients_is_born_in_the_backward_pass() -> None:
    (finding,) = _check(Rules(), 0, inf={4: 2})
    assert "2 Inf" in finding.message
    assert "born in the backward pass" in finding.message


def test_vanishing_takes_patience() -> None:
    rules, found = Rules(), []
    for step in range(20):
        found += [(step, finding) for finding in _check(rules, step, norm={4: 1e-9})]
    ((step, finding),) = found
    assert (step, finding.rule, finding.series) == (4, "vanishing", 4)
    assert "It hardly learns" in finding.message


def test_exploding_is_against_what_was_usual() -> None:
    rules = Rules()
    for step in range(20):
        assert not _check(rules, step)
    assert not _check(rules, 20, norm={4: 100})
    (finding,) = _check(rules, 21, norm={4: 5000})
    assert (finding.rule, finding.series) == ("exploding", 4)
    assert "usually 1" in finding.message
    assert not _check(rules, 22, norm={4: 5000}), "not again while it lasts"
    assert not _check(rules, 23)
    assert _check(rules, 24, norm={4: 5000}), "again after it has been gone"


def test_dead_and_saturated_and_updates() -> None:
    rules = Rules()
    (finding,) = _check(rules, 0, dead={2: 0.95})
    assert finding.message == "fc1:1/output/0: 95% of its units are 0 for the whole batch."
    found = [finding for step in range(1, 9) for finding in _check(rules, step, saturated={2: 0.99}, update={3: 0.5})]
    assert sorted(finding.rule for finding in found) == ["saturated", "update"]
    assert any(finding.message.endswith("is the learning rate too large?") for finding in found)


def test_unused_parameters() -> None:
    rules = Rules()
    found = [finding for step in range(10) for finding in _check(rules, step, without=(6,))]
    assert [(finding.rule, finding.series) for finding in found] == [("unused", 5)]
    assert "It is frozen, or the loss does not depend on it" in found[0].message
