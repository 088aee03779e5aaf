import numpy as np

from torcheer.diff.layout import Close
from torcheer.diff.parts import is_part
from torcheer.diff.transplant import fitted

CLOSE = Close(1e-6, 1e-5)


def test_chosen_rows_are_a_part_and_others_are_not():
    source = np.random.default_rng(0)
    whole = source.standard_normal((40, 6)).astype(np.float32)
    assert is_part(whole[[3, 9, 20]], whole, CLOSE)
    assert not is_part(whole[[3, 9, 20]] * 1.01, whole, CLOSE)


def test_numbers_so_dense_that_all_are_found_are_compared_in_rows():
    source = np.random.default_rng(0)
    whole = source.standard_normal((60_000, 8)).astype(np.float32)
    assert is_part(whole[::7], whole, CLOSE)
    assert not is_part(source.standard_normal((500, 8)).astype(np.float32), whole, CLOSE)


def test_numbers_are_put_into_the_layout_in_which_they_are_alike():
    one = np.random.default_rng(0).standard_normal((2, 3, 5))
    other = one.transpose(0, 2, 1) + 1e-3
    found = fitted(one, other)
    assert found is not None
    assert np.array_equal(found[1], one.transpose(0, 2, 1))
