"""What one rank runs: ``python rank_script.py RANK KIND FOLDER``. Records two steps' worth and saves it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import torcheer as tl


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def build(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model = Net()
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for part in (model.up, model.down, model):
            fully_shard(part, mesh=mesh)
        return model
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan: Any = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def main(rank: int, kind: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0 if kind == "tp" else rank))
    plain = build(kind)
    expected = plain(x)
    expected.sum().backward()
    model = build(kind)
    history = tl.log_forward_pass(model, x)
    assert torch.equal(history.output, expected)
    history.log_backward(history.output.sum())
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        pair = [grad.to_local() if hasattr(grad, "to_local") else grad for grad in (one.grad, other.grad)]
        assert torch.equal(*pair)
    history.save(folder / f"rank{rank}.tch")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
