"""Rows 6 to 8: time of later runs, memory of the record, time of import."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import rival
import torch
from report import Line
from time_rows import Effort

import torcheer as tl

HERE = Path(__file__).parent


def row_6(effort: Effort) -> list[Line]:
    """The idle tax: the same model again after a capture.

    Measured in fresh processes. Some of them record nothing and show the error of the method.
    """
    tools = ["nothing", "torcheer"]
    if rival.is_installed() and effort.rival_samples:
        tools.append("torchlens")
    num_trials, num_calls = (6, 3000) if effort.rounds >= 10 else (2, 1000)
    threads = str(torch.get_num_threads())
    trials: dict[str, list[dict[str, float]]] = {tool: [] for tool in tools}
    for _ in range(num_trials):
        for tool in tools:
            command = [sys.executable, str(HERE / "idle_tax.py"), tool, str(num_calls), threads]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            trials[tool].append(json.loads(done.stdout.splitlines()[-1]))
    ratios = {tool: _tax(found) for tool, found in trials.items()}
    ours = trials["torcheer"]
    return [
        Line(
            6, "MLP, no_grad", "plain after ÷ plain before", ratios["torcheer"], bar=1.0, is_equality=True,
            rival=ratios.get("torchlens", "not measured" if rival.is_installed() else rival.MISSING),
            baseline_ms=min(trial["before_ms"] for trial in ours),
            torcheer_ms=min(trial["after_ms"] for trial in ours),
            note=f"where nothing was recorded in between, the same ratio is {ratios['nothing']:.3f}×",
            timings={f"{tool} {place}": trial for tool in tools for place, trial in enumerate(trials[tool])},
        )
    ]  # fmt: skip


def _tax(trials: list[dict[str, float]]) -> float:
    return min(trial["after_ms"] for trial in trials) / min(trial["before_ms"] for trial in trials)


def row_7(effort: Effort) -> list[Line]:
    """Memory of one operation's record.

    Counted is everything that Python allocated for the whole record and still holds.
    """
    case = models.build(models.gpt2)
    model, x = case.model, case.x

    def history() -> Any:
        history = tl.log_forward_pass(model, x, layers_to_save=None)
        _ = history.record
        return history

    with torch.no_grad():
        record_bytes, record = held_bytes(lambda: history().record)
        history_bytes, _ = held_bytes(history)
        theirs: float | str = "not measured" if rival.is_installed() else rival.MISSING
        if rival.is_installed() and effort.rival_samples:
            trace_bytes, trace = held_bytes(lambda: rival.trace(model, x))
            theirs = trace_bytes / rival.num_ops(trace)
            del trace
            rival.unwrap()
    num = len(record.ops)
    parts = f"{len(record.aten)} ATen ops, {len(record.values)} values, {len(record.modules)} modules"
    note = f"{record_bytes / 2**20:.2f} MB in all ({parts}), shared out over {num} ops"
    what = "the live history: record and what it was built from"
    return [
        Line(7, case.name, "record, per op", record_bytes / num, "bytes", 2048.0, 0, theirs, note=note),
        Line(7, case.name, "live history, per op", history_bytes / num, "bytes", None, 0, theirs, note=what),
    ]


def held_bytes(make: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that live on in what ``make`` returns, and that."""
    make()  # whatever is only done once
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, made
    finally:
        tracemalloc.stop()


def row_8(effort: Effort) -> list[Line]:
    """Time of the import.

    In fresh processes, with bytecode cached as it is for an installed package.
    """
    statements = {
        "pass": "pass",
        "torcheer": "import torcheer, sys; assert 'torch' not in sys.modules, 'torch was imported'",
    }
    if rival.is_installed():
        statements["torchlens"] = "import torchlens"
    rounds = 2 * effort.rounds
    best = dict.fromkeys(statements, 1e9)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(rounds + 1):
            for name, statement in statements.items():
                start = time.perf_counter_ns()
                subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
                if turn:  # the first fills the cache
                    best[name] = min(best[name], (time.perf_counter_ns() - start) / 1e6)
    ours = best["torcheer"] - best["pass"]
    theirs = best["torchlens"] - best["pass"] if "torchlens" in best else rival.MISSING
    note = "torch was not imported (asserted)"
    return [
        Line(
            8, "–", "import, beyond the interpreter", ours, "ms", 50.0, 1, theirs,
            baseline_ms=best["pass"], torcheer_ms=best["torcheer"], note=note,
        )
    ]  # fmt: skip
