"""The verbs that run models, on models in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import torcheer as tl
from torcheer.cli import model_name
from torcheer.cli.main import main

NETS = "nets_of_a_user.py"


def answer_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a verb answers with ``--json``."""
    main([*words, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["verb"] == words[0]
    return answer


def test_trace_prints_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{NETS}:Net", "-i", "2x4"]) == 0
    printed = capsys.readouterr()
    assert "Log of Net forward pass:" in printed.out
    assert "relu_1_4" in printed.out


def test_trace_writes_what_load_opens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, "trace", f"{NETS}:Net", "-i", "2x4", "-o", "run.tch", "--backward", "--draw", "n.svg")
    assert answer["files"] == ["run.tch", "n.svg"]
    history = tl.load("run.tch")
    assert [layer["label"] for layer in answer["result"]["layers"]] == [op.label for op in history]
    assert answer["result"]["num_params"] == 4 * 3 + 3 + 6 + 3 * 2 + 2
    assert history["relu_1"].has_gradient
    assert main(["trace", f"{NETS}:Net", "-i", "2x4", "-o", "run.tch"]) == 2
    assert "run.tch exists already. Give another path, or --overwrite." in capsys.readouterr().err


def test_trace_is_the_same_in_every_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.tch", "b.tch"):
        assert main(["trace", f"{NETS}:Net", "-i", "2x4", "-o", name]) == 0
    assert main(["trace", f"{NETS}:Net", "-i", "2x4", "-o", "c.tch", "--seed", "1"]) == 0
    first, second, third = (tl.load(name)["linear_2"].tensor_contents for name in ("a.tch", "b.tch", "c.tch"))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_trace_of_one_layer_and_some_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace", f"{NETS}:Net(size=5)", "-i", "2x5", "--save", "first,-1", "--layer", "first", "-o", "run.tch"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("the model prints\nLayer linear_1_1,")
    history = tl.load("run.tch")
    assert [op.label for op in history if op.has_contents] == ["linear_1_1", "output_1_6"]


def test_json_is_alone_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{NETS}:Net", "-i", "2x4", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["status"] == "done"
    assert "the model prints" in printed.err


def test_model_that_raises_shows_its_own_lines_and_what_ran(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{NETS}:Breaks", "-i", "2x4", "-o", "partial.tch"]) == 2
    printed = capsys.readouterr()
    assert "ValueError: broken here: torch.Size([2, 4])" in printed.err
    assert "in forward" in printed.err
    assert "torch/nn/modules" not in printed.err
    assert "linear_1_1" in printed.out
    assert [op.label for op in tl.load("partial.tch")] == ["input_1_0", "linear_1_1"]
    assert main(["trace", f"{NETS}:Breaks", "-i", "2x4", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["error"]["kind"], answer["result"]["num_ops"]) == ("ValueError", 2)


# -- inputs ------------------------------------------------------------------------------------------------


def layers_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    answer = answer_of(capsys, "trace", *words)
    assert answer["error"] is None, answer["error"]
    return [(layer["label"], layer["shape"]) for layer in answer["result"]["layers"]]


def test_inputs_for_keywords_and_of_integers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = layers_of(capsys, f"{NETS}:Words", "-i", "3x7:int64:50", "-i", "mask=3x7:bool")
    assert layers[:2] == [("input_1_0", [3, 7]), ("input_2_1", [3, 7])]


@pytest.mark.parametrize("factory", ["make_input", "make_input()", "make_keywords"])
def test_input_from_a_function(folder: Path, capsys: pytest.CaptureFixture[str], factory: str) -> None:
    layers = layers_of(capsys, f"{NETS}:Net", "-i", f"{NETS}:{factory}")
    assert layers[0] == ("input_1_0", [2, 4])


def test_inputs_from_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.rand(6, 4)
    np.save("x.npy", x.numpy())
    np.savez("x.npz", x=x.numpy())
    torch.save(x, "x.pt")
    save_file({"x": x, "other": x[:1].clone()}, "x.safetensors")
    for name in ("x.npy", "x.npz", "x.pt", "x.safetensors:x"):
        assert main(["trace", f"{NETS}:Net", "-i", name, "-o", "run.tch", "--overwrite"]) == 0
        assert torch.equal(tl.load("run.tch")[0].tensor_contents, x), name
    capsys.readouterr()
    assert main(["trace", f"{NETS}:Net", "-i", "x.safetensors:y"]) == 2
    assert "x.safetensors has no tensor 'y'. It has: " in capsys.readouterr().err


def test_file_with_code_in_it_is_refused_and_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path("ran").touch, ()

    torch.save(Evil(), "evil.pt")
    np.save("evil.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    for name in ("evil.pt", "evil.npy"):
        assert main(["trace", f"{NETS}:Net", "-i", name]) == 2
        assert f"{name} cannot be read as tensors" in capsys.readouterr().err
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("2x4:float23", "'float23' is no dtype of PyTorch. Did you mean 'float32'"),
        ("2x4:float32:9", "a bound is for integers"),
    ],
)
def test_wrong_dtypes_are_told(folder: Path, capsys: pytest.CaptureFixture[str], spec: str, told: str) -> None:
    assert main(["trace", f"{NETS}:Net", "-i", spec]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64", "int8", "uint8", "bool"])
def test_random_inputs_of_many_dtypes(folder: Path, capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    answer = answer_of(capsys, "trace", "torch.nn:Identity", "-i", f"2x4:{dtype}")
    assert answer["result"]["layers"][0]["dtype"] == dtype


# -- the model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors", "checkpoint.pt"])
def test_weights_come_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    model = model_name.model(f"{NETS}:Net")
    state = model.state_dict()
    if name.endswith(".safetensors"):
        save_file(state, name)
    else:
        torch.save({"model_state_dict": state, "step": 3} if name == "checkpoint.pt" else state, name)
    torch.save(torch.ones(2, 4), "x.pt")
    words = ["trace", f"{NETS}:Net", "-i", "x.pt", "--weights", name, "--eval", "-o", "run.tch"]
    assert main(words) == 0
    expected = model.eval()(torch.ones(2, 4))
    assert torch.equal(tl.load("run.tch")[-1].tensor_contents, expected)


def test_weights_of_another_model_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"first.weight": torch.ones(3, 5), "third": torch.ones(1)}, "w.pt")
    assert main(["trace", f"{NETS}:Net", "-i", "2x4", "--weights", "w.pt"]) == 2
    told = capsys.readouterr().err
    assert "8 not in the file: first.bias, norm.weight, norm.bias; 1 not in the model: third; " in told
    assert "1 of another shape: first.weight" in told


# -- summary and profile -----------------------------------------------------------------------------------


def test_summary_with_and_without_an_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", f"{NETS}:Net"]) == 0
    assert "the model prints" not in capsys.readouterr().out
    answer = answer_of(capsys, "summary", f"{NETS}:Net", "-i", "2x4", "--fake")
    assert answer["result"]["totals"]["figures"]["flops_forward"] > 0
    assert main(["trace", f"{NETS}:Net", "-i", "2x4", "-o", "run.tch"]) == 0
    capsys.readouterr()
    assert main(["summary", "run.tch", "--depth", "1"]) == 0
    assert re.search(r"first +Linear +\(2, 3\)", capsys.readouterr().out)


def test_profile_writes_what_was_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-i", "2x4", "--backward", "--repeats", "1", "-o", "r.html", "--chrome", "t.json", "--gadgets", "g.json"]
    answer = answer_of(capsys, "profile", f"{NETS}:Net", *words)
    assert sorted(answer["files"]) == ["g.json", "r.html", "t.json"]
    assert json.loads(Path("t.json").read_text())["traceEvents"]
    assert "Net" in json.loads(Path("g.json").read_text())
    assert Path("r.html").read_text().startswith("<!doctype html>")
    assert answer["result"]["totals"]["figures"]["flops_backward"] > 0


def test_profile_fails_on_nan_where_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", f"{NETS}:MakesNaN", "-i", "2x4", "--measure", "nan"]
    assert main(words) == 0
    assert "made 8 NaN of 8" in capsys.readouterr().out
    assert main([*words, "--fail-on-nan"]) == 1
    assert main(["profile", f"{NETS}:Net", "-i", "2x4", "--measure", "nan", "--fail-on-nan"]) == 0


def test_profile_refuses_what_it_cannot_do_before_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", f"{NETS}:Net", "-i", "2x4", "-o", "r.docx"]) == 2
    printed = capsys.readouterr()
    assert "a report is written as .html or .json" in printed.err
    assert printed.out == ""


# -- the rest ----------------------------------------------------------------------------------------------


def test_doctor_finds_this_machine_well(capsys: pytest.CaptureFixture[str]) -> None:
    checks = {check["name"]: check for check in answer_of(capsys, "doctor")["result"]["checks"]}
    for name in ("torch", "torch's private names", "device", "recording", "saving and loading", "profiling", "drawing"):
        assert checks[name]["state"] == "ok", checks[name]


def test_doctor_names_private_names_that_are_gone() -> None:
    from torcheer.capture.torch.health import missing_private_names

    assert missing_private_names() == []
    source = "from torch._ops import OpOverload, Gone\nx = torch._C._surely_not\ny = torch._C._get_tracing_state"
    assert missing_private_names(source) == ["torch._C._surely_not", "torch._ops.Gone"]


def test_doctor_tells_what_does_not_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from torcheer.api import health

    def broken(*args: Any, **options: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(health, "profile", broken)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "✗ profiling" in printed
    assert "RuntimeError: no such thing" in printed
    assert printed.endswith("must be mended: see → above.\n")


def test_profile_shows_the_columns_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", f"{NETS}:Net", "-i", "2x4", "--backward", "--repeats", "1"]
    assert main([*words, "--columns", "saved,needed", "--sort", "saved"]) == 0
    titles = capsys.readouterr().out.split("─")[0].splitlines()[-1].split()
    assert titles[0] == "module"
    assert len(titles) >= 3
    assert main([*words, "--columns", "no_such"]) == 2
    assert "no_such" in capsys.readouterr().err


def test_a_device_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace", "nets_of_a_user.py:Net", "-i", "2x4", "--device", "nonsense"]
    assert main(words) == 2
    assert "--device nonsense: the model cannot be moved there (" in capsys.readouterr().err
