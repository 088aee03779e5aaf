"""A run of one process against one that is spread over two, started by torchrun: equal, or the rank and op at fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torcheer as tl
from tests.torch import sharded
from torcheer.errors import ComparisonError
from torcheer.store import Run

# ranks, words of the headline, line of source (a part of it), and what the weights tell where they are at hand
FOUND: dict[str, tuple[tuple[int, ...], str, str, str]] = {
    "hand-wrong-shard": ((1,), "linear_1_2 in up", "self.up(", "rank 1 has rank 0's part of up.weight"),
    "hand-swapped-rows": ((0, 1), "linear_2_4 in down", "self.down(hidden)", "rank 0 has rank 1's part of down.weight"),
    "hand-wrong-rows": ((1,), "linear_2_4 in down", "self.down(hidden)", "rank 1 has rank 0's part of down.weight"),
    "hand-summand-scaled": ((1,), "mul_1_5", "y = y * 0.5", "only rank 1"),
    "hand-bias-on-all": ((0, 1), "add_1_5", "y = y + self.bias", "before the summands are added up"),
    "hand-no-reduce": ((0, 1), "linear_2_4 in down", "self.down(hidden)", "without its being added up"),
    "hand-scaled-on-one": ((1,), "mul_1_6", "if self.rank == 0 else 0.5", "its arguments differ"),
    "hand-averaged": ((0, 1), "div_1_6", "y / self.world", "it is 0.5 times what it should be"),
    "hand-stale": ((1,), "layernorm_1_1 in norm", "self.norm(x)", "rank 1's norm.weight is 1.5 times A's"),
    "hand-dropout-seed": ((1,), "dropout_1_7 in dropout", "self.dropout(y)", "draws other random numbers"),
    "ddp-stale": ((1,), "in up", "self.up(", "rank 1's up.bias is not A's"),
    "ddp-same-batch": ((1,), "input", "", "not its part of what A was given"),
    "ddp-batch-norm": ((0, 1), "batchnorm", "self.norm(", "SyncBatchNorm"),
    "ddp-not-averaged": ((0, 1), "the gradient of down.weight", "self.down(", "not averaged over the ranks"),
    "ddp-summed": ((0, 1), "the gradient of down.weight", "self.down(", "2 times A's"),
    "fsdp-stale": ((1,), "in up", "self.up(", "rank 1's up.weight is 2 times A's"),
    "tp-wrong-columns": ((1,), "in attention.v", "self.v", "rank 1's attention.v.weight is 1.1 times A's"),
    "tp-wrong-rows": ((1,), "in down", "self.down(", "rank 1's down.weight is -1 times A's"),
    "sp-wrong-columns": ((1,), "in attention.v", "self.v", "rank 1's attention.v.weight is 1.1 times A's"),
}
EQUAL = [name for name in (sharded.folder_of(*case) for case in sharded.cases()) if name not in FOUND]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases, recorded in one run of torchrun."""
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "printed.txt").write_text(torchrun(folder, 2))
    return folder


def torchrun(folder: Path, num_ranks: int) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_ranks}", "--standalone"]
    done = subprocess.run(
        [*command, sharded.__file__, str(folder)], capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compared(folder: Path, name: str, *, with_model: bool) -> tl.ModelHistory:
    kind, bug = next(case for case in sharded.cases() if sharded.folder_of(*case) == name)
    model, x = sharded.single(kind, bug), sharded.whole_input()
    ranks = tl.load(folder / name)
    torch.manual_seed(7)
    if with_model:
        return tl.compare(model, ranks, x, loss=None if kind == "hand" else sharded.loss_of)
    history = tl.log_forward_pass(model, x)
    if kind != "hand":
        history.log_backward(sharded.loss_of(history.output))
    return tl.compare(history, ranks)


@pytest.mark.parametrize("with_model", [False, True])
def test_equal_runs_raise_no_alarm(recordings: Path, with_model: bool) -> None:
    assert len(EQUAL) == 6
    for name in EQUAL:
        found = compared(recordings, name, with_model=with_model)
        assert found, f"{name}\n{found}"
        assert bool(found.gradients) == (not name.startswith("hand")), name
        assert all(one.verdict == "equal" for one in found.gradients)


@pytest.mark.parametrize("name", FOUND)
def test_rank_op_and_line_are_named(recordings: Path, name: str) -> None:
    ranks, words, line, reason = FOUND[name]
    found = compared(recordings, name, with_model=True)
    assert found.verdict == "diverged", found
    first = found.first_divergence
    assert first.ranks == ranks
    assert words in first.headline
    assert reason in first.why
    assert first.headline.startswith("rank 1: " if ranks == (1,) else "ranks 0 and 1: ")
    assert line in (first.b.frame.text if first.b.frame is not None else "")
    text = str(found)
    assert "on 2 ranks" in text
    assert f"B on rank {ranks[0]}:" in text


def test_a_grid_of_ranks(tmp_path: Path) -> None:
    """FSDP2 over one axis and tensor parallel over the other, on four ranks."""
    torchrun(tmp_path, 4)
    torch.manual_seed(0)
    model, x = sharded.Block(), sharded.whole_input()
    found = tl.compare(model, tl.load(tmp_path / "grid"), x, loss=sharded.loss_of)
    assert found, found
    assert len(found.gradients) == 16
    first = tl.compare(model, tl.load(tmp_path / "grid-wrong-rows"), x).first_divergence
    assert first.ranks == (2,)
    assert "in down" in first.headline
    assert first.why == "rank 2's down.weight is -1 times A's"


def test_recordings_alone_name_the_op(recordings: Path) -> None:
    """Without A's weights, which a recording of one process does not hold."""
    found = compared(recordings, "tp-wrong-columns", with_model=False)
    assert found.first_divergence.ranks == (1,)
    assert "in attention.v" in found.first_divergence.headline
    assert any("does not hold its parameters" in note for note in found.notes)
    data = found.to_json()
    assert '"ranks": [\n   1\n  ]' in data


def test_wrong_sides_are_told(recordings: Path) -> None:
    ranks = tl.load(recordings / "tp")
    with pytest.raises(ComparisonError, match=r"tl\.compare\(single, ranks\)"):
        tl.compare(ranks, ranks)
    with pytest.raises(ComparisonError, match="recordings of rank 1 are missing"):
        tl.compare(ranks[0], [recordings / "tp" / "rank0.tch"])
    with pytest.raises(ComparisonError, match="pass x"):
        tl.compare(sharded.single("tp", ""), ranks)


def test_every_rank_is_profiled_and_one_prints(recordings: Path) -> None:
    """FLOPs are those of this process's part, memory that of its shards, and what has not arrived is no NaN."""
    model, x = sharded.single("tp", ""), sharded.whole_input()
    whole = tl.profile(model, x, backward=True, measure=("flops", "memory")).to_dict()["modules"][0]["total"]
    for kind in ("ddp", "fsdp", "tp"):
        for rank in range(2):
            report = json.loads((recordings / f"profile-{kind}-{rank}.json").read_text())
            for figure in ("flops_forward", "flops_backward"):
                assert 2 * report["modules"][0]["total"][figure] == whole[figure], (kind, figure)
            assert not report["findings"], kind
            assert not report["coverage"]["uncounted"], kind
            assert any(f"rank {rank} of 2" in note for note in report["notes"])
            assert not any("other calls" in note for note in report["notes"]), kind
    printed = (recordings / "printed.txt").read_text()
    assert printed.count("FLOPs fwd") == 3, "one table for each model, not one for each rank"
    assert printed.count("torcheer: watching") == 3


def test_every_rank_is_watched(recordings: Path) -> None:
    for kind in ("ddp", "fsdp", "tp"):
        folder = recordings / "watched" / kind
        with Run.open(folder) as first, Run.open(folder, rank=1) as second:
            assert first.ranks == [0, 1]
            prefix = "module.up" if kind == "ddp" else "up"
            weights, gradients = (
                [run.rows(f"{prefix}/{what}/weight")["norm"].tolist() for run in (first, second)]
                for what in ("param", "param_grad")
            )
            assert len(weights[0]) == len(gradients[0]) == 3
            # The same params on every rank, or each rank's shard of them.
            assert (weights[0] == weights[1]) == (kind == "ddp")
            # DDP has averaged them; a shard has its own.
            assert (gradients[0] == gradients[1]) == (kind == "ddp")
