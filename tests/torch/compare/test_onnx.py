"""Models exported and compared with where they came from: ONNX through onnxruntime, and exported programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import ComparisonError, MissingExtraError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
# Of the exporter that needs no further package.
pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*"),
]
Tensor = torch.Tensor


class Net(nn.Module):
    """Two inputs, two outputs, a norm that the exporter folds and one that it keeps."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.norm = nn.LayerNorm(96, eps=eps)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(96, 96), nn.GELU()), nn.Sequential(nn.Linear(96, 5))])

    def forward(self, image: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.bn(self.conv(image)))
        x = self.norm(x.flatten(1)) * scale
        for block in self.blocks:
            x = block(x)
        return x, x.softmax(-1)


X = (torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([[1.0], [2.0]]))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, Path]:
    torch.manual_seed(0)
    model, path = Net().eval(), tmp_path_factory.mktemp("onnx") / "net.onnx"
    torch.onnx.export(model, X, str(path), dynamo=False, input_names=["image", "scale"])
    return model, path


@pytest.mark.parametrize("order", [1, -1], ids=["torch-first", "onnx-first"])
def test_an_exported_model_is_equal(exported: tuple[Net, Path], order: int) -> None:
    found = tl.compare(*exported[::order], X)
    assert found, str(found)
    assert len(found.outputs) == 2
    assert found.num_matched[0] >= 8


def test_inputs_by_name_and_a_loaded_model(exported: tuple[Net, Path]) -> None:
    model, path = exported
    assert tl.compare(model, onnx.load(path), {"image": X[0], "scale": X[1]})


def test_a_difference_is_named_at_its_node(exported: tuple[Net, Path]) -> None:
    model, path = exported
    other = Net(eps=0.5).eval()
    other.load_state_dict(model.state_dict())
    found = tl.compare(other, path, X)
    assert found.verdict == "diverged"
    first = found.first_divergence
    assert first.a.module == "norm"
    assert first.b.function == "onnx.LayerNormalization"
    assert first.b.module == "norm"
    assert first.b.frame.file == str(path)
    assert "epsilon=1e-05" in first.b.arguments


def test_modules_are_those_the_nodes_are_named_after(exported: tuple[Net, Path]) -> None:
    model, path = exported
    record = tl.compare(model, path, X).records[1].record
    addresses = {module.address for module in record.modules}
    assert {"", "conv", "norm", "blocks.0", "blocks.0.0", "blocks.0.1", "blocks.1.0"} <= addresses
    calls = {record.modules[call.module].address: call for call in record.calls}
    names = [record.ops[op].name for op in range(calls["blocks.0"].first_op, calls["blocks.0"].end_op)]
    assert names[0] == "gemm"
    assert len(names) >= 2


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ((X[0], X[1], X[1]), r"net\.onnx was given 3 inputs\. Give 2: image, scale"),
        ((X[0],), r"net\.onnx does not fit \(missing: scale\)\. Give its inputs by name: image, scale"),
        ({"image": X[0], "size": X[1]}, r"missing: scale"),
        ((X[0].double(), X[1]), r"net\.onnx takes image as float32, and float64 was given"),
    ],
)
def test_inputs_that_do_not_fit(exported: tuple[Net, Path], x: object, text: str) -> None:
    with pytest.raises(ComparisonError, match=text):
        tl.compare(exported[1], exported[1], x)


def test_no_such_file(exported: tuple[Net, Path]) -> None:
    with pytest.raises(ComparisonError, match=r"There is no file nowhere\.onnx"):
        tl.compare(exported[0], "nowhere.onnx", X)


def test_without_onnxruntime_the_error_names_the_extra(
    exported: tuple[Net, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "torcheer.capture.onnx.side", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'torcheer\[onnx\]'"):
        tl.compare(*exported, X)


def test_a_file_is_not_trained(exported: tuple[Net, Path]) -> None:
    with pytest.raises(ComparisonError, match=r"an ONNX model has no backward pass\. Use tl\.compare\.$"):
        tl.autodiff(*exported, X, show=False)


def test_an_exported_program_is_equal(exported: tuple[Net, Path]) -> None:
    model, _ = exported
    assert tl.compare(model, torch.export.export(model, X), X)
