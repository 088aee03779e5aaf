"""FLOPs of 22 models against what their architecture gives on paper: exact, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torcheer as tl
from benchmarks.flops_nets import NETS, Net


@pytest.mark.parametrize("make", NETS, ids=lambda make: str(NETS.index(make)))
@pytest.mark.parametrize("how", ["grad", "no_grad", "inference"])
def test_flops_are_those_of_the_architecture(make: Callable[[], Net], how: str) -> None:
    torch.manual_seed(0)
    net = make()
    with torch.inference_mode(how == "inference"), torch.set_grad_enabled(how == "grad"):
        backward = how == "grad"
        report = tl.profile(net.model, *net.args, measure="flops", backward=backward)
    assert report.uncounted == []
    assert not report.is_partial
    assert report.totals.figures.flops_forward == 2 * net.macs, net.name
    assert report.totals.figures.hardware_flops_forward == 2 * net.macs
    if backward:
        assert report.totals.figures.flops_backward == 2 * (2 * net.macs - net.first_macs), net.name
        assert report.totals.figures.hardware_flops_backward >= report.totals.figures.flops_backward
