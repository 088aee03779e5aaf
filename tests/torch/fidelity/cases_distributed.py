"""DDP, FSDP2 and DTensor in a process group of one."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def start_group() -> None:
    """One process group for all cases; gloo threads do not survive being started over and over."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def ddp() -> tuple[Any, Tensor]:
    start_group()
    return nn.parallel.DistributedDataParallel(Small()), torch.randn(3, 4)


def mesh() -> Any:
    start_group()
    return torch.distributed.device_mesh.init_device_mesh("cpu", (1,))


def fsdp() -> tuple[Any, Tensor]:
    from torch.distributed.fsdp import fully_shard

    model = Small()
    where = mesh()
    fully_shard(model.first, mesh=where)
    fully_shard(model, mesh=where)
    return model, torch.randn(3, 4)


class Twice(nn.Module):
    """Its params are gathered, given back, and gathered again into the same storage."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(40, 40)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(torch.relu(self.first(x)))


def fsdp_twice() -> tuple[Any, Tensor]:
    from torch.distributed.fsdp import fully_shard

    model = Twice()
    where = mesh()
    fully_shard(model.first, mesh=where)
    fully_shard(model, mesh=where)
    return model, torch.randn(3, 40)


def check_gathered_contents(history: ModelHistory) -> None:
    """What a product read of the gathered weight is its value, or is refused; it is never what came to lie there."""
    for raw in history.record.ops:
        if raw.name == "linear":
            params = [history.record.params[param].address for param in raw.params]
            assert params == ["first.weight", "first.bias"], "the sharded params are the ones that are read"
    for op in history:
        if op.name == "linear" and op.has_contents:
            read = {edge.argument: edge.parent for edge in op.edges}
            assert [read[argument].name for argument in ("1", "2")] == ["copy", "copy"]
            if read["1"].has_contents and read["2"].has_contents:
                weight, bias = read["1"].tensor().view(40, 40), read["2"].tensor()
                assert torch.equal(torch.nn.functional.linear(read["0"].tensor(), weight, bias), op.tensor())


def dtensor() -> tuple[Any, Tensor]:
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    where = mesh()

    def shard(name: str, module: nn.Module, where: Any) -> None:
        for key, param in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(param, where, [Shard(0)])))

    model = distribute_module(Small(), where, shard)
    return model, distribute_tensor(torch.randn(3, 4), where, [Replicate()])


def tensor_parallel() -> tuple[Any, Tensor]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    return parallelize_module(Small(), mesh(), plan), torch.randn(3, 4)


def check_small(history: ModelHistory) -> None:
    products = [op for op in history if op.name == "linear"]
    assert [op.module.rsplit(".", 1)[-1] for op in products] == ["first", "second"]
    assert [op.name for op in history if op.name == "relu"]
    reached = set(history.outputs)
    todo = list(reached)
    while todo:
        fresh = set(todo.pop().parents) - reached
        reached |= fresh
        todo += fresh
    assert set(history.inputs) <= reached
    assert set(products) <= reached


def check_params(history: ModelHistory) -> None:
    check_small(history)
    read = {param.address.removeprefix("module.") for op in history if op.name == "linear" for param in op.params}
    assert read == {"first.weight", "first.bias", "second.weight", "second.bias"}


def check_gathered(history: ModelHistory) -> None:
    """The products read what the ops before them gathered from the shards."""
    check_small(history)
    for op in history:
        if op.name == "linear":
            assert [edge.argument for edge in op.edges if edge.parent.name == "copy"] == ["1", "2"]


CASES = [
    Case("ddp", model_of(ddp), min_ops=3, check=check_params),
    # FSDP gives the memory of gathered params back while the model runs.
    Case("fsdp2", model_of(fsdp), min_ops=3, check=check_gathered, keeps_all=False),
    Case("fsdp2_twice", model_of(fsdp_twice), min_ops=3, check=check_gathered_contents, keeps_all=False),
    Case("dtensor", model_of(dtensor), min_ops=3, check=check_params),
    Case("tensor_parallel", model_of(tensor_parallel), min_ops=3, check=check_params),
]
