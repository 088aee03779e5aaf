"""Numbers as text."""

from __future__ import annotations

import pytest

from torcheer.units import (
    bytes_text,
    count_text,
    counted_text,
    elapsed_text,
    scientific_seconds,
    seconds_text,
    shape_text,
)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, "unknown size"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (259584, "253.5 KiB"),
        (5 * 2**20, "5.0 MiB"),
        (3 * 2**50, "3072.0 TiB"),
    ],
)
def test_bytes(size_bytes: int | None, text: str) -> None:
    assert bytes_text(size_bytes) == text


@pytest.mark.parametrize(
    ("time_ns", "in_units", "elapsed", "scientific"),
    [
        (None, "unknown time", "not known", "not known"),
        (0, "0 ns", "0.000E+00s", "0.000E+00s"),
        (567_000, "567.0 µs", "5.670E-04s", "5.670E-04s"),
        (9_999_999, "10.0 ms", "1.000E-02s", "1.000E-02s"),
        (10_000_000, "10.0 ms", "0.010s", "1.000E-02s"),
        (288_000_000, "288.0 ms", "0.288s", "2.880E-01s"),
        (61_500_000_000, "61.500 s", "61.500s", "6.150E+01s"),
    ],
)
def test_times(time_ns: int | None, in_units: str, elapsed: str, scientific: str) -> None:
    assert (seconds_text(time_ns), elapsed_text(time_ns), scientific_seconds(time_ns)) == (
        in_units,
        elapsed,
        scientific,
    )


def test_counts() -> None:
    assert count_text(61100840) == "61,100,840"
    assert [counted_text(count, "op") for count in (0, 1, 2, 1200)] == ["0 ops", "1 op", "2 ops", "1,200 ops"]
    assert [counted_text(count, "pass", "passes") for count in (1, 2)] == ["1 pass", "2 passes"]


def test_shapes() -> None:
    assert [shape_text(shape) for shape in ((), (384,), (1, 384))] == ["()", "(384,)", "(1, 384)"]
