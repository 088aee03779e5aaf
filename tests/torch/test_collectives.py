"""Collectives, in a process group of one: what they write is seen, and kept contents are those from before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import torcheer as tl


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    # Other tests of the same process may have made one, which lives as long as the process.
    is_new = not dist.is_initialized()
    if is_new:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        yield
    finally:
        if is_new:
            dist.destroy_process_group()


class Gathers(nn.Module):
    """A collective writes into memory that had other contents, which no version counter tells of."""

    def forward(self, x: Tensor) -> Tensor:
        kept = x * 0
        dist.all_gather([kept], x)
        dist.all_reduce(kept)
        return kept + 2


@pytest.mark.usefixtures("alone")
def test_what_a_collective_writes_is_a_new_value() -> None:
    x = torch.randn(3, 4)
    history = tl.log_forward_pass(Gathers(), x)
    assert torch.equal(history.output, x + 2)
    product, gathered, reduced, total = history[1:5]
    assert torch.equal(product.tensor_contents, torch.zeros_like(x)), "as it was before it was written to"
    assert torch.equal(gathered.tensor_contents, x)
    assert gathered in reduced.parents
    assert reduced in total.parents
    assert reduced.op.writes == (gathered.op.outputs[0].value,)
