"""What the benchmark of comparisons plants: equal pairs are equal, and every bug changes what its kind promises."""

from __future__ import annotations

import pytest
import torch

from benchmarks.pairs_apart import case, score
from benchmarks.pairs_heldout.pairs import distance


@pytest.mark.parametrize("name", [*case.NAMES, *case.LATER])
def test_bugs_show_and_equal_pairs_are_equal(name: str) -> None:
    module = case.pair(name)
    a, b = case.make(name)
    assert distance(a, b, module.inputs()) < 3e-5
    told = gradients(name, b)
    for bug, declared in module.BUGS.items():
        changed, _ = case.edited(name, bug)
        assert not declared.at or case.tagged(changed, declared.at)
        if declared.is_trained:
            assert declared.tensors
            continue
        spoiled = case.make(name, bug)[1]
        apart = distance(a, spoiled, module.inputs())
        if not declared.tensors:
            assert apart > 1e-4, f"{bug}: shows nowhere"
            continue
        assert apart < 3e-5, f"{bug}: shows in the outputs"
        found = gradients(name, spoiled)
        wanted = [param for param in told if any(tensor in param for tensor in declared.tensors)]
        assert any(not torch.allclose(found[param], told[param], rtol=1e-3) for param in wanted), bug


def gradients(name: str, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    model.zero_grad()
    score.squares(model(*case.pair(name).inputs())).backward()
    return {
        param: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.clone()
        for param, tensor in model.named_parameters()
    }
