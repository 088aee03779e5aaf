"""Two processes that run one model together: each is recorded, and the recordings are read side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torcheer as tl
from torcheer.history import Ranks

SCRIPT = Path(__file__).with_name("rank_script.py")


def run_ranks(kind: str, folder: Path) -> Ranks:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SCRIPT), str(rank), kind, str(folder)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    problems = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(problems)
    return tl.load([folder / "rank1.tch", folder / "rank0.tch"])


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tp"])
def test_two_ranks_are_recorded_and_read_side_by_side(kind: str, tmp_path: Path) -> None:
    ranks = run_ranks(kind, tmp_path)
    assert [history.record.run.rank for history in ranks] == [0, 1]
    assert ranks.missing == []
    products = [row for row in ranks.ops if row.name == "linear"]
    assert [row.module.rpartition(".")[2] for row in products] == ["up", "down"]
    for rank, history in enumerate(ranks):
        record = history.record
        for row, name in zip(products, ("up", "down"), strict=True):
            place = row.ops[rank]
            assert place is not None
            read = {record.params[param].address.removeprefix("module.") for param in record.ops[place].params}
            assert read == {f"{name}.weight", f"{name}.bias"}
        assert record.run.num_backward == 1
        _check_parts(kind, history, rank)
    first, second = ranks.collectives
    assert [call.function for call in first] == [call.function for call in second]
    expected = {"ddp": "allreduce", "fsdp": "allgather", "tp": "all_reduce"}[kind]
    assert any(expected in call.function for call in first)
    assert all(call.size_bytes > 0 for call in first)
    _check_gradients(kind, ranks)
    text = repr(ranks)
    assert "on 2 ranks" in text
    assert "differ" not in text


def _check_parts(kind: str, history: tl.ModelHistory, rank: int) -> None:
    """What is kept of a tensor that is spread over processes is this process's part, and the record says which."""
    record = history.record
    of_params = {record.params[part.param].address: part for part in record.parts if part.param is not None}
    cut = {
        "ddp": {},
        "fsdp": {"up.weight": "S(0)", "down.weight": "S(0)"},
        "tp": {"up.weight": "S(0)", "down.bias": "R"},
    }
    for address, placement in cut[kind].items():
        part = of_params[address]
        assert (part.mesh, part.coordinate, part.placements) == ((2,), (rank,), (placement,))
        assert tuple(history.payloads[f"param.{address}"].shape) == part.shape
    assert not history.payloads.unsaved
    sums = [part for part in record.parts if part.value is not None and part.placements == ("P(sum)",)]
    assert bool(sums) == (kind == "tp")


def _check_gradients(kind: str, ranks: Ranks) -> None:
    """Gradients are those after the processes have added theirs up."""
    kept = []
    for history in ranks:
        record = history.record
        found = {record.params[one.param].address: one for one in record.gradients if one.param is not None}
        kept.append({name: history.payloads[one.payload or ""] for name, one in found.items()})
    name = "module.down.bias" if kind == "ddp" else "down.bias"
    if kind == "fsdp":
        assert [tuple(one[name].shape) for one in kept] == [(4,), (4,)]
    else:
        assert torch.equal(kept[0][name], kept[1][name])
