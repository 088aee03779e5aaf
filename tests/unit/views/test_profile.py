"""A profile as plain data: who holds the memory at each point of the timeline."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.make_record import small_record
from torcheer.profiling import build as build_report
from torcheer.record.model import MemoryEvent, Record
from torcheer.views import profile as profile_view


def record_of(*events: tuple[int, int, str, str]) -> Record:
    """A run with memory events: storage, bytes, the op that was begun last, role."""
    record = small_record()
    record.run.measured = ("memory",)
    aten = {record.ops[op.owner].name: op.index for op in record.aten if op.owner is not None}
    record.memory = [MemoryEvent(storage, size, aten[op], role) for storage, size, op, role in events]
    return record


def held_at(data: dict[str, Any], point: int) -> dict[tuple[str | None, str], int]:
    """Bytes by module and category after a point, added up from what came and went."""
    held: Counter[tuple[str | None, str]] = Counter()
    for one in data["timeline"][: point + 1]:
        for row, role, size in one["changes"]:
            held[None if row is None else data["rows"][row]["address"], role] += size
    return {place: size for place, size in held.items() if size}


def test_memory_is_held_by_the_module_that_took_it_whoever_gives_it_back() -> None:
    data = profile_view.build(build_report(record_of(
        (90, 100, "conv2d", "activation"), (91, 40, "relu", "temporary"),
        (91, -40, "linear", "temporary"), (90, -100, "linear", "activation"),
    )))  # fmt: skip
    assert held_at(data, 1) == {("features.0", "activation"): 100, ("features.1", "temporary"): 40}
    assert held_at(data, 2) == {("features.0", "activation"): 100}
    assert held_at(data, 3) == {}
    assert [data["rows"][point["row"]]["address"] for point in data["timeline"][2:]] == ["classifier"] * 2


def test_what_was_there_before_is_told_apart() -> None:
    record = record_of((90, 8, "conv2d", "activation"))
    params = sum(param.size_bytes or 0 for param in record.params)
    data = profile_view.build(build_report(record))
    assert data["memory_before"] == {"param": params, "input": 4 * 3 * 8 * 8}
    assert data["timeline"][0]["held_bytes"] == 8


def test_a_long_timeline_keeps_its_highest_points_and_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    for turn in range(50):
        events += [(100 + turn, 10, "conv2d", "activation"), (200 + turn, 7, "linear", "temporary")]
        events += [(200 + turn, -7, "linear", "temporary")]
    report = build_report(record_of(*events))
    monkeypatch.setattr(profile_view, "MAX_POINTS", 30)
    data = profile_view.build(report)
    assert len(data["timeline"]) <= 30
    assert max(point["held_bytes"] for point in data["timeline"]) == report.totals.peak_bytes == 507
    for at, point in enumerate(data["timeline"]):
        assert sum(held_at(data, at).values()) == point["held_bytes"]
