"""FLOPs and backward work go to the module whose they are: towers, shared modules, checkpoints, skips, in-place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from benchmarks.profile_nets import FAMILIES
from benchmarks.shared_nets import MM, SIZE, Checkpointed, Skips, Towers, layer


def of(model: nn.Module) -> Any:
    torch.manual_seed(0)
    return tl.profile(model, torch.randn(4, SIZE), backward=True, measure=("flops", "time"), repeats=1)


def flops(report: Any) -> dict[str, tuple[int, int]]:
    return {
        row.address: (row.total.flops_forward // MM, row.total.flops_backward // MM)
        for row in report.rows
        if row.type_name != "ReLU"
    }


def test_two_towers() -> None:
    found = flops(of(Towers()))
    assert found["a"] == found["b"] == (2, 3)
    assert found[""] == (4, 6)


def test_skips_and_a_shared_module() -> None:
    report = of(Skips())
    assert flops(report) == {"": (4, 7), "one": (1, 1), "two": (1, 2), "shared": (2, 4)}
    assert [call.total.flops_backward // MM for call in report.calls if call.address == "shared"] == [2, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_computes_again_is_apart(reentrant: bool) -> None:
    report = of(Checkpointed(reentrant))
    assert flops(report)["inside"] == (2, 4)
    assert flops(report)["before"] == (1, 1)
    again = {row.address: row.total.flops_recompute // MM for row in report.rows}
    # Checkpointing without reentry stops as soon as it has what the backward needs.
    assert again["inside"] in ((2,) if reentrant else (1, 2))
    assert again["before"] == 0
    assert report["inside"].total.recompute_ns > 0
    assert report.totals.unattributed_ns == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_backward_of_19_families_is_attributed(name: str) -> None:
    make: Callable[[], nn.Module] = FAMILIES[name]
    torch.manual_seed(0)
    report = tl.profile(make(), torch.rand(2, 3, 16, 16), backward=True, measure=("time", "flops"), repeats=1)
    assert report.totals.unattributed_ns == 0
    assert report.notes == []
    parts = [row.own.backward_ns or 0 for row in report.rows]
    assert sum(parts) == report.totals.figures.backward_ns > 0
    leaves = [row for row in report.rows if row.type_name in ("Conv2d", "Linear")]
    assert all(row.own.backward_ns > 0 and row.own.flops_backward > 0 for row in leaves if row.calls)


def test_a_module_called_from_two_places_has_a_row_in_each() -> None:
    class Half(nn.Module):
        def __init__(self, shared: nn.Module) -> None:
            super().__init__()
            self.shared = shared

        def forward(self, x: Tensor) -> Tensor:
            return self.shared(x).relu()

    shared = layer()
    report = of(nn.Sequential(Half(shared), Half(shared)))
    rows = [row for row in report.rows if row.type_name == "Linear"]
    assert [(row.total.flops_forward // MM, row.is_repeat) for row in rows] == [(1, False), (1, True)]
    assert report.rows[0].num_params == SIZE * SIZE + SIZE == sum(row.num_own_params for row in report.rows)


def test_custom_operators_are_uncounted_until_they_have_a_formula() -> None:
    from torcheer.profiling import Call, register_formula
    from torcheer.profiling.flops import FORMULAS

    @torch.library.custom_op("torcheer_test::twice", mutates_args=())
    def twice(x: Tensor, w: Tensor) -> Tensor:
        return torch.from_numpy((x.detach().numpy() @ w.detach().numpy()) * 2)

    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(SIZE, SIZE))

        def forward(self, x: Tensor) -> Tensor:
            return twice(x, self.w)

    x = torch.randn(4, SIZE)
    report = tl.profile(Custom(), x, measure="flops")
    assert [(one.function, one.num_calls) for one in report.uncounted] == [("torcheer_test.twice.default", 1)]
    assert report.is_partial
    assert "(partial)" in str(report)
    assert "register_formula" in str(report)

    @register_formula("torcheer_test.twice")
    def _twice(call: Call) -> int:
        return 2 * call.shape(0)[0] * call.shape(0)[1] * call.shape(1)[1]

    try:
        report = tl.profile(Custom(), x, measure="flops")
        assert not report.is_partial
        assert report.totals.figures.flops_forward == MM
    finally:
        del FORMULAS["torcheer_test.twice"]


def test_a_formula_counts_an_operator_whole_and_not_what_its_kernel_calls_too() -> None:
    from torcheer.profiling.flops import FORMULAS

    @torch.library.custom_op("torcheer_test::product", mutates_args=())
    def product(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    class Custom(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return product(x, torch.ones(SIZE, SIZE)) @ torch.ones(SIZE, SIZE)

    x = torch.randn(4, SIZE)
    before = tl.profile(Custom(), x, measure="flops")
    # What the kernel calls is seen; whether that is all it does is not known.
    assert (before.totals.figures.flops_forward, before.is_partial) == (2 * MM, True)
    tl.register_formula("torcheer_test.product")(lambda call: 7)
    try:
        after = tl.profile(Custom(), x, measure="flops")
    finally:
        del FORMULAS["torcheer_test.product"]
    assert (after.totals.figures.flops_forward, after.is_partial) == (MM + 7, False)
