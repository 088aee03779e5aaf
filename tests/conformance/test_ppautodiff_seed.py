"""The PPAutoDiff seed: its example runs as written, and each thing that it promises is there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torcheer as tl

paddle = pytest.importorskip("paddle")

# Verbatim from the seed, but for the name of the package.
EXAMPLE = """
from torcheer import autodiff
import torch
import paddle

# 使用paddle与torch定义相同结构的模型: SimpleLayer 和 SimpleModule
# 样例模型结构为:
#       x -> linear1 -> x -> relu -> x -> add -> linear2 -> output
#       |                                  |
#       |----------------------------------|

# 注意：以下代码中linear1均定义在linear2之前，若linear1与linear2定义的顺序不对应，则将导致错误
class SimpleLayer(paddle.nn.Layer): 
    def __init__(self):
        super(SimpleLayer, self).__init__()
        self.linear1 = paddle.nn.Linear(100, 100)    
        self.linear2 = paddle.nn.Linear(100, 10)    
        self.act = paddle.nn.ReLU()
        
    def forward(self, x):
        resdual = x
        x = self.linear1(x)
        x = self.act(x)
        x = x + resdual 
        x = self.linear2(x)
        return x

class SimpleModule(torch.nn.Module): 
    def __init__(self):
        super(SimpleModule, self).__init__()
        self.linear1 = torch.nn.Linear(100, 100)    
        self.linear2 = torch.nn.Linear(100, 10)    
        self.act = torch.nn.ReLU()
        
    def forward(self, x):
        resdual = x
        x = self.linear1(x)
        x = self.act(x)
        x = x + resdual 
        x = self.linear2(x)
        return x


layer = SimpleLayer()
module = SimpleModule()
inp = paddle.rand((100, 100)).numpy().astype("float32")
autodiff(layer, module, inp, auto_weights=True, options={'atol': 1e-4})
"""  # noqa: W291, W293 - as it stands in the seed


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the example leaves, run from a file so that its lines can be shown."""
    file = tmp_path_factory.mktemp("seed") / "test_simplenet1.py"
    file.write_text(EXAMPLE, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "seed"}
    paddle.seed(0)
    torch.manual_seed(0)
    exec(compile(EXAMPLE, str(file), "exec"), names)
    return {**names, "file": file}


def report_of(example: dict[str, Any], **kwargs: Any) -> Any:
    given = {"options": {"atol": 1e-4}, **kwargs}
    return tl.autodiff(example["layer"], example["module"], example["inp"], **given)


def test_the_example_as_a_script(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(EXAMPLE, encoding="utf-8")
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"Max output diff is \d\.\d+e-0[5-7]", lines[0])
    assert lines[1:] == ["forward 4 steps compared.", "backward 4 steps compared.", "SUCCESS !!!"]


def test_signature() -> None:
    signature = inspect.signature(tl.autodiff).parameters
    positional = [one for one in signature.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert [one.name for one in positional][2:] == ["inp", "auto_weights", "options"]
    assert signature["auto_weights"].default is True


def test_auto_weights_gives_both_models_the_same_weights(example: dict[str, Any]) -> None:
    assert report_of(example, auto_weights=True)
    assert not report_of(example, auto_weights=False)


def test_atol_decides(example: dict[str, Any]) -> None:
    largest = report_of(example).max_output_diff
    assert 0 < largest < 1e-4
    assert not report_of(example, options={"atol": 1e-10})


def test_any_batch(example: dict[str, Any]) -> None:
    for batch in (1, 7):
        assert tl.autodiff(example["layer"], example["module"], example["inp"][:batch], options={"atol": 1e-4})


# -- wrong weights -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wrong_weights(example: dict[str, Any]) -> Any:
    return report_of(example, auto_weights=False)


def test_wrong_weights_fail_in_the_first_layer_at_the_first_step(wrong_weights: Any) -> None:
    text = str(wrong_weights)
    assert not wrong_weights
    assert "\nFAILED !!!\n    Diff found in `Forward Stage` in step: 0, net_id is 1 vs 1\n" in text
    assert re.search(
        r"Type of layer is: paddle\.nn\.layer\.common\.Linear .* vs torch\.nn\.modules\.linear\.Linear", text
    )
    assert wrong_weights.blamed == ("linear1", "linear1")


def test_wrong_weights_name_every_weight_and_gradient(wrong_weights: Any) -> None:
    text = str(wrong_weights)
    sizes = {"linear1": 100, "linear2": 10}
    named = {(one.what, one.address_a) for one in wrong_weights.params}
    assert {("weight", f"{layer}.{name}") for layer in sizes for name in ("weight", "bias")} <= named
    assert {("grad", "linear1.weight"), ("grad", "linear1.bias"), ("grad", "linear2.weight")} <= named
    for layer, size in sizes.items():
        assert (
            "After training, weight value is different for param `weight`.\n"
            f"paddle: at `Linear(in_features=100, out_features={size}, dtype=float32)` ({layer}.weight).\n"
            f"torch: at `Linear(in_features=100, out_features={size}, bias=True)` ({layer}.weight).\n"
        ) in text


def test_wrong_weights_show_the_numbers(wrong_weights: Any) -> None:
    text = str(wrong_weights)
    assert "Not equal to tolerance rtol=1e-07, atol=0.0001" in text
    assert re.search(r"\nMismatched elements: \d+ / 10000 \(\d+(\.\d+)?%\)\n", text)
    assert re.search(r"\nMax absolute difference: \d+\.\d+\n", text)
    assert re.search(r"\nMax relative difference: \d+\.\d+\n", text)
    assert re.search(r"\n x: \[\[.*\n y: \[\[", text, re.DOTALL)


def test_wrong_weights_show_both_stacks(wrong_weights: Any, example: dict[str, Any]) -> None:
    text, lines = str(wrong_weights), EXAMPLE.splitlines()
    first, second = (number for number, line in enumerate(lines, 1) if "x = self.linear1(x)" in line)
    for framework, line, owner in (("Paddle", first, "SimpleLayer"), ("Torch", second, "SimpleModule")):
        stack = text.split(f"{framework} Stacks:\n=========================\n")[1].splitlines()
        assert stack[0].startswith(f"    File {__file__}: ")  # whoever called autodiff
        inside = stack.index(f"    File {example['file']}: {line}    {owner}.forward")
        assert stack[inside + 1] == "        x = self.linear1(x)"


# -- wrong backward ----------------------------------------------------------------------------------------------


class Layer(paddle.nn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.linear1 = paddle.nn.Linear(100, 100)
        self.linear2 = paddle.nn.Linear(100, 100)
        self.bug = bug

    def forward(self, x: Any) -> Any:
        x1 = self.linear1(x)
        x2 = self.linear1(x)
        x3 = self.linear2(x)
        if self.bug == "twice":  # the same numbers, and twice the gradient
            x3 = x3 + (x3 - x3.detach())
        if self.bug == "none":
            x3 = x3.detach()
        return x1 + x2 + x3


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = torch.nn.Linear(100, 100)
        self.linear2 = torch.nn.Linear(100, 100)

    def forward(self, x: Any) -> Any:
        x1 = self.linear1(x)
        x2 = self.linear1(x)
        x3 = self.linear2(x)
        return x1 + x2 + x3


@pytest.mark.parametrize("bug", ["twice", "none"])
@pytest.mark.parametrize("torch_first", [False, True])
def test_wrong_backward_fails_in_the_right_layer(bug: str, torch_first: bool) -> None:
    models = (Layer(bug), Module())
    inp = np.random.default_rng(0).random((100, 100), "float32")
    report = tl.autodiff(*(models[::-1] if torch_first else models), inp, options={"atol": 1e-4})
    text = str(report)
    assert not report
    assert report.max_output_diff < 1e-4
    assert {(one.what, one.address_a) for one in report.params if one.what == "grad"} == {
        ("grad", "linear2.weight"),
        ("grad", "linear2.bias"),
    }
    assert "\nforward 4 steps compared.\nFAILED !!!\n" in text
    assert "Diff found in `Backward Stage` in step: 0, net_id is 2 vs 2\n" in text
    assert report.first.addresses == ("linear2", "linear2")
    assert text.count("        x3 = self.linear2(x)") == 2


def test_the_order_of_definition_does_not_matter() -> None:
    class Turned(Layer):
        def __init__(self) -> None:
            paddle.nn.Layer.__init__(self)
            self.bug = ""
            self.linear2 = paddle.nn.Linear(100, 100)
            self.linear1 = paddle.nn.Linear(100, 100)

    inp = np.random.default_rng(0).random((100, 100), "float32")
    assert list(dict(Turned().named_children())) == ["linear2", "linear1"]
    assert tl.autodiff(Turned(), Module(), inp, options={"atol": 1e-4})
