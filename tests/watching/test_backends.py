"""Backends: the explorer in its own process, Weights & Biases offline, TensorBoard; several at once."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.watching.nets import Net, train
from torcheer.errors import WatchError
from torcheer.watching import watch as of_watch


def _batch() -> torch.Tensor:
    return torch.randn(5, 10)


def test_standalone_serves_the_run_from_a_process_of_its_own(watch: Any, tmp_path: Path, capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        model = Net()
        start = time.perf_counter()
        watching = watch(model, backend="standalone", dir=None, standalone_dir=tmp_path, standalone_port=port,
                         verbose=True)  # fmt: skip
        train(model, _batch, 1)
        assert watching._server is None or time.perf_counter() - start > 0.3, "training does not wait for the server"
        assert watching.url is not None
        used = int(watching.url.rstrip("/").rsplit(":", 1)[1])
        assert port < used < port + 100, "the next free one"
    said = capsys.readouterr().out
    assert f"torcheer: watch it at http://localhost:{used}/" in said
    process = watching._server._process
    assert process.pid != os.getpid()
    train(model, _batch, 3)
    watching.flush()
    (subject,) = _json(f"{watching.url}api")["subjects"]
    assert subject["kind"] == "watch", "the run is listed"
    process.kill()
    process.wait()
    train(model, _batch, 3)
    watching.stop()
    assert watching.failure is None, "training never dies with the server"
    with watching.open() as run:
        assert len(run.rows("fc1/param_grad/weight")) == 7


def _json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return json.loads(answer.read())


def test_a_server_that_does_not_start(watch: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    model = Net()
    watching = watch(model, backend="standalone", verbose=True)
    assert watching.url is None
    train(model, _batch, 2)
    assert "the explorer could not be started" in capsys.readouterr().out
    with watching.open() as run:
        assert len(run.rows("fc1/param_grad/weight")) == 2


def test_tensorboard(watch: Any) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = Net()
    watching = watch(model, backend=["store", "tensorboard"])
    for _ in range(3):
        train(model, _batch, 1)
        watching.log(loss=2.5)
    watching.stop()
    events = EventAccumulator(str(watching.folder / "tensorboard"), {"histograms": 0})
    events.Reload()
    histograms = events.Histograms("fc1/param_grad/weight")
    assert [event.step for event in histograms] == [0, 1, 2]
    with watching.open() as run:
        rows = run.rows("fc1/param_grad/weight")
    shown = histograms[-1].histogram_value
    assert shown.num == rows.counts[-1].sum()
    assert shown.min == pytest.approx(rows["min"][-1])
    assert shown.bucket_limit[-1] == pytest.approx(rows["high"][-1], rel=1e-4)
    assert [event.value for event in events.Scalars("loss")] == [2.5] * 3
    assert events.Scalars("norm/fc1/param_grad/weight")[-1].value == pytest.approx(rows["norm"][-1])


@pytest.fixture
def wandb_run(tmp_path: Path, monkeypatch: Any) -> Any:
    """An offline run of W&B."""
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init(
        project="test", dir=str(tmp_path), settings=wandb.Settings(x_disable_stats=True, x_disable_meta=True)
    )
    yield run
    run.finish()


def _kept(folder: Path) -> list[dict[str, Any]]:
    """What an offline run has written: the values of each of its history rows."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # until its service ends, the last records may be in memory only
    (file,) = folder.rglob("*.wandb")
    found = []
    for data in _log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            found.append({
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
            })  # fmt: skip
    return found


def _log_records(content: bytes) -> Iterator[bytes]:
    """Records of a LevelDB log, which a ``.wandb`` file is after its first 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_offline(watch: Any, wandb_run: Any, tmp_path: Path) -> None:
    model = Net()
    watching = watch(model, backend="wandb")
    for _ in range(3):
        train(model, _batch, 1)
        watching.log(loss=2.5)
    watching.stop()
    wandb_run.finish()
    kept = [row for row in _kept(tmp_path) if "torcheer/step" in row]
    assert [row["torcheer/step"] for row in kept] == [0, 1, 2], "every step, without a log of the user's"
    with watching.open() as run:
        rows = run.rows("fc1/param_grad/weight")
    for number, row in enumerate(kept):
        name = "torcheer/fc1/param_grad/weight"
        assert row[f"{name}/_type"] == "histogram"
        assert row[f"{name}/values"] == rows.counts[number].tolist()
        assert row[f"{name}/bins"][0] == pytest.approx(rows["low"][number])
        assert row["torcheer/norm/fc1/param_grad/weight"] == pytest.approx(rows["norm"][number])
        assert row["torcheer/loss"] == 2.5
    (page,) = tmp_path.rglob("media/html/torcheer/explorer*.html")
    shown = page.read_text(encoding="utf-8")
    assert shown.lower().startswith("<!doctype html>")
    data = re.search(r'id="data">([^<]+)<', shown)
    assert data is not None
    told = json.loads(gzip.decompress(base64.b64decode(data[1])))["watch"]
    assert told["last_step"] == 2
    assert told["scalars"]["loss"]["values"] == [2.5] * 3, "the explorer, with the whole run"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_leaves_the_users_steps_alone(watch: Any, wandb_run: Any, tmp_path: Path) -> None:
    model = Net()
    watching = watch(model, backend="wandb")
    wandb_run.log({"loss": -1.0}, step=0)
    for step in range(1, 4):
        train(model, _batch, 1)
        watching.flush()
        wandb_run.log({"loss": float(step)}, step=step)
    watching.stop()
    wandb_run.finish()
    kept = _kept(tmp_path)
    assert {row["_step"]: row["loss"] for row in kept if "loss" in row} == {0: -1.0, 1: 1.0, 2: 2.0, 3: 3.0}
    assert {row["torcheer/step"] for row in kept if "torcheer/step" in row} == {0, 1, 2}


def test_wandb_without_a_run(watch: Any, tmp_path: Path) -> None:
    with pytest.raises(WatchError, match=r"the active run, and there is none. Call wandb.init\(\) first"):
        watch(Net(), backend="wandb")
    assert not (tmp_path / "runs").exists()


class _Terminal:
    """A standard error that is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("where", ["terminal", "CI", "notebook", "pipe", "verbose=False"])
def test_the_progress_line(watch: Any, monkeypatch: Any, where: str, capsys: Any) -> None:
    terminal = _Terminal()
    monkeypatch.delenv("CI", raising=False)
    if where != "pipe":
        monkeypatch.setattr(sys, "stderr", terminal)
    if where == "CI":
        monkeypatch.setenv("CI", "true")
    if where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(of_watch, "_PROGRESS_SECONDS", 0.0)
    model = Net()
    with watch(model, name="run", verbose=where != "verbose=False") as watching:
        train(model, _batch, 3)
        watching.log(loss=1.25)
    if where == "terminal":
        lines = terminal.text.split("\r\033[K")
        assert lines[-1] == "torcheer: run, step 2, 20 tensors\n"
        assert terminal.text.count("\n") == 1, "one line, rewritten"
    else:
        assert not terminal.text
        assert not capsys.readouterr().err
