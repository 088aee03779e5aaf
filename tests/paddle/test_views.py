"""All that reads a record reads a Paddle run's: pictures, tables, the explorer, and a file where there is no Paddle."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import paddle
import pytest

import torcheer as tl
from tests.paddle.model_pairs import PaddleResNet
from torcheer.views import history as history_view


@pytest.fixture(scope="module")
def history() -> tl.ModelHistory:
    paddle.seed(0)
    model = PaddleResNet()
    model.eval()
    history = tl.log_forward_pass(model, paddle.rand([1, 3, 32, 32]))
    history.log_backward(history.output.sum())
    return history


def test_pictures(history: tl.ModelHistory, tmp_path: Path) -> None:
    for kind in ("svg", "png", "pdf", "dot", "html"):
        history.draw(tmp_path / f"net.{kind}")
        assert (tmp_path / f"net.{kind}").stat().st_size > 1000
    svg = (tmp_path / "net.svg").read_text(encoding="utf-8")
    assert ">conv2d_1_1</text>" in svg
    assert ">layer1.1</text>" in svg
    assert "16×10" in svg
    history.draw(tmp_path / "gradients.svg", gradients=True, rolled=True)


def test_tables(history: tl.ModelHistory) -> None:
    table = history.to_dataframe().set_index("label")
    assert table.loc["linear_1_30", "module"] == "fc"
    assert table.loc["linear_1_30", "shape"] == (1, 10)
    assert "model_pairs.py" in table.loc["linear_1_30", "source"]


def test_the_view_has_modules_edges_sources_and_gradients(history: tl.ModelHistory) -> None:
    text = json.dumps(history_view.build(history))
    for part in ("paddle._C_ops.conv2d", "layer1.1.bn2", "AddGradNode", "BatchNorm2D", "model_pairs.py"):
        assert part in text


def test_the_explorer_serves_it(history: tl.ModelHistory) -> None:
    with tl.explore(history, port=0) as server:
        listed = json.loads(urllib.request.urlopen(f"{server.address}api", timeout=20).read())
        assert "PaddleResNet" in json.dumps(listed)


def test_a_file_opens_where_there_is_no_paddle(history: tl.ModelHistory, tmp_path: Path) -> None:
    history.save(tmp_path / "run.tch")
    code = (
        "import sys; sys.modules['paddle'] = None\n"
        "import torcheer as tl\n"
        "history = tl.load(sys.argv[1])\n"
        "fc = history['fc']\n"
        "print(fc.label, tuple(fc.tensor_contents.shape), fc.grad_contents.sum().item())\n"
        "history.draw(sys.argv[1] + '.svg')\n"
        "print(history['layer1.1.conv2'])\n"
        "assert 'paddle.base' not in sys.modules\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.tch")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("linear_1_30 (1, 10) 10.0\nLayer conv2d_5_15, operation 16/32:\n")
    assert (tmp_path / "run.tch.svg").exists()
