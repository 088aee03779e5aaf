"""Models that run in one process and, spread over two, under torchrun; with mistakes to be found.

``python -m torch.distributed.run --nproc-per-node 2 sharded.py FOLDER`` records every case of ``CASES`` on each rank
into ``FOLDER/CASE/rank0.tch``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import torcheer as tl

WIDTH, HEADS, BATCH, LENGTH = 16, 4, 4, 6


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.o = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).view(*x.shape[:2], -1, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Hand(nn.Module):
    """A feed-forward block that is spread by hand: columns of one matrix, rows of the other, and an all-reduce."""

    def __init__(self, rank: int = 0, world: int = 1, bug: str = "") -> None:
        super().__init__()
        self.rank, self.world, self.bug = rank, world, bug
        whole = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 32 // world), nn.Linear(32 // world, WIDTH, bias=False)
        self.bias = nn.Parameter(whole[1].bias.detach().clone())
        self.dropout = nn.Dropout(0.2 if "dropout" in bug else 0.0)
        up = 0 if bug == "wrong shard" else rank
        down = world - 1 - rank if bug == "swapped rows" else 0 if bug == "wrong rows" else rank
        with torch.no_grad():
            self.up.weight.copy_(whole[0].weight.chunk(world)[up])
            self.up.bias.copy_(whole[0].bias.chunk(world)[rank])
            self.down.weight.copy_(whole[1].weight.chunk(world, 1)[down])
            if bug == "stale" and rank == 1:
                self.norm.weight.mul_(1.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        y = self.down(hidden)
        if self.bug == "summand scaled" and self.rank == 1:
            y = y * 0.5
        if self.bug == "bias on all":
            y = y + self.bias
        if self.world > 1 and self.bug != "no reduce":
            dist.all_reduce(y)
        if self.bug == "scaled on one":
            y = y * (1.0 if self.rank == 0 else 0.5)
        if self.bug == "averaged":
            y = y / self.world if self.world > 1 else y
        if self.bug != "bias on all" or self.world == 1:
            y = y + self.bias
        return x + self.dropout(y)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(WIDTH, 8), nn.BatchNorm1d(LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.up(x))


def whole_input() -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))


def single(kind: str, bug: str) -> nn.Module:
    """The model of one process."""
    torch.manual_seed(0)
    if kind == "hand":
        return Hand(bug="dropout" if "dropout" in bug else "")
    if bug == "batch norm":
        return Normed()
    return Block()


def spread(kind: str, bug: str, rank: int) -> tuple[Any, Tensor]:
    """The model of one rank, and its input."""
    torch.manual_seed(0)
    x = whole_input()
    if kind == "hand":
        return Hand(rank, 2, bug), x
    model: Any = single(kind, bug)
    mine = x.chunk(2)[0 if bug == "same batch" else rank]
    if kind == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model)
        if bug == "stale":
            with torch.no_grad():
                model.up.bias.add_(0.1 * rank)
        return (model if bug in ("not averaged", "summed") else wrapped), mine
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for part in (model.attention, model.up, model.down, model):
            fully_shard(part, mesh=mesh)
        if bug == "stale":
            with torch.no_grad():
                model.up.weight.to_local().mul_(1.0 + rank)
        return model, mine
    _parallelize(kind, model, mesh)
    if bug == "wrong columns" and rank == 1:
        with torch.no_grad():
            model.attention.v.weight.to_local().mul_(1.1)
    if bug == "wrong rows" and rank == 1:
        with torch.no_grad():
            model.down.weight.to_local().mul_(-1)
    return model, x


def _parallelize(kind: str, model: Any, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    plan: Any = {
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.o": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    if kind == "sp":
        plan.update({
            "norm1": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
            "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "norm2": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
            "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True),
        })  # fmt: skip
    parallelize_module(model, mesh, plan)


CASES: dict[str, str] = {
    "hand": "; wrong shard; swapped rows; wrong rows; summand scaled; bias on all; no reduce; scaled on one; averaged;"
    " stale; dropout; dropout seed",
    "ddp": "; stale; not averaged; summed; same batch; batch norm",
    "fsdp": "; stale",
    "tp": "; wrong columns; wrong rows",
    "sp": "; wrong columns",
}


def cases() -> list[tuple[str, str]]:
    return [(kind, bug.strip()) for kind, bugs in CASES.items() for bug in bugs.split(";")]


def folder_of(kind: str, bug: str) -> str:
    return f"{kind} {bug}".strip().replace(" ", "-")


def loss_of(output: Tensor) -> Tensor:
    return output.square().mean()


def record(kind: str, bug: str, rank: int, folder: Path) -> None:
    model, x = spread(kind, bug, rank)
    torch.manual_seed(7 + rank if bug == "dropout seed" else 7)
    history = tl.log_forward_pass(model, x)
    if kind != "hand":
        with history.log_backward():
            # With the sequence cut, each rank has the mean of its own half.
            (loss_of(history.output) / (2 if kind == "sp" else 1)).backward()
            if bug == "summed":
                for param in model.parameters():
                    dist.all_reduce(param.grad)
    folder.mkdir(parents=True, exist_ok=True)
    history.save(folder / f"rank{rank}.tch", overwrite=True)


def record_grid(rank: int, folder: Path) -> None:
    """Four ranks: the batch and FSDP2's shards over one axis, tensor parallel over the other; one bug."""
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for name in ("grid", "grid-wrong-rows"):
        torch.manual_seed(0)
        model = Block()
        _parallelize("tp", model, mesh["tensor"])
        for part in (model.attention, model.up, model.down, model):
            fully_shard(part, mesh=mesh["data"])
        if name == "grid-wrong-rows" and rank == 2:
            with torch.no_grad():
                model.down.weight.to_local().mul_(-1)
        history = tl.log_forward_pass(model, whole_input().chunk(2)[rank // 2])
        history.log_backward(loss_of(history.output))
        (folder / name).mkdir(parents=True, exist_ok=True)
        history.save(folder / name / f"rank{rank}.tch", overwrite=True)


def observe(kind: str, rank: int, folder: Path) -> None:
    """Profile and watch a model: the profile of each rank into a file, the watched run into a store."""
    model, x = spread(kind, "", rank)
    report = tl.profile(model, x, backward=True, repeats=1)
    report.to_json(folder / f"profile-{kind}-{rank}.json")
    if rank == 0:
        print(report)
    watch = tl.watch(model, log_freq=1, backend="store", dir=folder / "watched", name=kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        watch.log(loss=loss)
    watch.stop()


def main(folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for kind, bug in cases() if dist.get_world_size() == 2 else ():
        if wanted(folder_of(kind, bug)):
            record(kind, bug, rank, folder / folder_of(kind, bug))
    if dist.get_world_size() == 4:
        record_grid(rank, folder)
    for kind in ("ddp", "fsdp", "tp") if dist.get_world_size() == 2 else ():
        if wanted(f"observe-{kind}"):
            observe(kind, rank, folder)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    chosen = sys.argv[2:]
    main(Path(sys.argv[1]), lambda name: not chosen or name in chosen)
