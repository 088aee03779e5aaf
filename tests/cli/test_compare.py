"""``torcheer compare``: two models by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torcheer.cli.main import main

PAIR = """
import torch
from torch import nn


class Old(nn.Module):
    activation = staticmethod(torch.relu)

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.fc2(self.activation(self.fc1(x)))


class Same(Old):
    activation = staticmethod(lambda x: x.clamp(min=0))


class Other(Old):
    activation = staticmethod(nn.functional.gelu)


class Reseeded(Same):
    def __init__(self):
        torch.rand(1)
        super().__init__()
"""
X = ("-i", "3x4")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_pair.py").write_text(PAIR, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "a_pair", raising=False)


def compare(a: str, b: str, *words: str) -> int:
    return main(["compare", f"a_pair.py:{a}", f"a_pair.py:{b}", *words])


def test_equal_models_give_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Same", *X) == 0
    assert capsys.readouterr().out.startswith("EQUAL: A is Old, B is Same")


def test_different_models_give_one_and_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Other", *X) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("DIVERGED: A is Old, B is Other")
    assert "gelu_1_2" in printed
    assert "a_pair.py:14 in Old.forward" in printed


def test_weights_are_copied_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Reseeded", *X) == 1
    assert compare("Old", "Reseeded", *X, "--set-weights", "copy") == 0


def test_weights_of_each_come_from_files() -> None:
    torch.manual_seed(3)
    shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (1, 8), "fc2.bias": (1,)}
    torch.save({name: torch.rand(shape) for name, shape in shapes.items()}, "w.pt")
    assert compare("Old", "Reseeded", *X, "--weights", "w.pt", "--weights-b", "w.pt") == 0
    assert compare("Old", "Same", *X, "--weights", "w.pt") == 1


def test_tolerance_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Other", *X, "--atol", "10", "--rtol", "10") == 0


def test_report_is_json_and_html(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Other", *X, "-o", "report.html", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["exit"], answer["files"]) == ("different", 1, ["report.html"])
    assert answer["result"]["verdict"] == "diverged"
    assert answer["error"] is None
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Two models are compared on an input. Give --input"),
        ([*X, "-o", "r.txt"], "a report is written as .html or .json"),
        ([*X, "-i", "x=3x4"], "Give all inputs by name"),
        (["-i", "3x5"], "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_cannot_be_compared_gives_two(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Same", *words) == 2
    assert told in capsys.readouterr().err


def test_recordings_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Old", "Same", "Other"):
        assert main(["trace", f"a_pair.py:{name}", *X, "-o", f"{name}.tch"]) == 0
    assert main(["compare", "Old.tch", "Same.tch"]) == 0
    capsys.readouterr()
    assert main(["compare", "Old.tch", "Other.tch", "--json"]) == 1
    assert "gelu_1_2" in json.loads(capsys.readouterr().out)["result"]["first_divergence"]["headline"]


def test_recordings_are_compared_without_torch() -> None:
    for name in ("Old", "Other"):
        assert main(["trace", f"a_pair.py:{name}", *X, "-o", f"{name}.tch"]) == 0
    code = (
        "import sys\nfrom torcheer.cli.main import main\ncode = main(['compare', 'Old.tch', 'Other.tch'])\n"
        "assert not {'torch', 'paddle'} & set(sys.modules)\nsys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_gradients_and_steps_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("Old", "Same", *X, "--backward", "--steps", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert {one["what"] for one in result["gradients"]} == {"gradient"}
    assert {one["what"] for one in result["weights"]} == {"weight"}


def test_recording_against_a_model_gives_two_and_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "a_pair.py:Old", *X, "-o", "old.tch"]) == 0
    assert main(["compare", "old.tch", "a_pair.py:Same", *X]) == 2
    assert "torcheer trace a_pair.py:Same -i … -o other.tch" in capsys.readouterr().err
