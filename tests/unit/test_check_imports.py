"""The import check finds each kind of fault, and the tree as it stands has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_imports import check, main

ROOT = Path(__file__).parents[2]

FAULTS = {
    # file: (source, line of the fault, what is said)
    "record reads history": ("record/file.py", "import torcheer.history", 1, "record may not import history"),
    "errors imports units": ("errors.py", "from torcheer.units import x", 1, "errors may not import units"),
    "history reads diff": ("history/a.py", "from torcheer import diff", 1, "history may not import diff"),
    "profiling runs models": ("profiling/a.py", "import torcheer.capture", 1, "profiling may not import capture"),
    "capture reads views": ("capture/a.py", "import torcheer.views", 1, "capture may not import views"),
    "views start the web": ("views/a.py", "import torcheer.web", 1, "views may not import web"),
    "api opens the cli": ("api.py", "import torcheer.cli", 1, "api may not import cli"),
    "history uses the facade": ("history/a.py", "import torcheer.api", 1, "history may not import api"),
    "a room asks the package": ("history/a.py", "import torcheer", 1, "history may not import torcheer"),
    "relative": ("history/a.py", "from ..capture import tape", 1, "history may not import capture"),
    "relative in a package": ("history/__init__.py", "from .. import diff", 1, "history may not import diff"),
    "torch in record": ("record/a.py", "import torch.nn", 1, "record may not import torch (only"),
    "torch in capture": ("capture/a.py", "from torch import nn", 1, "capture may not import torch (only"),
    "torch in api": ("api.py", "import torch", 1, "api may not import torch (only"),
    "torch by safetensors": (
        "record/a.py",
        "import safetensors.torch",
        1,
        "may not import safetensors.torch",
    ),
    "torch by import_module": (
        "views/a.py",
        "import importlib\nimportlib.import_module('torch.nn')",
        2,
        "views may not import torch",
    ),
    "paddle beside torch": (
        "capture/torch/a.py",
        "import paddle",
        1,
        "may not import paddle (only capture/paddle",
    ),
    "numpy at once": ("record/a.py", "import numpy as np", 1, "may not import numpy at module level"),
    "for types only": (
        "history/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        3,
        "history may not import torch",
    ),
    "inside a function": (
        "history/a.py",
        "def f():\n    # Slow to import.\n    import torcheer.diff",
        3,
        "history may not import diff",
    ),
    "no reason": ("history/a.py", "def f():\n    import json", 2, "import of json inside a function without"),
    "noqa is no reason": (
        "history/a.py",
        "def f():\n    import json  # noqa: PLC0415",
        2,
        "import of json inside a function without",
    ),
    "private module": (
        "capture/torch/a.py",
        "from torch.utils._pytree import tree_map",
        1,
        "torch.utils._pytree is private",
    ),
    "private import": ("capture/torch/a.py", "import torch._dynamo", 1, "torch._dynamo is private"),
    "private name": ("capture/torch/a.py", "from torch import _C", 1, "torch._C is private"),
    "private chain": (
        "capture/torch/a.py",
        "import torch\nx = torch.autograd._C.y",
        2,
        "torch.autograd._C is private",
    ),
    "private by alias": (
        "watching/a.py",
        "import torch.nn.functional as F\nF._pad(1)",
        2,
        "torch.nn.functional._pad is private",
    ),
    "private by getattr": (
        "watching/a.py",
        "import torch\ngetattr(torch, '_C', None)",
        2,
        "torch._C is private",
    ),
    "no rule": ("utils/a.py", "", 1, "room utils has no rule"),
}

ALLOWED = {
    "a room and itself": ("record/a.py", "from torcheer.record.model import Op\nfrom . import model"),
    "the ground": ("views/a.py", "from torcheer import errors, units"),
    "the version": ("record/a.py", "from torcheer import __version__"),
    "torch where models run": ("capture/torch/a.py", "import torch\nx = torch.nn.Module.__call__"),
    "private in its file": ("capture/torch/private.py", "import torch\nfrom torch import _C\ntorch._tensor"),
    "own private names": ("capture/torch/a.py", "import torch\nself = torch\nthing._x"),
    "pandas when asked": ("history/a.py", "def f():\n    # Optional.\n    import numpy\n    import pandas"),
    "reason on the line": ("history/a.py", "def f():\n    import json  # slow, rarely needed"),
    "pandas for types": (
        "history/a.py",
        "import typing\nif typing.TYPE_CHECKING:\n    import pandas\nelse:\n    pandas = None",
    ),
    "the facade joins": ("api.py", "from torcheer.history import x\nimport torcheer.capture.torch"),
    "leaves": ("integrations/wandb.py", "import torcheer as tl\nimport torch"),
}


def tree(root: Path, file: str, source: str) -> Path:
    path = root / "src" / "torcheer" / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return root


@pytest.mark.parametrize(("file", "source", "line", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(tmp_path: Path, file: str, source: str, line: int, text: str) -> None:
    faults = check(tree(tmp_path, file, source))

    assert len(faults) == 1, faults
    assert faults[0].startswith(f"src/torcheer/{file}:{line}: ")
    assert text in faults[0]


@pytest.mark.parametrize(("file", "source"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_passes(tmp_path: Path, file: str, source: str) -> None:
    assert check(tree(tmp_path, file, source)) == []


def test_unit_tests_may_not_need_torch(tmp_path: Path) -> None:
    tree(tmp_path, "units.py", "")
    (tmp_path / "tests" / "unit" / "record").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "record" / "test_a.py").write_text("from torch import nn\n")

    assert check(tmp_path) == ["tests/unit/record/test_a.py:1: tests/unit may not import torch: put it in tests/torch"]


def test_an_empty_tree_is_a_fault(tmp_path: Path) -> None:
    assert "no Python file to check" in check(tmp_path)[0]


def test_exit_status_says_whether_there_are_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tree(tmp_path, "units.py", "import torch"))]) == 1
    assert capsys.readouterr().out.startswith("src/torcheer/units.py:1: room units may not import torch")


def test_the_tree_as_it_stands() -> None:
    assert check(ROOT) == []
