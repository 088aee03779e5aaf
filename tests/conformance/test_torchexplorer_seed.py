"""The TorchExplorer seed's code, run as it is written, but for the name of the package."""

from __future__ import annotations

import re
import subprocess
import sys
import types
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torcheer as tl
from benchmarks.watch_models import ResNet18
from tests.watching.nets import names
from torcheer.watching.watch import all_watches

USAGE = """
torchexplorer.setup() # Call once before wandb.init(), not needed for standalone
wandb.init()

model = ...

torchexplorer.watch(model, backend='wandb') # Or 'standalone'

# Training loop...
"""

STRUCTURE = """
import torch
import torchvision
import torchexplorer

model = torchvision.models.resnet18(pretrained=False)
dummy_X = torch.randn(5, 3, 32, 32)

# Only log input/output and parameter histograms, if you don't want even these set log=[].
torchexplorer.watch(model, log_freq=1, log=['io', 'params'], backend='standalone')
# Do one forwards and backwards pass
model(dummy_X).sum().backward()
# Your model will be available at http://localhost:5000
"""

ATTACH = """
import torch
from torch import nn
import torchexplorer

class AttachModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x):
        x = self.fc1(x)
        x = torchexplorer.attach(x, self, 'intermediate')
        return self.fc2(x)

model = AttachModule()
dummy_X = torch.randn(5, 10)
torchexplorer.watch(model, log_freq=1, backend='standalone')
model(dummy_X).sum().backward()
# Your model will be available at http://localhost:5000
"""

INPLACE = """
model = torchvision.models.resnet18(pretrained=False)
watch(
    model,
    disable_inplace=True,
    ignore_io_grad_classes=[torchvision.models.resnet.BasicBlock]
)
"""


@pytest.fixture
def seed(tmp_path: Path, monkeypatch: Any) -> Iterator[dict[str, Any]]:
    """A folder of its own, torcheer under the seed's name, and a stand-in for torchvision with the same network."""
    from benchmarks import watch_models

    torchvision = types.ModuleType("torchvision")
    resnet = types.SimpleNamespace(BasicBlock=watch_models.BasicBlock)
    torchvision.models = types.SimpleNamespace(resnet18=lambda pretrained: ResNet18(), resnet=resnet)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchexplorer", tl)
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.chdir(tmp_path)
    yield {"torchvision": torchvision, "watch": tl.watch}
    for one in all_watches():
        one.stop()
        if one._server is not None:
            one._server.close()


def _address(said: str) -> str:
    found = re.search(r"watch it at (http://localhost:\d+/)", said)
    assert found is not None, said
    return found[1]


def test_structure(seed: dict[str, Any], capsys: Any) -> None:
    exec(STRUCTURE, seed)
    (watching,) = all_watches()
    found = names(watching)
    assert {name.split("/")[1] for name in found} == {"input", "output", "param"}
    assert "blocks.0.relu:2/output/0" in found
    assert watching.url is not None
    with urllib.request.urlopen(_address(capsys.readouterr().out), timeout=20) as page:
        assert page.status == 200, "the model is available there"


def test_attach(seed: dict[str, Any], capsys: Any) -> None:
    exec(ATTACH, seed)
    (watching,) = all_watches()
    assert {"(model):1/attached/intermediate", "(model):1/attached_grad/intermediate"} <= names(watching)
    assert watching.url == _address(capsys.readouterr().out)


def test_inplace_options(seed: dict[str, Any]) -> None:
    exec(INPLACE, seed)
    (watching,) = all_watches()
    model = seed["model"]
    assert not model.relu.inplace
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    found = names(watching)
    assert "blocks.0.conv1:1/output_grad/0" in found
    assert "blocks.0:1/output_grad/0" not in found


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_usage(tmp_path: Path) -> None:
    """In a process of its own: setup() raises the limit of open files, and wandb.init() starts a service."""
    code = USAGE.replace("model = ...", "model = torch.nn.Linear(3, 2)").replace(
        "# Training loop...", "model(torch.randn(4, 3)).sum().backward()"
    )
    head = "import torch, wandb, torcheer as torchexplorer\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
        env={**__import__("os").environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Watching needs no setup" in done.stdout
    assert list(tmp_path.rglob("*.wandb"))
