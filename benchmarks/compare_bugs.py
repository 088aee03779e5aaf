"""Planted bugs: how often a comparison names the right op first, and how often it alarms about equal models.

python benchmarks/compare_bugs.py [--pairs bert,gpt] [--seeds 4] [--verbose] [--held-out]

The second model of each pair in ``pairs/`` is written differently from scratch. Which lines a bug changes was marked in
its source before the comparison was run on it.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import torcheer as tl

sys.path.insert(0, str(Path(__file__).parent))
from pairs.case import Label, marked_lines

DEVELOPED = ("bert", "gpt", "llama", "resnet", "vit", "seq2seq")
HELD_OUT = ("t5", "convnext", "unet", "mixer", "ssm")


def places_of(one: Any) -> list[Any]:
    return [place for place in (one.b, one.a) if place is not None]


def is_right(one: Any, label: Label, lines: set[tuple[str, int]]) -> bool:
    """Whether one named place is what the label says."""
    if label.tensor:
        return bool(one.b and any(label.tensor in name for name in one.b.params)) or label.tensor in one.headline
    if one.b is not None and any((line.file, line.line) in lines for line in one.b.stack):
        return True
    return (
        bool(label.missing_in_a)
        and one.a is not None
        and one.kind == "missing"
        and one.a.aten in label.missing_in_a.split()
    )


def run(pair: Any, bug: str | None, seed: int, options: dict[str, Any]) -> tuple[str, str]:
    case = pair.make(bug, seed, **options)
    torch.manual_seed(seed)
    result = tl.compare(case.a, case.b, case.x, backward=True, **case.options)
    if bug is None:
        return ("right" if result.verdict == "equal" else "FALSE ALARM"), str(result.first_divergence or result.reasons)
    label = pair.BUGS[bug]
    lines = marked_lines(pair.make, label.marks)
    named = [one for one in (result.first_divergence, *result.candidates) if one is not None]
    hits = [place for place, one in enumerate(named) if is_right(one, label, lines)]
    if result.verdict != "diverged":
        return "NOT FOUND", result.verdict
    rank = "first" if hits[:1] == [0] else "top 3" if hits and hits[0] < 3 else "WRONG"
    return rank, "; ".join(one.headline for one in named[:3])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", default="")
    parser.add_argument("--bugs", default="")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    names = chosen.pairs.split(",") if chosen.pairs else (HELD_OUT if chosen.held_out else DEVELOPED)
    total: dict[str, int] = {}
    started = time.perf_counter()
    for name in names:
        pair = import_module(f"pairs.{name}")
        wanted = chosen.bugs.split(",") if chosen.bugs else [None, *pair.BUGS]
        has_attention = "attention" in inspect.signature(pair.make).parameters
        for bug in wanted:
            for options in [{"attention": "eager"}, {"attention": "sdpa"}] if has_attention else [{}]:
                for seed in range(chosen.seeds):
                    outcome, told = run(pair, bug, seed, options)
                    key = f"equal: {outcome}" if bug is None else f"bug: {outcome}"
                    total[key] = total.get(key, 0) + 1
                    if chosen.verbose or outcome not in ("right", "first"):
                        print(f"{name:9} {bug or 'equal':22} {'/'.join(options.values()):6} {seed} {outcome:12} {told}")
    print(f"\n{time.perf_counter() - started:.0f} s")
    for key, count in sorted(total.items()):
        print(f"{key:20} {count}")


if __name__ == "__main__":
    main()
