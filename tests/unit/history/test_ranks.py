"""Recordings of several ranks, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

import torcheer as tl
from tests.unit.history.make_history import bare_history, nested_record, shared_record
from tests.unit.make_record import make_record
from torcheer.errors import RecordFileError
from torcheer.history import ModelHistory, Ranks
from torcheer.record.model import Op, Record, Ref
from torcheer.record.ranks import align, collectives, first_mismatch


def rank_of(record: Record, rank: int | None, world_size: int = 2) -> ModelHistory:
    record.run.rank, record.run.world_size = rank, world_size
    return bare_history(record)


def with_collective(record: Record, function: str) -> Record:
    args = (Ref(record.ops[1].outputs[0].value),)
    record.aten.append(Op(len(record.aten), "op", "allreduce", function, 0, None, args))
    return record


def test_ranks_come_in_order_and_say_who_is_missing() -> None:
    ranks = Ranks([rank_of(make_record(), 2, 3), rank_of(make_record(), 0, 3)])
    assert [history.record.run.rank for history in ranks] == [0, 2]
    assert ranks.missing == [1]
    assert "not given: rank 1" in repr(ranks)


@pytest.mark.parametrize("numbers", [(None, 1), (1, 1)])
def test_recordings_that_are_no_ranks_are_refused(numbers: tuple[int | None, int]) -> None:
    with pytest.raises(RecordFileError, match=r"Give load one recording of each rank of a run"):
        Ranks([rank_of(make_record(), number) for number in numbers])


def test_ranks_of_other_runs_are_refused() -> None:
    with pytest.raises(RecordFileError, match=r"not of one run: SmallNet \(rank 0 of 2\), SmallNet \(rank 1 of 4\)"):
        Ranks([rank_of(make_record(), 0, 2), rank_of(make_record(), 1, 4)])


def test_the_same_operations_share_rows() -> None:
    first, second = make_record(), make_record()
    rows = align([first, second])
    assert [row.ops for row in rows] == [(op.index, op.index) for op in first.ops if op.owner is None]


def test_operations_of_one_rank_stay_in_its_order() -> None:
    """As in a pipeline: the ranks have nothing in common but inputs and outputs."""
    first, second = nested_record(), shared_record()
    rows = align([first, second])
    for rank, record in enumerate((first, second)):
        places = [row.ops[rank] for row in rows if row.ops[rank] is not None]
        assert sorted(place for place in places if place is not None) == [
            op.index for op in record.ops if op.owner is None
        ]
        ops = [record.ops[place] for place in places if place is not None]
        assert [op.index for op in ops] == sorted(op.index for op in ops)


def test_collectives_that_do_not_meet() -> None:
    first = with_collective(make_record(), "c10d.allreduce_.default")
    second = with_collective(make_record(), "_c10d_functional.all_gather_into_tensor.default")
    (call,) = collectives(first)
    assert (call.function, call.shapes) == (
        "c10d.allreduce_.default",
        (first.values[first.ops[1].outputs[0].value].shape,),
    )
    assert call.size_bytes == first.values[first.ops[1].outputs[0].value].size_bytes
    assert first_mismatch([first, first]) is None
    assert first_mismatch([first, second]) == 0
    assert first_mismatch([first, make_record()]) == 0
    assert "collectives differ from the 1. on" in repr(Ranks([rank_of(first, 0), rank_of(second, 1)]))


def test_load_opens_a_list(tmp_path: Path) -> None:
    for rank in range(2):
        rank_of(make_record(), rank).save(tmp_path / f"{rank}.tch")
    ranks = tl.load([tmp_path / "0.tch", tmp_path / "1.tch"])
    assert isinstance(ranks, Ranks)
    assert len(ranks) == 2
    assert repr(ranks).startswith("SmallNet on 2 ranks")
