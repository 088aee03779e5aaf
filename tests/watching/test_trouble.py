"""What may go wrong: refused clearly before training, or told while training goes on."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.watching.nets import Net, rows, train
from torcheer.errors import MissingExtraError, StoreError, WatchError
from torcheer.store import Run


def _batch() -> Tensor:
    return torch.randn(5, 10)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_not_finite_at_the_first_step(watch: Any, value: float) -> None:
    model = Net()
    with torch.no_grad():
        model.fc2.weight[0, 0] = value
    watching = watch(model)
    train(model, _batch, 3)
    found = rows(watching, "fc2/param/weight")
    name = "nan" if np.isnan(value) else "inf"
    assert found[name][0] == 1
    assert np.isfinite(found["mean"][0]), "of the others"
    assert found.counts[0].sum() > 0
    with watching.open() as run:
        (alert,) = [alert for alert in run.alerts() if alert.rule == "nan"]
    assert "fc2/param/weight" in alert.message


def test_not_finite_later(watch: Any) -> None:
    model = Net()
    watching = watch(model)
    train(model, _batch, 3)
    train(model, lambda: torch.full((5, 10), float("inf")), 2)
    assert rows(watching, "(model):1/input/0")["inf"].tolist() == [0, 0, 0, 50, 50]
    assert rows(watching, "fc1/param_grad/weight").steps.tolist() == [0, 1, 2, 3, 4]
    assert watching.failure is None


@pytest.mark.parametrize(("options", "said"), [
    ({"log": ["oi"]}, r"log=\['oi'\]: 'oi' cannot be logged. There are: 'io', 'io_grad', 'params', 'params_grad'"),
    ({"log_freq": 0}, "log_freq=0: it takes a whole number, at least 1"),
    ({"log_freq": 2.5}, "log_freq=2.5: it takes a whole number"),
    ({"bins": 1}, "bins=1: it takes a whole number, at least 2"),
    ({"bins": 5000}, "bins=5000: it takes at most 1024"),
    ({"sample_n": 0}, "sample_n=0: .* None takes every value"),
    ({"reject_outlier_proportion": 1.5}, r"reject_outlier_proportion=1.5: it takes a share .* 0.1, the default"),
    ({"ignore_io_grad_classes": ["ReLU"]}, "ReLU' is no class. It takes classes"),
    ({"time_log": "epoch"}, "time_log='epoch': it takes a name and a function"),
    ({"compiled": "inside"}, "compiled='inside': it takes one of 'outside', 'eager'"),
    ({"nan": "raise"}, "nan='raise': it takes one of None, 'warn', 'stop'"),
    ({"backend": "wandbb"}, "backend='wandbb': .*'wandb'"),
    ({"name": "a/b"}, "name='a/b': it becomes the name of a folder"),
    ({"resume": True}, "say which with name="),
])  # fmt: skip
def test_options_that_make_no_sense(watch: Any, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(WatchError, match=said):
        watch(Net(), **options)
    assert not (tmp_path / "runs").exists(), "nothing has been written"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_things_that_are_no_model(watch: Any) -> None:
    with pytest.raises(WatchError, match=r"takes an nn\.Module, and was given list"):
        watch([Net()])
    with pytest.raises(WatchError, match="given str as 'b'"):
        watch({"a": Net(), "b": "Net"})
    with pytest.raises(WatchError, match=r"is scripted.*Watch the model it was made from"):
        watch(torch.jit.script(nn.Sequential(nn.Linear(2, 2))))


def test_watched_twice(watch: Any) -> None:
    model = Net()
    first = watch(model)
    with pytest.raises(WatchError, match=r"watched already.*\.stop\(\)"):
        watch(model, name="second")
    train(model, _batch, 2)
    assert len(rows(first, "fc1/param_grad/weight")) == 2, "the first goes on"
    first.stop()
    again = watch(model, name="third")
    train(model, _batch, 2)
    assert len(rows(again, "fc1/param_grad/weight")) == 2


def test_two_runs_of_the_same_name(watch: Any) -> None:
    watching = watch(Net(), name="one")
    with pytest.raises(WatchError, match=r"is a run already.*resume=True"):
        watch(Net(), name="one")
    with pytest.raises(StoreError, match="Another process is writing the run"):
        watch(Net(), name="one", resume=True)
    watching.stop()
    names = {watch(Net()).folder.name for _ in range(3)}
    assert len(names) == 3, "names made of the model and the time are all different"


def test_a_folder_that_is_something_else(watch: Any, tmp_path: Path) -> None:
    (tmp_path / "runs" / "data").mkdir(parents=True)
    (tmp_path / "runs" / "data" / "file.txt").write_text("precious")
    with pytest.raises(WatchError, match="is no watched run"):
        watch(Net(), name="data")
    assert os.listdir(tmp_path / "runs" / "data") == ["file.txt"]


def test_a_store_from_a_newer_version(watch: Any, tmp_path: Path) -> None:
    watching = watch(Net(), name="new")
    watching.stop()
    with sqlite3.connect(watching.folder / "rank-0.sqlite") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match=r"version 99.*pip install -U torcheer"):
        watch(Net(), name="new", resume=True)
    with pytest.raises(StoreError, match=r"version 99.*pip install -U torcheer"):
        Run.open(watching.folder)
    manifest = json.loads((watching.folder / "run.json").read_text())
    (watching.folder / "run.json").write_text(json.dumps({**manifest, "version": 7}))
    with pytest.raises(StoreError, match="version 7"):
        watch(Net(), name="new", resume=True)


def test_a_read_only_folder(watch: Any, tmp_path: Path) -> None:
    """As a file system mounted read-only would have it: root may write anywhere else."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    model = Net()
    with pytest.raises(StoreError, match=r"cannot be written: .*dir="):
        watch(model, dir=blocked)
    with pytest.raises(StoreError, match=r"cannot be written: .*dir="):
        watch(model, dir="/proc/torcheer")
    assert "__call__" not in Net.__dict__, "the model was not touched"


@pytest.mark.parametrize("backend", ["wandb", "tensorboard"])
def test_a_backend_that_is_not_installed(watch: Any, backend: str, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, backend, None)
    monkeypatch.delitem(sys.modules, f"torcheer.integrations.{backend}", raising=False)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    said = rf"needs the package '{backend}', which is not installed\. .*pip install 'torcheer\[{backend}\]'"
    with pytest.raises(MissingExtraError, match=said):
        watch(Net(), backend=backend)
    assert not (tmp_path / "runs").exists()


def test_numbers_that_are_none(watch: Any) -> None:
    watching = watch(Net())
    with pytest.raises(WatchError, match=r"log\(loss='high'\): that is no number. Pass one"):
        watching.log(loss="high")
    with pytest.raises(WatchError, match=r"log\(loss=…\) was given a tensor of shape \(2,\). Pass a number"):
        watching.log(loss=torch.ones(2))


def test_two_models_of_one_name(watch: Any) -> None:
    watching = watch(Net())
    with pytest.raises(WatchError, match="Give this one another name"):
        watching.add(Net())


FULL = """
    import resource, sys, warnings, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    import torch
    from torch import nn
    import torcheer as tl
    warnings.simplefilter("always")
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
    watching = tl.watch(model, log_freq=1, backend="store", dir=sys.argv[1], name="full", verbose=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    for step in range(300):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watching.log(loss=loss)
    watching.stop()
    print("trained", step, watching.failure)
"""


def test_a_disk_that_fills(tmp_path: Path) -> None:
    done = _script(FULL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trained 299" in done.stdout
    assert "None" not in done.stdout, "the failure is known"
    assert done.stderr.count("torcheer has stopped writing the watched run") == 1
    assert "Training goes on" in done.stderr
    with Run.open(tmp_path / "full") as run:
        steps = run.rows("3/param_grad/weight").steps
        assert len(steps) > 5
        assert steps.tolist() == list(range(len(steps))), "all that was written before is there"


def _script(text: str, *arguments: Any, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)], capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip


def test_a_backend_that_fails_does_not_stop_the_others(watch: Any) -> None:
    class Broken:
        def add_step(self, *_: Any) -> None:
            raise RuntimeError("the connection is gone")

        def add_scalars(self, *_: Any) -> None:
            raise RuntimeError("the connection is gone")

        def close(self) -> None:
            raise RuntimeError("the connection is gone")

    model = Net()
    watching = watch(model)
    watching._sink._backends.append(Broken())
    with pytest.warns(UserWarning, match="Broken: RuntimeError: the connection is gone.*is still written"):
        _train_with_a_pause(watching, model)
    assert watching.failure is None
    assert len(rows(watching, "fc1/param_grad/weight")) == 10
    with watching.open() as run:
        assert "backend" in [note.code for note in run.notes()]


def _train_with_a_pause(watching: Any, model: nn.Module) -> None:
    train(model, _batch, 5)
    watching.flush()
    train(model, _batch, 5)


def test_a_function_of_time_that_fails_is_the_users(watch: Any) -> None:
    model = Net()
    watch(model, time_log=("epoch", lambda module, step: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        train(model, _batch, 3)


def test_setup_says_what_it_did(capsys: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        tl.setup(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        assert "may now open 300 files (before: 256). Watching needs no setup." in capsys.readouterr().out
        tl.setup(300)
        assert "already" in capsys.readouterr().out
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
