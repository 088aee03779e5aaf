"""Each example runs on its own, with warnings as errors, and prints what it is there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torcheer
from examples.models import AlexNet, ResidualNet, SimpleRecurrent, TinyGPT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# The torcheer under test, also where it is not installed.
SOURCES = str(Path(torcheer.__file__).resolve().parents[1])


def output_of(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints, run from another folder."""
    result = subprocess.run(
        # Paddle says the second on import; nothing here compiles.
        [sys.executable, "-W", "error", "-W", "ignore:No ccache found", str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=170,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo")
    printed = output_of("demo", folder, "--close")
    assert list(folder.iterdir()) == []
    return printed


def section(demo: str, number: int) -> str:
    """What the demo prints under one of its headings."""
    text = demo.split(f"---- {number}. ", 1)[1]
    return text.split("\n", 1)[1].split("---- ", 1)[0].strip()


def test_the_demo_ends_with_the_address_of_an_explorer(demo: str) -> None:
    assert section(demo, 14).startswith("Explorer: ")
    assert re.match(r"Explorer: http://localhost:\d+/$", demo.strip().splitlines()[-1])


def test_every_example_is_tested() -> None:
    """By a function of its name, or, the demo, by several."""
    tested = {name.removeprefix("test_") for name in globals()}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= {*tested, "demo", "models"}


def test_alexnet(tmp_path: Path) -> None:
    printed = output_of("alexnet", tmp_path)
    assert printed.startswith("Log of AlexNet forward pass:\n")
    assert "\t\t9: conv2d_4_9\n" in printed
    assert "\nLayer conv2d_3_7, operation 8/24:\n" in printed
    assert printed.count(" is conv2d_3_7: True\n") == 5
    assert "\ntensor([[[[" in printed
    assert printed.endswith("Its graph: alexnet.svg\n")
    assert ">conv2d_3_7</text>" in (tmp_path / "alexnet.svg").read_text(encoding="utf-8")


def test_recurrent(tmp_path: Path) -> None:
    printed = output_of("recurrent", tmp_path)
    assert "Model structure: recurrent, without branching; 1 total module." in printed
    assert "\nLayer linear_1_1, 4 passes:\n" in printed
    assert "\nLayer linear_1_1 (pass 2/4), operation 5/14:\n" in printed
    assert printed.endswith("Its graph, rolled up: recurrent.svg\n")
    assert ">×4</text>" in (tmp_path / "recurrent.svg").read_text(encoding="utf-8")


def test_torchbug_demo(tmp_path: Path) -> None:
    printed = output_of("torchbug_demo", tmp_path)
    assert "8 leaf modules, 7,227 params in total" in section(printed, 1)
    assert re.search(r"PReLU\n.*\n.*\n.* 1 missing ", section(printed, 2))
    assert "flatten 1 and 0, relu" in section(printed, 3)
    assert "40 of 40 elements differ" in section(printed, 4)
    assert "prelu of Target Model: no such module is called on the other side" in section(printed, 5)
    assert "Third Convolution = Second Convolution" in section(printed, 6)
    assert "First Linear Layer of New Model: no equal" in section(printed, 6)
    first = section(printed, 7).split("First divergence: ")[1]
    assert "x = self.pool(self.prelu(self.conv3(x)))" in first.split("  B: ")[0]
    assert "x = self.activation(self.second(x))" in first.split("  B: ")[1]


def test_paddle_to_torch(tmp_path: Path) -> None:
    pytest.importorskip("paddle")
    parts = output_of("paddle_to_torch", tmp_path).split("\n---- ")[1:]
    assert len(parts) == 6
    assert "Comes from `norm` vs `norm`: its inputs are equal and its outputs are not\n" in parts[0]
    assert "the inputs of `tags` differ already, and every layer before it agrees" in parts[1]
    assert all("FAILED !!!" in part for part in parts[:2])
    assert all(part.rstrip().endswith("SUCCESS !!!") for part in parts[2:4])
    assert "hidden.weight = hidden.weight.T\n" in parts[4]
    assert "Outputs differ by at most" in parts[4]
    assert "Layer linear_1_7, operation 9/13:" in parts[5]


def test_watch(tmp_path: Path) -> None:
    printed = output_of("watch", tmp_path, "50", "store")
    first, last = re.findall(r"loss: (\S+) → (\S+)", printed)[0]
    assert float(last) < float(first)
    assert "fc1/param_grad/weight: norm" in printed
    (run,) = (tmp_path / "torcheer_runs").iterdir()
    assert f"torcheer open {run}" in printed


def test_demo_records_and_prints(demo: str) -> None:
    assert section(demo, 1).startswith("Log of ResidualNet forward pass:\n")


def test_demo_looks_up_a_layer(demo: str) -> None:
    assert section(demo, 2).startswith("Layer conv2d_3_")
    label = section(demo, 2).split(",")[0].removeprefix("Layer ")
    assert section(demo, 3).count(f"is {label}") == 3


def test_demo_reads_a_tensor(demo: str) -> None:
    assert section(demo, 4).startswith("a Tensor of shape (4, 8, 16, 16)\n")


def test_demo_reads_gradients(demo: str) -> None:
    assert section(demo, 5).count("gradient of shape") == 3
    assert "aten.convolution_backward.default" in section(demo, 5)


def test_demo_saves_and_loads(demo: str) -> None:
    assert "run.tch/structure.json: " in section(demo, 6)
    assert section(demo, 6).endswith("every activation equal: True")


def test_demo_keeps_what_a_predicate_picks(demo: str) -> None:
    kept = section(demo, 7).splitlines()[0].split(": ")[1].split(", ")
    assert len(kept) == 4
    assert all(label.startswith("relu_") for label in kept)
    assert "Keep it by recording with layers_to_save" in section(demo, 7)


def test_demo_shows_a_loop(demo: str) -> None:
    assert section(demo, 8).startswith("Layer linear_1_1, 4 passes:\n")


def test_demo_profiles(demo: str) -> None:
    lines = section(demo, 13).splitlines()
    assert lines[0].split()[:4] == ["module", "type", "output", "params"]
    assert sum("ResidualBlock" in line for line in lines) == 2
    assert "FLOPs   forward 5.162 MFLOP, backward 9.881 MFLOP" in lines
    assert any(line.startswith("time    forward ") for line in lines)
    assert any(line.startswith("memory  peak ") for line in lines)


def test_profile_step(tmp_path: Path) -> None:
    printed = output_of("profile_step", tmp_path)
    assert re.search(r"^TinyGPT .* 27,584 ", printed, re.MULTILINE)
    assert "optimizer" not in printed.split("then there:")[1].splitlines()[0]  # its state is made after the peak
    assert re.search(r"^FLOPs of a step: [\d,]+, and 0 notes$", printed, re.MULTILINE)
    assert re.search(r"^forward aten\.\S+ in blocks\.1\.\S+ at \S+:\d+ made .* NaN of ", printed, re.MULTILINE)


def test_demo_validates(demo: str) -> None:
    assert section(demo, 9)


def test_demo_watches_a_training(demo: str) -> None:
    first, last = re.findall(r"tensors over 30 steps; loss (\S+) to (\S+)", section(demo, 10))[0]
    assert float(last) < float(first)
    assert "gradient norm" in section(demo, 10)


def test_demo_ends_with_a_planted_bug_found(demo: str) -> None:
    assert section(demo, 11).startswith("EQUAL: A is ResidualNet, B is Rewritten")
    first = section(demo, 12).split("First divergence: ")[1]
    assert "x = (y + x).clamp(min=0) if self.residual_first else y.clamp(min=0) + x" in first.split("Outputs")[0]
    assert "out += x" in first.split("  B: ")[0]


@pytest.mark.parametrize(
    ("model", "inputs", "shape"),
    [
        (AlexNet(), torch.rand(1, 3, 224, 224), (1, 1000)),
        (SimpleRecurrent(), torch.rand(2, 5), (2, 5)),
        (ResidualNet(), torch.rand(2, 3, 8, 8), (2, 10)),
        (TinyGPT(), torch.zeros(1, 8, dtype=torch.long), (1, 8, 50)),
    ],
    ids=["alexnet", "recurrent", "residual", "gpt"],
)
def test_model_runs(model: torch.nn.Module, inputs: torch.Tensor, shape: tuple[int, ...]) -> None:
    assert tuple(model(inputs).shape) == shape
