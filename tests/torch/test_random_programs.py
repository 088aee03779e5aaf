"""Random views, writes and reads of one storage: edges against a count of who wrote what, contents against clones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from torcheer.history import OpView

NUM_STEPS = 40
SEEDS = range(40)


@dataclass
class Known:
    """A tensor of the program: which elements of the storage it shows, and which op last made or wrote it."""

    tensor: Tensor
    places: Any
    maker: int

    @property
    def elements(self) -> set[int]:
        return set(self.places.ravel().tolist())


@dataclass
class Read:
    """What is known of one reading op."""

    maker: int  # op that last made or wrote the tensor object it reads
    elements: set[int]
    writers: set[int]  # ops that wrote these elements last


@dataclass
class Log:
    """What a program did, op by op; op 0 is the input."""

    reads: dict[int, Read] = field(default_factory=dict)
    writes: dict[int, set[int]] = field(default_factory=dict)  # op → elements
    results: list[Tensor] = field(default_factory=list)


class Program(nn.Module):
    """The same random steps for the same seed."""

    def __init__(self, seed: int, *, clones: bool) -> None:
        super().__init__()
        self.seed = seed
        self.clones = clones
        self.log = Log()

    def forward(self, x: Tensor) -> Tensor:
        plan, log = random.Random(self.seed), self.log
        base = x + 1
        tensors = [Known(base, np.arange(64).reshape(8, 8), 1)]
        last = np.full(64, 1)
        self._keep(base)
        for op in range(2, NUM_STEPS + 2):
            chosen = plan.choice(tensors)
            action = plan.choice(("view", "turn", "write", "write", "replace", "read", "read", "read"))
            places = chosen.places
            if action == "view":
                cut = _cut(plan, places)
                tensors.append(Known(chosen.tensor[cut], places[cut], op))
                self._keep(tensors[-1].tensor)
            elif action == "turn":
                tensors.append(Known(chosen.tensor.t(), places.T, op))
                self._keep(tensors[-1].tensor)
            elif action == "read":
                log.reads[op] = Read(chosen.maker, chosen.elements, set(last[places.ravel()].tolist()))
                self._keep(chosen.tensor.sum())
            else:
                self._keep(chosen.tensor.mul_(2) if action == "write" else chosen.tensor.fill_(float(op)))
                last[places.ravel()] = op
                log.writes[op] = chosen.elements
                chosen.maker = op
        return base.sum()

    def _keep(self, tensor: Tensor) -> None:
        if self.clones:
            self.log.results.append(tensor.clone())


def _cut(plan: random.Random, places: Any) -> tuple[slice, ...]:
    cuts = []
    for size in places.shape:
        start = plan.randrange(size)
        cuts.append(slice(start, plan.randint(start + 1, size), plan.choice((1, 1, 2))))
    return tuple(cuts)


def _ancestors(ops: list[OpView], op: OpView) -> set[int]:
    found: set[int] = set()
    todo = [op]
    while todo:
        fresh = {ops.index(parent) for parent in todo.pop().parents} - found
        found |= fresh
        todo += [ops[place] for place in fresh]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_edges_are_those_of_the_bytes(seed: int) -> None:
    program = Program(seed, clones=False)
    history = tl.log_forward_pass(program, torch.randn(8, 8), layers_to_save=None)
    check_record(history.record)
    ops, log = list(history), program.log
    assert len(log.reads) > 5
    for place, read in log.reads.items():
        op = ops[place]
        assert op.name == "sum"
        direct = {ops.index(parent) for parent in op.parents}
        # A write that covers everything hides what was there; the writers that are left must all be found.
        assert read.writers <= _ancestors(ops, op), "an op that wrote what is read is no ancestor"
        assert {writer for writer in read.writers if writer > read.maker} <= direct, "a later writer is no parent"
        assert direct <= {read.maker} | set(log.writes)
        for parent in direct - {read.maker}:
            assert parent > read.maker, "an op that wrote before the view was made is a parent"
            assert log.writes[parent] & read.elements, "an op that wrote elsewhere is a parent"


@pytest.mark.parametrize("seed", SEEDS)
def test_contents_are_those_of_their_time(seed: int) -> None:
    x = torch.randn(8, 8)
    plain = Program(seed, clones=True)
    expected = plain(x)
    history = tl.log_forward_pass(Program(seed, clones=False), x, layers_to_save="all")
    assert torch.equal(history.output, expected)
    ops = list(history)
    for place, result in enumerate(plain.log.results, 1):
        assert torch.equal(ops[place].tensor_contents, result), ops[place].label
