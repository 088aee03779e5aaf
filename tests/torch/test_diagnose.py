"""What a record cannot show is said in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torcheer as tl


class ThroughNumpy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.sin((x * 2).numpy())) + x


class ThroughLists(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor((x * 2).tolist()) + x


class WithConstants(nn.Module):
    """Contents leave and never come back, and what comes was never there."""

    def forward(self, x: Tensor) -> tuple[Tensor, object]:
        y = x + torch.tensor([1.0, 2.0]) + torch.from_numpy(np.ones(2, dtype=np.float32))
        return y, y.numpy()


@pytest.mark.parametrize("model", [ThroughNumpy(), ThroughLists()], ids=lambda model: type(model).__name__)
def test_dataflow_that_leaves_torch_is_said(model: nn.Module) -> None:
    history = tl.log_forward_pass(model, torch.ones(2))
    (note,) = history.record.diagnostics
    assert note.code == "dataflow-left-torch"
    assert note.op is not None
    assert history.record.ops[note.op].parents == ()
    assert "made a tensor from outside of it later" in note.message


def test_constants_are_no_dataflow_that_left() -> None:
    assert tl.log_forward_pass(WithConstants(), torch.ones(2)).record.diagnostics == []
