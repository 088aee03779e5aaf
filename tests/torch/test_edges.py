"""Edges are tensors: views, in-place writes and aliases have exactly the parents that the bytes say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import torcheer as tl
from tests.torch.edge_cases import CASES, Runs
from tests.torch.fidelity.checker import check_record
from torcheer.history import ModelHistory, OpView

# Cases whose ops are the same but whose parents were wrong in another tool are checked for shapes too.
SHAPES: dict[str, dict[int, tuple[int, ...]]] = {
    "two_views_written": {1: (4, 4), 2: (4,), 3: (4,), 4: (4,), 5: (4,), 6: (4,)},
    "base_written_then_view_read": {1: (4, 4), 2: (2, 4), 3: (4, 4), 4: (4,)},
    "base_written_then_transpose_read": {1: (4, 4), 2: (4, 4), 3: (4, 4), 4: (4, 4)},
    "view_of_view_written": {2: (16,), 3: (4,), 4: (2,), 5: (2,), 6: ()},
    "as_strided_overlapping": {2: (8,), 3: (5,), 4: (8,), 5: ()},
    "squeeze_in_place": {1: (4, 4), 2: (1, 4, 4), 3: (1, 4, 4), 4: ()},
}


def record(name: str, layers_to_save: str = "all") -> tuple[ModelHistory, list[OpView], Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    plain = Runs(CASES[name][0])(x.clone())
    history = tl.log_forward_pass(Runs(CASES[name][0]), x.clone(), layers_to_save=layers_to_save)
    check_record(history.record)
    results = (plain, history.output) if isinstance(plain, tuple) else ((plain,), (history.output,))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)
    return history, list(history), x


@pytest.mark.parametrize("name", list(CASES))
def test_parents_are_what_the_bytes_say(name: str) -> None:
    history, ops, _ = record(name)
    shown = [(op.label, [parent.label for parent in op.parents]) for op in ops]
    for key, parents in CASES[name][1].items():
        op = history.outputs[int(key[3:])] if isinstance(key, str) else ops[key]
        assert {ops.index(parent) for parent in op.parents} == parents, f"{op.label} in {shown}"


@pytest.mark.parametrize("name", list(CASES))
def test_edges_do_not_depend_on_what_is_kept(name: str) -> None:
    edges = [
        [[parent.label for parent in op.parents] for op in record(name, layers_to_save)[1]]
        for layers_to_save in ("all", "none")
    ]
    assert edges[0] == edges[1]


@pytest.mark.parametrize("name", list(SHAPES))
def test_shapes_are_true(name: str) -> None:
    _, ops, _ = record(name)
    for place, shape in SHAPES[name].items():
        assert ops[place].shape == shape, ops[place].label


def test_kept_contents_are_those_of_their_time() -> None:
    """Each op's contents are what it returned, whatever was written afterwards."""
    _, ops, x = record("two_views_written")
    y = x + 1
    assert torch.equal(ops[1].tensor_contents, y)
    assert torch.equal(ops[2].tensor_contents, y[0])
    assert torch.equal(ops[3].tensor_contents, y[1])
    assert torch.equal(ops[4].tensor_contents, y[0] * 2)
    assert torch.equal(ops[5].tensor_contents, y[1] + 3)


def test_memory_edges_say_so() -> None:
    _, ops, _ = record("base_written_then_view_read")
    assert {(edge.parent.name, edge.how) for edge in ops[4].edges} == {("getitem", "argument"), ("add", "memory")}
    assert all(edge.value.shape for edge in ops[4].edges)


def test_versions_count_the_writes_of_a_storage() -> None:
    history, ops, _ = record("two_views_written")
    values = history.record.values
    storages = {values[item.value].storage for op in ops[1:6] for item in op.op.outputs}
    assert len(storages) == 1
    versions = [values[op.op.outputs[0].value].version for op in ops[1:6]]
    assert versions == [0, 0, 0, 1, 2]
