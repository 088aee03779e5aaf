"""How often ``tl.compare`` names the right op of a bug planted in pairs of networks kept apart from its development.

    python benchmarks/heldout.py [--pairs t5,unet] [--seeds 2] [--verbose]
    python benchmarks/heldout.py --apart [--pairs gat,moe] [--seeds 2] [--json PATH]  # fifteen further families

Prints per bug the rank of the first place that a report names rightly: a line of the bug's label is in the stack of the
op it names in B, or is the innermost line of the op it names in A. Equal pairs are compared both ways round.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import torcheer as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.pairs_apart import case, score
from benchmarks.pairs_heldout import pairs


def is_right(one: Any, lines: set[int], file: str) -> bool:
    in_b = one.b is not None and any(line.file == file and line.line in lines for line in one.b.stack)
    frame = None if one.a is None else one.a.frame
    return in_b or (frame is not None and frame.file == file and frame.line in lines)


def rank_of(name: str, bug: str, seed: int) -> tuple[str, str]:
    module = pairs.pair(name)
    torch.manual_seed(seed)
    a, b = pairs.make(name, bug, seed)
    spoiled = getattr(module, "SPOILED", {}).get(bug)
    options = {"backward": True} if spoiled else {}
    result = tl.compare(a, b, module.inputs(), **options)
    named = [one for one in (result.first_divergence, *result.candidates) if one is not None]
    said = "; ".join(one.headline for one in named[:3]) or "; ".join(result.reasons)
    if result.verdict != "diverged":
        return result.verdict, said
    if spoiled:
        text = f"{named[0].headline} {named[0].b and named[0].b.params} {named[0].a and named[0].a.params}"
        return ("1" if any(param in text for param in spoiled) else "wrong"), said
    lines, file = pairs.labels(name)[bug], str(module.__file__)
    hits = [place for place, one in enumerate(named, 1) if is_right(one, lines, file)]
    return (str(hits[0]) if hits else "wrong"), said


def equal_verdicts(name: str, seed: int) -> list[tuple[str, str]]:
    a, b = pairs.make(name, "", seed)
    found = []
    for way, models in (("a, b", (a, b)), ("b, a", (b, a))):
        result = tl.compare(*models, pairs.pair(name).inputs())
        said = str(result.first_divergence or "; ".join(result.reasons))
        found.append((result.verdict, f"{way}: {said}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--apart", action="store_true", help="the families in pairs_apart")
    parser.add_argument("--later", action="store_true", help="the five of them that were written later")
    parser.add_argument("--json", help="with --apart: where to write every outcome")
    chosen = parser.parse_args()
    if chosen.apart or chosen.later:
        names = case.LATER if chosen.later else case.NAMES
        score.run(chosen.pairs.split(",") if chosen.pairs else names, chosen.seeds, chosen.json)
        return
    counts: dict[str, int] = {}
    num_equal, alarms, started = 0, 0, time.perf_counter()
    for name in chosen.pairs.split(",") if chosen.pairs else pairs.NAMES:
        for seed in range(1, chosen.seeds + 1):
            for verdict, said in attempt(lambda name=name, seed=seed: equal_verdicts(name, seed), 2):
                num_equal += 1
                alarms += verdict != "equal"
                told = said if verdict != "equal" or chosen.verbose else ""
                print(f"{name:12s} {'(equal)':42s} {verdict:12s} {told}")
            for bug in pairs.pair(name).BUGS:
                [(rank, said)] = attempt(lambda name=name, bug=bug, seed=seed: [rank_of(name, bug, seed)], 1)
                counts[rank] = counts.get(rank, 0) + 1
                print(f"{name:12s} {bug:42s} {rank:12s} {said if rank != '1' or chosen.verbose else ''}", flush=True)
    total = sum(counts.values())
    top3 = sum(counts.get(str(rank), 0) for rank in (1, 2, 3))
    print(f"\nequal pairs: {alarms} of {num_equal} not called equal")
    print(f"bugs: {counts.get('1', 0)} of {total} first, {top3} in the top 3; {dict(sorted(counts.items()))}")
    print(f"{time.perf_counter() - started:.0f} s")


def attempt(run: Any, times: int) -> list[tuple[str, str]]:
    """A crash counts as a failure of the case, and the rest goes on."""
    try:
        return list(run())
    except Exception as error:  # noqa: BLE001
        return [("raised", f"{type(error).__name__}: {error}")] * times


if __name__ == "__main__":
    main()
