"""Does a model run slower after something has been recorded in the process? One trial, in a fresh process.

Times the MLP of 100 tiny operations, records it once with the tool named (or not at all), times the same
model again, and prints both minima as JSON. ``capture_cost.py`` runs several trials of each, in turns:
``python benchmarks/idle_tax.py nothing|torcheer|torchlens CALLS THREADS``.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import models
import torch


def fastest_ms(case: models.Case, num_calls: int) -> float:
    """The fastest of many plain calls."""
    gc.collect()
    model, x = case.model, case.x
    best = 10**12
    for _ in range(num_calls):
        start = time.perf_counter_ns()
        model(x)
        best = min(best, time.perf_counter_ns() - start)
    return best / 1e6


def record(tool: str, case: models.Case) -> None:
    """Record the model once. All tools are imported before the first timing."""
    if tool == "torcheer":
        import torcheer

        _ = torcheer.log_forward_pass(case.model, case.x, layers_to_save=None).record
    elif tool == "torchlens":
        import rival

        rival.trace(case.model, case.x)


def main(tool: str, num_calls: int, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    case = models.build(models.mlp)
    other = models.build(models.mlp)
    if tool == "torcheer":
        import torcheer

        _ = torcheer.log_forward_pass  # imports the capture engine
    elif tool == "torchlens":
        import rival  # noqa: F401
    with torch.no_grad():
        fastest_ms(other, num_calls // 4)
        before_ms = fastest_ms(case, num_calls)
        record(tool, case)
        after_ms = fastest_ms(case, num_calls)
    print(json.dumps({"before_ms": before_ms, "after_ms": after_ms}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
