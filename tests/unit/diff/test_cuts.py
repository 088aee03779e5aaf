"""How a tensor is spread over ranks: what accounts for their parts, and which rank is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from torcheer.diff.cuts import WHOLE, Cut, Grid, best_fit, check, declared, grids, piece, spreads
from torcheer.diff.layout import Close

CLOSE = Close(1e-6, 1e-5)
RNG = np.random.default_rng(0)
WHOLE_ARRAY = RNG.normal(size=(8, 6))


def parts_of(*arrays: np.ndarray) -> dict[int, np.ndarray]:
    return dict(enumerate(arrays))


@pytest.mark.parametrize(
    ("parts", "spread"),
    [
        ([WHOLE_ARRAY, WHOLE_ARRAY], (WHOLE,)),
        (np.split(WHOLE_ARRAY, 2, 0), (Cut("cut", 0),)),
        (np.split(WHOLE_ARRAY, 3, 1), (Cut("cut", 1),)),
        ([WHOLE_ARRAY[:5], WHOLE_ARRAY[5:]], (Cut("cut", 0),)),  # of unequal length
        ([WHOLE_ARRAY[0::2], WHOLE_ARRAY[1::2]], (Cut("cut", 0, 4),)),  # rows in turn
        ([0.3 * WHOLE_ARRAY, 0.7 * WHOLE_ARRAY], (Cut("sum"),)),
    ],
)
def test_the_spread_is_found(parts: list[np.ndarray], spread: tuple[Cut, ...]) -> None:
    fit = best_fit(WHOLE_ARRAY, parts_of(*parts), grids(len(parts)), CLOSE)
    assert fit is not None
    assert (fit.spread, fit.wrong) == (spread, frozenset())


def test_fused_blocks() -> None:
    """Queries, keys and values in one matrix: each rank has a half of each."""
    blocks = np.split(WHOLE_ARRAY[:, :6], 3, 1)
    ranks = [np.concatenate([block[:, rank : rank + 1] for block in blocks], 1) for rank in range(2)]
    fit = best_fit(WHOLE_ARRAY, parts_of(*ranks), grids(2), CLOSE)
    assert fit is not None
    assert fit.spread == (Cut("cut", 1, 3),)
    for rank, part in enumerate(ranks):
        assert np.array_equal(piece(WHOLE_ARRAY, parts_of(*ranks), Grid((2,)), fit.spread, rank), part)


def test_a_grid_of_two_axes() -> None:
    """Four ranks: the batch cut over one axis, summands over the other."""
    halves = np.split(WHOLE_ARRAY, 2, 0)
    parts = [share * half for half in halves for share in (0.25, 0.75)]
    fit = best_fit(WHOLE_ARRAY, parts_of(*parts), grids(4), CLOSE)
    assert fit is not None
    assert (fit.spread, fit.wrong) == ((Cut("cut", 0), Cut("sum")), frozenset())


def test_the_wrong_rank_is_named() -> None:
    parts = np.split(WHOLE_ARRAY, 4, 0)
    parts[2] = parts[2] + 1e-3
    fit = best_fit(WHOLE_ARRAY, parts_of(*parts), grids(4), CLOSE)
    assert fit is not None
    assert fit.wrong == {2}
    assert best_fit(WHOLE_ARRAY, parts_of(WHOLE_ARRAY, -WHOLE_ARRAY), grids(2), CLOSE).wrong == {1}


def test_equal_shares_are_no_summands() -> None:
    """Half of the value on both ranks: somebody divided what was added up already, unless a DTensor says otherwise."""
    parts = parts_of(WHOLE_ARRAY / 2, WHOLE_ARRAY / 2)
    assert best_fit(WHOLE_ARRAY, parts, grids(2), CLOSE).wrong == {0, 1}
    assert best_fit(WHOLE_ARRAY, parts, grids(2), CLOSE, (Cut("sum"),)).wrong == frozenset()


def test_shapes_that_do_not_fit() -> None:
    assert best_fit(WHOLE_ARRAY, parts_of(WHOLE_ARRAY[:3], WHOLE_ARRAY[3:6]), grids(2), CLOSE) is None
    assert best_fit(WHOLE_ARRAY, parts_of(WHOLE_ARRAY[0], WHOLE_ARRAY[1]), grids(2), CLOSE) is None
    assert not list(spreads((8,), parts_of(WHOLE_ARRAY), Grid((1,))))
    lacking = {0: WHOLE_ARRAY[:4]}
    assert check(WHOLE_ARRAY, lacking, Grid((2,)), (Cut("cut", 0),), CLOSE).wrong == frozenset()
    assert check(WHOLE_ARRAY, {0: WHOLE_ARRAY}, Grid((2,)), (Cut("sum"),), CLOSE) is None


def test_what_is_nothing_but_rounding() -> None:
    tiny, other = parts_of(1e-9 * WHOLE_ARRAY), parts_of(2e-9 * WHOLE_ARRAY)
    assert best_fit(tiny[0], other, grids(1), CLOSE).wrong == {0}
    assert best_fit(tiny[0], other, grids(1), CLOSE, least_size=1.0).wrong == frozenset()


def test_placements_of_a_dtensor() -> None:
    assert declared(("S(1)", "R")) == (Cut("cut", 1), WHOLE)
    assert declared(("P(sum)",)) == (Cut("sum"),)
    assert declared(("_S(0, 2)",)) == (Cut("cut", 0, 2),)
    assert declared(("MaskP(sum, 0)",)) is None
