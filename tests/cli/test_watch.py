"""``torcheer watch``: training scripts that know nothing of it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from torcheer.cli.main import main
from torcheer.store import Run

TRAIN = """
import sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def main(steps):
    torch.manual_seed(0)
    net, teacher = Net(), Net()
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.rand(16, 4)
    for _ in range(steps):
        loss = (net(x) - teacher(x).detach()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(net.state_dict(), "weights.pt")


if __name__ == "__main__":
    print("given", sys.argv[1:])
    main(int(sys.argv[1]))
"""

GAN = """
import torch
from torch import nn

made, judge = nn.Sequential(nn.Linear(2, 4)), nn.Sequential(nn.Linear(4, 1))
optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (made, judge)]
for _ in range(3):
    judge(made(torch.rand(3, 2))).sum().backward()
    for one in optimizers:
        one.step()
"""

plain_call, plain_add = torch.nn.Module.__call__, torch.optim.Optimizer.add_param_group


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "gan.py").write_text(GAN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def watch(*words: str) -> int:
    arguments, path = list(sys.argv), list(sys.path)
    code = main(["watch", "--backend", "store", "--name", "run", *words])
    assert (sys.argv, sys.path) == (arguments, path)
    assert torch.nn.Module.__call__ is plain_call
    assert torch.optim.Optimizer.add_param_group is plain_add
    return code


def test_model_is_watched_and_trained_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch("--log-freq", "2", "train.py", "6", "--json") == 0
    printed = capsys.readouterr()
    assert "given ['6', '--json']" in printed.out
    assert "Watched 6 steps, the last logged is 4. See it: torcheer open " in printed.out
    with Run.open("torcheer_runs/run") as run:
        assert {one.module for one in run.series if one.kind == "param"} == {"fc1", "fc2"}
        assert run.find("fc1:1/output/0").shape == (16, 8)
    watched = torch.load("weights.pt")
    runpy.run_path("train.py")["main"](6)  # without its name being "__main__" it only defines
    for name, weight in torch.load("weights.pt").items():
        assert torch.equal(weight, watched[name])


def test_several_models_are_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch("--json", "--log-freq", "1", "gan.py") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["models"] == ["Sequential", "Sequential-2"]
    assert result["num_steps"] == 3


def test_module_is_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "train", raising=False)
    assert watch("-m", "train", "2") == 0
    with Run.open("torcheer_runs/run") as run:
        assert run.last_step == 0


def test_exit_code_is_the_scripts() -> None:
    Path("ends.py").write_text(GAN + "\nraise SystemExit(7)\n", encoding="utf-8")
    assert watch("ends.py") == 7
    with Run.open("torcheer_runs/run") as run:
        assert run.last_step == 0


def test_script_that_raises_keeps_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("raises.py").write_text(GAN + "\nraise ValueError('theirs')\n", encoding="utf-8")
    assert watch("raises.py") == 2
    assert "ValueError: theirs" in capsys.readouterr().err
    with Run.open("torcheer_runs/run") as run:
        assert not run.is_live


def test_script_without_an_optimizer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.py").write_text("import torch\ntorch.nn.Linear(1, 1)(torch.ones(1))\n", encoding="utf-8")
    assert watch("none.py") == 2
    assert "nothing was watched" in capsys.readouterr().err
    assert not Path("torcheer_runs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--backend", "stroe", "train.py", "1"], "Did you mean 'store'"),
        (["trian.py"], "There is no script 'trian.py'"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_training(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(*words) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert "given" not in printed.out


def test_nan_is_named_where_it_is_born(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sick.py").write_text(TRAIN.replace("torch.relu(self", "torch.log(self"), encoding="utf-8")
    assert watch("--nan", "stop", "sick.py", "3") == 1
    told = capsys.readouterr().err
    assert "log" in told
    assert "sick.py:13" in told
