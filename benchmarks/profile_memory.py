"""Rows about memory: predicted peaks against the allocator's own events, and a model far too large for the machine."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

import torcheer as tl
from benchmarks.memory_nets import CASES
from benchmarks.profile_figures import Figure, within

LLAMA_FLOPS_FORWARD = 29.262e12  # on paper: 32 layers of projections, attention and perceptron, and the head


def peaks(_rounds: int) -> Iterator[Figure]:
    """Predicted peak of a training step, against what the allocator reports."""
    for name, make in CASES.items():
        torch.manual_seed(0)
        model, x = make()
        truth = allocator_peak(model, x)
        for execution, what in (("fake", "predicted peak ÷ allocator's"), ("real", "measured peak ÷ allocator's")):
            report = tl.profile(model, x, backward=True, measure="memory", loss=Tensor.mean, execution=execution)
            peak = report.totals.peak_bytes
            said = " ".join(note for note in report.notes if "partial" in note)
            details = {"truth_bytes": truth, "peak_bytes": peak, "notes": report.notes}
            figure = within(6, what, name, peak / truth, 0.05, details=details)
            if said and figure.verdict == "MISS":
                # The bar asks for the figure or for a diagnostic that says it is partial.
                figure = Figure(6, what, name, peak / truth, note=f"said to be partial: {said}", details=details)
            yield figure


def allocator_peak(model: nn.Module, x: Tensor) -> int:
    """The most that was allocated at once in a plain step, above its start."""
    for turn in range(2):  # the first makes what later ones have already
        model.zero_grad(set_to_none=True)
        gc.collect()
        if turn == 0:
            model(x).mean().backward()
    with torch_profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out = model(x)  # held while the backward pass runs, as people's loops and tl.profile do
        out.mean().backward()
    del out
    model.zero_grad(set_to_none=True)
    held, peak = 0, 0
    events = profiler.profiler.kineto_results.events()
    for _, size in sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"):
        held += size
        peak = max(peak, held)
    return peak


_LLAMA = """
import json, re, sys, time
import torch, transformers
import torcheer as tl
with torch.device("meta"):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig()).to(torch.bfloat16)
ids = torch.randint(0, 32000, (1, 2048))
start = time.perf_counter()
report = tl.profile(model, ids, backward=True, execution="fake")
seconds = time.perf_counter() - start
figures = report.totals.figures
# Not getrusage: its maximum counts what the process that started this one had.
rss_kib = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
json.dump({"seconds": seconds, "rss_mb": rss_kib * 1024 / 1e6,
           "params": report.rows[0].num_params, "flops_forward": figures.flops_forward,
           "flops_backward": figures.flops_backward, "peak_bytes": report.totals.peak_bytes,
           "held_bytes": report.totals.held_bytes, "partial": report.is_partial}, sys.stdout)
"""


def llama_7b(rounds: int) -> Iterator[Figure]:
    """Llama-7B from its config on meta, forward and backward, 2,048 tokens, without computing anything."""
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    runs = []
    for _ in range(max(1, rounds // 4)):
        done = subprocess.run(
            [sys.executable, "-c", _LLAMA], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        runs.append(json.loads(done.stdout))
    best = min(runs, key=lambda run: run["seconds"])
    yield Figure(9, "fake forward and backward", "Llama-7B", best["seconds"], high=4.0, unit="s", details=best)
    most = max(run["rss_mb"] for run in runs)
    yield Figure(9, "memory of the whole process", "Llama-7B", most, high=600.0, unit="MB", details=best)
    yield within(9, "forward FLOPs ÷ truth", "Llama-7B", best["flops_forward"] / LLAMA_FLOPS_FORWARD, 0.0001)
    yield within(9, "backward FLOPs ÷ truth", "Llama-7B", best["flops_backward"] / (2 * LLAMA_FLOPS_FORWARD), 0.0001)
