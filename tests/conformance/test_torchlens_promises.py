"""What the TorchLens seed promises of models it shows no code of. One test per promise.

Its overview has a very simple recurrent model and a transformer with 1932 operations, and says that "every
operation" means every operation.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torcheer as tl
from examples.models import SimpleRecurrent, TinyGPT
from tests.conformance.drawing import nodes_and_edges

NUM_OPERATIONS_OF_THE_SEED = 1932


class EveryKindOfCall(nn.Module):
    """Operations written in all the ways Python has."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x)  # a function of torch
        y = F.relu(y)  # of torch.nn.functional
        y = y.cumsum(0)  # a method
        y = 2 - y  # an operator
        y = y @ y.T  # two of them, one an attribute
        z = y[1:]  # an index
        z += 1  # in place
        a, b = z.chunk(2)  # several results
        return torch.cat([a, b, torch.ones(1, 4)]).mean()


def test_every_operation_means_every_operation() -> None:
    x = torch.rand(4, 4)
    history = tl.log_forward_pass(EveryKindOfCall(), x)
    names = "input sin relu cumsum rsub T matmul getitem iadd chunk ones cat mean output".split()
    found = [op.name for op in history]
    # An operator may go by the name of the method it stands for.
    same = {"rsub": "rsub", "sub": "rsub", "iadd": "iadd", "add": "iadd", "t": "T", "numpyt": "T"}
    assert [same.get(name, name) for name in found] == names
    assert all(op.has_contents for op in history)
    y = F.relu(torch.sin(x)).cumsum(0)
    assert torch.equal(history["cumsum_1"].tensor_contents, y)
    y = 2 - y
    y = y @ y.T
    assert torch.equal(history["matmul_1"].tensor_contents, y)
    assert torch.equal(history["getitem_1"].tensor_contents, y[1:])
    assert torch.equal(history["mean_1"].tensor_contents, torch.cat([y[1:] + 1, torch.ones(1, 4)]).mean())


def test_one_line_needs_no_modification_of_the_model() -> None:
    model, x = SimpleRecurrent(), torch.rand(2, 5)
    before = {name: param.clone() for name, param in model.state_dict().items()}
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    call = nn.Module.__call__
    history = tl.log_forward_pass(model, x)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert all(torch.equal(before[name], param) for name, param in model.state_dict().items())
    assert nn.Module.__call__ is call
    assert torch.equal(history.output, model(x))


# -- "a very simple recurrent model" -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recurrent() -> tl.ModelHistory:
    return tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5), vis_opt="rolled")


def test_recurrent_model_is_called_recurrent(recurrent: tl.ModelHistory) -> None:
    assert "\tModel structure: recurrent, without branching; 1 total module." in str(recurrent).splitlines()


def test_loop_of_a_recurrent_model_is_layers_with_passes(recurrent: tl.ModelHistory) -> None:
    assert recurrent.layer_labels == ["input_1_0", "linear_1_1", "add_1_2", "tanh_1_3", "output_1_4"]
    for name in ("linear_1", "add_1", "tanh_1"):
        assert recurrent[name].num_passes == 4
        assert [op.label for op in recurrent[name]] == [f"{recurrent[name].label}:{n}" for n in (1, 2, 3, 4)]


def test_pass_of_a_layer_is_found_by_the_colon(recurrent: tl.ModelHistory) -> None:
    assert recurrent["linear_1_1:2"] == recurrent["linear_1:2"] == recurrent["fc:2"] == recurrent[4]
    assert [parent.label for parent in recurrent["linear_1:2"].parents] == ["tanh_1_3:1"]


def test_every_pass_of_a_recurrent_model_has_its_activations(recurrent: tl.ModelHistory) -> None:
    assert all(op.has_contents for op in recurrent)
    for count in (1, 2, 3, 4):
        linear, added, result = (recurrent[f"{name}:{count}"].tensor_contents for name in ("fc", "add_1", "tanh_1"))
        assert torch.equal(added, linear + 1)
        assert torch.equal(result, added.tanh())
    assert torch.equal(result, recurrent.output)


def test_rolled_visualization_shows_a_loop_once(recurrent: tl.ModelHistory) -> None:
    nodes, edges = nodes_and_edges(recurrent.drawing.dot)
    assert sorted(nodes.values()) == sorted(recurrent.layer_labels)
    labels = {(nodes[parent], nodes[child]) for parent, child in edges}
    assert ("tanh_1_3", "linear_1_1") in labels
    assert ("linear_1_1", "add_1_2") in labels
    assert "linear_1_1 ×4" in recurrent.drawing.dot
    assert all(f">{text}</text>" in recurrent.drawing.svg for text in ("linear_1_1", "×4", "fc · Linear"))


# -- "a very complex transformer model with 1932 operations" -----------------------------------------------


@pytest.fixture(scope="module")
def transformer() -> tuple[TinyGPT, Tensor, tl.ModelHistory]:
    model, tokens = TinyGPT(num_layers=102, width=8, num_heads=2).eval(), torch.randint(50, (1, 8))
    return model, tokens, tl.log_forward_pass(model, tokens)


def test_transformer_has_as_many_operations_as_the_one_of_the_seed(transformer: Any) -> None:
    _, _, history = transformer
    assert len(history) >= NUM_OPERATIONS_OF_THE_SEED
    assert len(set(history.op_labels)) == len(history)
    assert not history.is_recurrent


def test_saved_outputs_of_every_last_operation_of_a_transformer(transformer: Any) -> None:
    _, _, history = transformer
    num_tensors = 0
    for op in history:
        contents = op.tensor_contents
        for tensor, output in zip(contents if isinstance(contents, tuple) else (contents,), op.outputs, strict=True):
            num_tensors += 1
            assert tuple(tensor.shape) == output.value.shape
            assert str(tensor.dtype) == f"torch.{output.value.dtype}"
    assert num_tensors > len(history)
    counts = re.search(r"([\d,]+) tensors \(.*?\) computed in forward pass; ([\d,]+) tensors", str(history))
    assert counts is not None
    assert counts[1] == counts[2] == f"{num_tensors:,}"


def test_saved_outputs_of_a_transformer_are_its_own(transformer: Any) -> None:
    model, tokens, history = transformer
    seen: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda module, args, out, name=name: seen.update({name: out.clone()}))
        for name, module in model.named_modules()
        if name
    ]
    assert torch.equal(model(tokens), history.output)
    for hook in hooks:
        hook.remove()
    assert len(seen) > 900
    for address, activation in seen.items():
        assert torch.equal(history[address].tensor_contents, activation), address
