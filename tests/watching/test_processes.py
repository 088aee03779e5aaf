"""Training in processes of its own: killed, resumed, followed live, run by torchrun, ended by its last line."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torcheer.errors import StoreError
from torcheer.store import Run, Writer

TRAINING = """
    import sys
    import torch
    from torch import nn
    import torcheer as tl

    folder, resume, steps = sys.argv[1], sys.argv[2] == "resume", int(sys.argv[3])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    w = tl.watch(model, log_freq=1, backend="store", dir=folder, name="run", resume=resume, verbose=False)
    print("started", w.step + 1, flush=True)
    for step in range(steps):
        loss = model(torch.randn(32, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.log(loss=loss)
"""


def _start(text: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def _end(process: subprocess.Popen[str], timeout: float = 60) -> str:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def test_killed_in_the_middle_and_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    expected = 0
    for turn in range(2):
        process = _start(TRAINING, tmp_path, "resume" if turn else "new", 10**9)
        assert process.stdout is not None
        assert process.stdout.readline() == f"started {expected}\n", "it goes on where it was"
        with _opened(folder) as run:
            while (run.last_step or 0) < expected + 150 + 37 * turn:
                assert process.poll() is None
                time.sleep(0.005)
            assert run.is_live
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Run.open(folder) as run:
            assert not run.is_live
            rows = run.rows("2/param_grad/weight")
            assert rows.steps.tolist() == list(range(len(rows))), "every step up to the one being written"
            assert rows.steps[-1] == run.last_step
            assert np.isfinite(rows["norm"]).all()
            assert len(run.scalars("loss").steps) >= len(rows) - 2
            assert run.structure() is not None
            expected = len(rows)
    process = _start(TRAINING, tmp_path, "resume", 20)
    assert f"started {expected}" in _end(process)
    with Run.open(folder) as run:
        assert run.rows("0:1/output/0").steps.tolist() == list(range(expected + 20))
        assert len(run.sessions) == 3


def _opened(folder: Path) -> Run:
    end = time.monotonic() + 30
    while True:
        try:
            return Run.open(folder)
        except StoreError:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_reader_beside_a_writer(tmp_path: Path) -> None:
    """A hundred polls a second while another process trains: no error, and what is read is whole."""
    process = _start(TRAINING, tmp_path, "new", 10**9)
    try:
        with _opened(tmp_path / "run") as run:
            cursor, seen = None, 0
            for _ in range(150):
                change = run.follow(cursor)
                cursor = change.cursor
                if change.steps:
                    newest = run.at()
                    assert newest is not None
                    assert newest.stats.shape[0] == newest.counts.shape[0] == newest.rows.max() + 1
                    seen += 1
                    assert len(run.rows("(model):1/output/0", columns=50)) <= 50
                time.sleep(0.01)
            assert seen > 20
    finally:
        process.kill()
        process.communicate()


def test_a_script_ends_when_it_ends(tmp_path: Path) -> None:
    """Without stop(), with the server started, and nothing of what was logged is missing."""
    script = """
        import sys, time
        import torch
        from torch import nn
        import torcheer as tl
        model = nn.Linear(4, 4)
        w = tl.watch(model, log_freq=1, dir=sys.argv[1], name="run", standalone_port=5400)
        for _ in range(30):
            model(torch.randn(3, 4)).sum().backward()
        print("last line at", time.time())
    """
    process = _start(script, tmp_path)
    out = _end(process, timeout=40)
    ended = time.time()
    last = float(next(line for line in out.splitlines() if "last line" in line).split()[-1])
    assert ended - last < 15, "the server's start is waited for, nothing else"
    address = next(line.split()[-1] for line in out.splitlines() if "localhost" in line)
    with Run.open(tmp_path / "run") as run:
        assert run.rows("(model)/param_grad/weight").steps.tolist() == list(range(30))
        assert run.state["steps"] == 30
    with urllib.request.urlopen(f"{address}", timeout=10) as page:
        assert page.status == 200, "the explorer outlives the training"
    _end_server(address)


def _end_server(address: str) -> None:
    port = address.rstrip("/").rsplit(":", 1)[1]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"torcheer.web" in words and port.encode() in words:
            os.kill(int(path.parent.name), signal.SIGTERM)


RANKS = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch import nn
    import torcheer as tl

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    parallel = nn.parallel.DistributedDataParallel(model)
    w = tl.watch(model, log_freq=1, backend="store", dir=sys.argv[1])
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    torch.manual_seed(rank)
    norms = []
    for step in range(5):
        optimizer.zero_grad()
        if step == 3:  # gradients are added up here before they are averaged: a step more for the watch
            with parallel.no_sync():
                parallel(torch.randn(3, 4)).square().mean().backward()
            norms.append(model[2].weight.grad.norm().item())
        loss = parallel(torch.randn(3, 4) + 100 * rank).square().mean()
        loss.backward()
        norms.append(model[2].weight.grad.norm().item())
        optimizer.step()
        w.log(loss=loss)
    w.stop()
    (w.folder / f"norms-{rank}").write_text(repr(norms))
    dist.destroy_process_group()
"""


def test_torchrun_with_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RANKS))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script)]
    done = subprocess.run(
        [*command, str(tmp_path / "runs")], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("torcheer: watching") == 1, "process 0 speaks"
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    with Run.open(folder) as first, Run.open(folder, rank=1) as second:
        assert first.ranks == second.ranks == [0, 1]
        for run, mean in ((first, 0), (second, 100)):
            rows = run.rows("(model):1/input/0")
            assert rows.steps.tolist() == list(range(6))
            assert abs(rows["mean"][:3].mean() - mean) < 2, "each process has seen its own batches"
            assert len(run.scalars("loss").steps) == 5
        weights = [run.rows("2/param/weight")["norm"].tolist() for run in (first, second)]
        assert weights[0] == weights[1], "and the same parameters"
        averaged = [run.rows("2/param_grad/weight")["norm"].tolist() for run in (first, second)]
        assert [one == other for one, other in zip(*averaged, strict=True)] == [True] * 3 + [False] + [True] * 2
        for rank, run in enumerate((first, second)):
            seen = run.rows("2/param_grad/weight")["norm"].tolist()
            told = ast.literal_eval((folder / f"norms-{rank}").read_text())
            assert seen == pytest.approx(told, rel=1e-5), "gradients are the averaged ones, which the optimizer sees"


def test_no_internet_is_needed(tmp_path: Path) -> None:
    """Any connection but to this machine is an error."""
    script = """
        import socket, sys
        plain = socket.socket.connect
        def connect(self, address):
            if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
                raise AssertionError(f"connects to {address}")
            return plain(self, address)
        socket.socket.connect = connect
        socket.getaddrinfo = None
        import torch
        from torch import nn
        import torcheer as tl
        model = nn.Linear(4, 4)
        with tl.watch(model, log_freq=1, backend="store", dir=sys.argv[1], verbose=False) as w:
            model(torch.randn(3, 4)).sum().backward()
        assert w.failure is None
        print("done")
    """
    assert _end(_start(script, tmp_path)) == "done\n"


def test_a_forked_process_does_not_write(tmp_path: Path) -> None:
    """A data loader's worker inherits the watched model; the run stays its parent's."""
    script = """
        import os, sys
        import torch
        from torch import nn
        import torcheer as tl
        model = nn.Linear(4, 4)
        w = tl.watch(model, log_freq=1, backend="store", dir=sys.argv[1], name="run", verbose=False)
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
        w.flush()
        child = os.fork()
        if child == 0:
            model(torch.randn(3, 4))
            w.log(loss=1.0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
    """
    _end(_start(script, tmp_path))
    with Run.open(tmp_path / "run") as run:
        assert run.rows("(model)/param_grad/weight").steps.tolist() == list(range(6))
        assert run.scalar_names == []


def test_the_file_after_a_kill_at_any_write(tmp_path: Path) -> None:
    """The log of the database cut anywhere: what is there is whole steps."""
    from tests.unit.store.make_run import rows_of, series_of

    writer = Writer(tmp_path / "run")
    series = series_of(writer)
    for step in range(20):
        writer.add_step(rows_of(series, step))
    writer.flush()
    files = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if not path.name.endswith("lock")}
    writer.close()
    log = files["rank-0.sqlite-wal"]
    found = set()
    for cut in range(0, len(log), len(log) // 23):
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir()
        for name, content in files.items():
            if not name.endswith("-shm"):
                (copy / name).write_bytes(content[:cut] if name.endswith("-wal") else content)
        again = Writer(copy)
        last = again.last_step()
        own = series_of(again)
        again.add_step(rows_of(own, (last or 0) + 1))
        again.close()
        with Run.open(copy) as run:
            steps = run.rows(own[0].name).steps.tolist() if own[0].name in {one.name for one in run.series} else []
            found.add(len(steps))
    assert len(found) > 5


@pytest.mark.parametrize("kind", ["nfs", "ext4"])
def test_network_file_systems(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """A write-ahead log needs shared memory, which they have not: there a rollback journal is kept instead."""
    from tests.unit.store.make_run import rows_of, series_of
    from torcheer.store import folder as of_folder

    plain = Path.read_text
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n"

    def read_text(self: Path, *args: Any, **kwargs: Any) -> str:
        return mounts if str(self) == "/proc/mounts" else plain(self, *args, **kwargs)

    monkeypatch.setattr(of_folder.Path, "read_text", read_text)
    writer = Writer(tmp_path / "run")
    series = series_of(writer)
    run = Run.open(tmp_path / "run")
    stop, errors, num_reads = threading.Event(), [], 0

    def read() -> None:
        nonlocal num_reads
        while not stop.is_set():
            try:
                run.follow()
                num_reads += 1
            except StoreError as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(150):
        writer.add_step(rows_of(series, step))
    writer.flush()
    stop.set()
    reader.join()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert ("rank-0.sqlite-wal" in names) == (kind == "ext4")
    writer.close()
    assert not errors
    assert num_reads
    assert writer.failure is None
    assert run.rows(series[0].name).steps.tolist() == list(range(150))


def test_options_are_told(tmp_path: Path) -> None:
    """What a run was made with can be read from it."""
    _end(_start(TRAINING, tmp_path, "new", 3))
    with Run.open(tmp_path / "run") as run:
        options = run.sessions[0]["options"]
        assert (options["log_freq"], options["bins"], options["sample_n"]) == (1, 30, 1000)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"] == "Sequential"
