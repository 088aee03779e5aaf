"""The Inspector Gadgets seed: its two usage snippets run as written, and every promised field is there and right."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl

STANDALONE = """
from torch_inspector import InspectorGadgets
model = torchvision.models.resnet18(pretrained=True).train()
dummy_input = torch.randn(1, 3, 224, 224)
# Initialize Inspector Gadgets with your model and the file the results should be saved to
inspector = InspectorGadgets(model, save_file='examples/insight')
# Has to be called before running the model
inspector.start()
output = model(dummy_input)
# (Recommended) Get correct memory usage and latency for backward in the last layer
inspector.backward_mode()
loss = torch.mean(output)
loss.backward()
# Removes all hooks and releases every link to the model
inspector.finish()
"""

CONTEXT = """
model = torchvision.models.resnet18(pretrained=True).train()
dummy_input = torch.randn(1, 3, 224, 224)

with InspectorGadgets(model, save_file='examples/insight') as inspector:
    output = model(dummy_input)
    inspector.backward_mode()
    loss = torch.mean(output)
    loss.backward()
"""

FIELDS = {
    "type": str,
    "input_shapes": list,
    "output_shapes": list,
    "grad_in_shape": list,
    "grad_out_shape": list,
    "num_parameters": int,
    "num_learnable_parameters": int,
    "param_memory_usage": float,
    "gradient_memory_usage": float,
    "input_memory_usage": list,
    "output_memory_usage": list,
    "effective_additional_memory_fwd": float,
    "effective_additional_memory_bwd": float,
    "forward_nan": bool,
    "grad_in_nan": bool,
    "grad_out_nan": bool,
    "total_memory": float,
    "forward_latency": float,
    "backward_latency": float,
}


class BasicBlock(nn.Module):
    """As torchvision writes it."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet18(pretrained: bool = False) -> ResNet:
    assert pretrained, "the seed's call; nothing is downloaded here"
    return ResNet()


def run(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a snippet in a folder, with torcheer under Inspector Gadgets' name and a local ResNet-18."""
    package = types.ModuleType("torch_inspector")
    package.InspectorGadgets = tl.InspectorGadgets  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_inspector", package)
    monkeypatch.chdir(folder)
    torchvision = types.SimpleNamespace(models=types.SimpleNamespace(resnet18=resnet18))
    names: dict[str, Any] = {"torch": torch, "torchvision": torchvision, "InspectorGadgets": tl.InspectorGadgets}
    torch.manual_seed(0)
    exec(compile(code, "seed", "exec"), names)
    return names


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("seed")
        names = run(CONTEXT, folder, patch)
        return names["model"], names["inspector"], json.loads((folder / "examples" / "insight.json").read_text())


def test_the_standalone_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = nn.Module.__call__
    names = run(STANDALONE, tmp_path, monkeypatch)
    data = json.loads((tmp_path / "examples" / "insight.json").read_text())
    assert list(data) == ["ResNet"]
    assert [path.name for path in (tmp_path / "examples").iterdir()] == ["insight.json"]
    assert nn.Module.__call__ is call
    assert all(not module._forward_hooks and not module._backward_hooks for module in names["model"].modules())


def nodes(data: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Every entry by its address."""
    found = {path: data["info"]}
    for name, child in data["children"].items():
        found.update(nodes(child, f"{path}.{name}" if path else name))
    return found


def test_nesting_is_that_of_the_model(seed: Any) -> None:
    model, _, data = seed
    assert list(data) == ["ResNet"]
    assert set(data["ResNet"]) == {"info", "children"}
    assert set(nodes(data["ResNet"])) == {name for name, _ in model.named_modules()}


def test_every_module_has_every_field(seed: Any) -> None:
    _, _, data = seed
    for path, info in nodes(data["ResNet"]).items():
        assert list(info) == list(FIELDS), path
        for name, kind in FIELDS.items():
            assert type(info[name]) is kind, (path, name)


def test_values_are_real(seed: Any) -> None:
    model, _, data = seed
    found = nodes(data["ResNet"])
    info = found["layer1.0.conv1"]
    assert info["type"] == "Conv2d"
    assert info["input_shapes"] == info["output_shapes"] == info["grad_in_shape"] == info["grad_out_shape"]
    assert info["output_shapes"] == [[1, 64, 56, 56]]
    assert info["num_parameters"] == info["num_learnable_parameters"] == 64 * 64 * 9
    assert info["param_memory_usage"] == info["gradient_memory_usage"] == 64 * 64 * 9 * 4 / 1e6
    assert info["output_memory_usage"] == [64 * 56 * 56 * 4 / 1e6]
    assert info["total_memory"] == pytest.approx(2 * 64 * 64 * 9 * 4 / 1e6 + 64 * 56 * 56 * 4 / 1e6)
    assert found["fc"]["grad_out_shape"] == [[1, 1000]]
    assert found[""]["num_parameters"] == sum(param.numel() for param in model.parameters())
    assert not any(info["forward_nan"] or info["grad_in_nan"] or info["grad_out_nan"] for info in found.values())


@pytest.mark.parametrize("name", ["forward_latency", "backward_latency"])
def test_latencies_do_not_multiply_up(seed: Any, name: str) -> None:
    """A parent takes at least what its children take, and the model no more than all leaves and what lies between."""
    _, _, data = seed

    def check(node: dict[str, Any]) -> None:
        children = sum(child["info"][name] for child in node["children"].values())
        assert node["info"][name] >= children - 1e-6
        for child in node["children"].values():
            check(child)

    check(data["ResNet"])
    found = nodes(data["ResNet"])
    leaves = sum(
        info[name] for path, info in found.items() if info["type"] in ("Conv2d", "BatchNorm2d", "ReLU", "Linear")
    )
    assert found[""][name] < 3 * leaves


def test_relu_and_batch_norm_are_measured(seed: Any) -> None:
    _, _, data = seed
    found = nodes(data["ResNet"])
    for name in ("relu", "bn1", "layer1.0.relu"):
        assert found[name]["output_shapes"] != []
        assert found[name]["forward_latency"] > 0
        assert found[name]["backward_latency"] > 0


def test_the_report_is_that_of_profile(seed: Any) -> None:
    _, inspector, _ = seed
    assert type(inspector.report) is type(tl.profile(nn.Linear(2, 2), torch.rand(1, 2), repeats=0))
    assert inspector.report.totals.figures.flops_forward == 2 * 1_814_073_344
