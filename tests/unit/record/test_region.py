"""Regions against a count of every byte."""

from __future__ import annotations

import itertools
import random

import pytest

from torcheer.record.region import Region, region


def every_byte(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, item_bytes: int) -> set[int]:
    starts = (
        (offset + sum(place * step for place, step in zip(places, stride, strict=True))) * item_bytes
        for places in itertools.product(*(range(size) for size in shape))
    )
    return {start + byte for start in starts for byte in range(item_bytes)}


def some_layout(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    rank = rng.randint(0, 3)
    shape = tuple(rng.randint(1, 4) for _ in range(rank))
    stride = tuple(rng.choice((0, 1, 2, 3, 4, 6, 8, 12)) for _ in range(rank))
    return shape, stride, rng.randint(0, 12), rng.choice((1, 2, 4))


def as_region(layout: tuple[tuple[int, ...], tuple[int, ...], int, int]) -> Region:
    found = region(*layout)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(20))
def test_overlap_is_what_a_count_of_bytes_says(seed: int) -> None:
    rng = random.Random(seed)
    answers = set()
    for _ in range(300):
        one, other = some_layout(rng), some_layout(rng)
        truth = bool(every_byte(*one) & every_byte(*other))
        answers.add(truth)
        assert as_region(one).overlaps(as_region(other)) is truth, (one, other)
        assert as_region(other).overlaps(as_region(one)) is truth, (one, other)
    assert answers == {True, False}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_to_be_covered_is_covered(seed: int) -> None:
    rng = random.Random(seed)
    covered = 0
    for _ in range(300):
        one, other = some_layout(rng), some_layout(rng)
        if as_region(one).covers(as_region(other)):
            covered += 1
            assert every_byte(*other) <= every_byte(*one), (one, other)
    assert covered


def test_two_columns_of_one_matrix_do_not_overlap() -> None:
    first, second = region((3,), (4,), 0, 4), region((3,), (4,), 1, 4)
    assert first is not None
    assert second is not None
    assert not first.overlaps(second)


def test_a_whole_tensor_covers_its_rows_and_a_row_not_the_whole() -> None:
    whole, row = region((3, 4), (4, 1), 0, 4), region((4,), (1,), 4, 4)
    assert whole is not None
    assert row is not None
    assert whole.covers(row)
    assert not row.covers(whole)


def test_an_empty_tensor_and_one_of_unknown_layout_have_no_region() -> None:
    assert region((0, 4), (4, 1), 0, 4) is None
    assert region((3,), None, 0, 4) is None
    assert region((3, -1), (1, 1), 0, 4) is None


def test_a_search_without_end_counts_as_overlap() -> None:
    # Strides that share no structure and many dimensions: deciding would take long.
    one = Region(0, 10**9, tuple((prime, 50) for prime in (101, 103, 107, 109, 113, 127)), 1)
    other = Region(1, 10**9, tuple((prime, 50) for prime in (131, 137, 139, 149, 151, 157)), 1)
    assert one.overlaps(other)
