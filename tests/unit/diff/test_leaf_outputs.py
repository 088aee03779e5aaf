"""Brute force over outputs, on arrays made by hand; marks beside modules."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from torcheer.diff import marks
from torcheer.diff.leaf_outputs import CallOutputs, arrays_in, match_calls
from torcheer.diff.leaves import GroupPair, LeafGroup
from torcheer.diff.numbers import Tolerance
from torcheer.errors import ComparisonError

LINEAR = LeafGroup("Linear", {}, ("a", "b"), 6)
PAIR = GroupPair(LINEAR, LINEAR)
TIGHT = Tolerance(1e-6, 1e-6)


def call(name: str, *arrays: object, is_whole: bool = True) -> CallOutputs:
    return CallOutputs(name, name, 1, tuple(np.asarray(array, dtype=np.float32) for array in arrays), is_whole)


def test_equal_outputs_find_one_another_in_any_order() -> None:
    found = match_calls(PAIR, [call("a", [1.0]), call("b", [2.0])], [call("x", [2.0]), call("y", [1.0])], TIGHT)
    assert set(found.matches) == {("a", "y"), ("b", "x")}
    assert found.is_equal


def test_an_output_is_the_equal_of_one_other_only() -> None:
    found = match_calls(PAIR, [call("a", [1.0]), call("b", [1.0])], [call("x", [1.0]), call("y", [3.0])], TIGHT)
    assert found.matches == (("a", "x"),)
    assert [one.name for one in found.only_a] == ["b"]
    assert [one.name for one in found.only_b] == ["y"]
    assert found.num_mismatches == 1
    assert found.only_b[0].distance is not None
    assert found.only_b[0].distance.max_abs == 2.0


def test_every_row_of_the_batch_counts() -> None:
    rows = np.ones((4, 3), np.float32)
    corrupted = rows.copy()
    corrupted[1] = 5
    found = match_calls(PAIR, [call("a", rows)], [call("x", corrupted)], TIGHT)
    assert not found.is_equal
    assert found.only_a[0].distance is not None
    assert found.only_a[0].distance.largest_at[0] == 1


def test_all_tensors_of_a_call_have_to_agree() -> None:
    assert match_calls(PAIR, [call("a", [1.0], [2.0])], [call("x", [1.0], [2.0])], TIGHT).is_equal
    assert not match_calls(PAIR, [call("a", [1.0], [2.0])], [call("x", [1.0], [3.0])], TIGHT).is_equal
    assert not match_calls(PAIR, [call("a", [1.0], [2.0])], [call("x", [1.0])], TIGHT).is_equal


def test_nan_equals_nan_at_the_same_place_alone() -> None:
    nan = float("nan")
    assert match_calls(PAIR, [call("a", [nan, 1.0])], [call("x", [nan, 1.0])], TIGHT).is_equal
    assert not match_calls(PAIR, [call("a", [nan, 1.0])], [call("x", [1.0, nan])], TIGHT).is_equal


def test_what_was_not_kept_is_said_and_not_judged() -> None:
    found = match_calls(PAIR, [call("a", is_whole=False)], [call("x", [1.0])], TIGHT)
    assert found.not_kept == ("a",)
    assert not found.matches


def test_arrays_in_a_structure() -> None:
    found = arrays_in({"a": np.ones(2), "b": [np.zeros(3), 1.5]}, "target_output_fn")
    assert [array.shape for array in found] == [(2,), (3,), ()]
    with pytest.raises(ComparisonError, match=r"^target_output_fn returned a str\. It has to return a tensor"):
        arrays_in("logits", "target_output_fn")


class Module:
    """Equal to all of its kind, as a user's module may be."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_a_mark_is_the_modules_own_and_goes_with_it() -> None:
    first, second = Module(), Module()
    marks.mark(first, "first")
    assert marks.marks_in([("a", first), ("b", second)]) == {"a": "first"}
    marks.mark(first, "again")
    assert marks.mark_of(first) == "again"
    count = len(marks._MARKS)
    del first
    gc.collect()
    assert len(marks._MARKS) == count - 1
    assert not marks.unmark(second)
