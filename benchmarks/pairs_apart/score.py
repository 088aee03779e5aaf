"""Compares every pair, equal and with each bug, and prints what was found: the rank of the first right place by bug."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import torcheer as tl

from ..pairs_heldout.pairs import tensors
from .case import edited, is_right, make, pair, tagged

STEPS = 3


@dataclass
class Outcome:
    pair: str
    bug: str  # "" for equal models
    kind: str
    seed: int
    rank: str  # "1", "2", … or why there is none; "equal" is right where there is no bug
    said: list[str]
    truth: str = ""


def squares(output: Any) -> torch.Tensor:
    return torch.stack([tensor.square().mean() for tensor in tensors(output) if tensor.is_floating_point()]).sum()


def training(name: str, bug: str, a: Any, b: Any) -> dict[str, Any]:
    module = pair(name)
    told = module.BUGS[bug] if bug else None
    loss = getattr(module, "loss", squares)
    optimizer = getattr(module, "optimizer", lambda model: torch.optim.Adam(model.parameters(), 1e-2))
    own = (told.optimizer if told else None) or optimizer
    return {"steps": STEPS, "loss": (loss, (told.loss if told else None) or loss), "optimizers": (optimizer(a), own(b))}


def equal_ones(name: str, seed: int) -> Iterator[Outcome]:
    """Equal models: forward both ways round, with gradients, and trained for some steps."""
    module = pair(name)
    for way in ("forward", "forward, B first", "gradients", "training"):
        if way == "training" and not getattr(module, "TRAINS", True):
            continue
        a, b = make(name, "", seed)
        options = {"backward": True} if way == "gradients" else {}
        if way == "training":
            options = training(name, "", a, b)
        try:
            result = tl.compare(*((b, a) if "B first" in way else (a, b)), module.inputs(), **options)
            rank, said = result.verdict, [str(result.first_divergence or "; ".join(result.reasons))]
        except Exception as error:  # noqa: BLE001 - a crash is a failure of this case alone
            rank, said = "raised", [f"{type(error).__name__}: {error}"]
        yield Outcome(name, "", way, seed, rank, said if rank != "equal" else [])


def with_bug(name: str, bug: str, seed: int) -> Outcome:
    module, told = pair(name), pair(name).BUGS[bug]
    changed, lines = edited(name, bug)
    tags = sorted(tagged(changed, told.at)) if told.at else []
    truth = f"{told.old!r} → {told.new!r}" if told.old else "other training"
    if told.tensors:
        truth += f", first seen in {' or '.join(told.tensors) or 'any weight'}"
    if told.at:
        truth += f"; also {told.at} (lines {tags})"
    truth += f"; lines {sorted(lines)}" if lines else ""
    a, b = make(name, bug, seed)
    options: dict[str, Any] = {"backward": True} if told.tensors and not told.is_trained else {}
    if told.is_trained:
        options = training(name, bug, a, b)
    try:
        result = tl.compare(a, b, module.inputs(), **options)
    except Exception as error:  # noqa: BLE001 - as above
        return Outcome(name, bug, told.kind, seed, "raised", [f"{type(error).__name__}: {error}"], truth)
    named = [one for one in (result.first_divergence, *result.candidates) if one is not None]
    said = [str(one.headline) for one in named[:4]] or list(result.reasons)
    if result.verdict != "diverged":
        return Outcome(name, bug, told.kind, seed, result.verdict, said, truth)
    hits = [place for place, one in enumerate(named, 1) if is_right(one, name, bug)]
    return Outcome(name, bug, told.kind, seed, str(hits[0]) if hits else "wrong", said, truth)


def outcomes(names: Sequence[str], seeds: int) -> Iterator[Outcome]:
    for name in names:
        for seed in range(1, seeds + 1):
            yield from equal_ones(name, seed)
            for bug in pair(name).BUGS:
                yield with_bug(name, bug, seed)


def run(names: Sequence[str], seeds: int, path: str | None = None) -> None:
    found: list[Outcome] = []
    started = time.perf_counter()
    for one in outcomes(names, seeds):
        found.append(one)
        told = "" if one.rank in ("1", "equal") else "; ".join(one.said[:3])
        print(f"{one.pair:10} {one.bug or f'(equal: {one.kind})':45} {one.rank:13} {told}", flush=True)
        if path:
            Path(path).write_text(json.dumps([asdict(each) for each in found], indent=1), encoding="utf-8")
    report(found)
    print(f"{time.perf_counter() - started:.0f} s")


def report(found: list[Outcome]) -> None:
    equal, bugs = [one for one in found if not one.bug], [one for one in found if one.bug]
    print(f"\nequal pairs: {sum(one.rank != 'equal' for one in equal)} of {len(equal)} not called equal")
    for title, some in (
        ("forward", lambda one: not training_only(one)),
        ("gradients or training alone", training_only),
    ):
        chosen = [one for one in bugs if some(one)]
        ranks = Counter(one.rank for one in chosen)
        top = sum(ranks[rank] for rank in "123")
        share = f"{ranks['1'] / max(1, len(chosen)):.1%}, {top / max(1, len(chosen)):.1%}"
        print(
            f"{title}: {ranks['1']} of {len(chosen)} first, {top} in the top 3 ({share}); {dict(sorted(ranks.items()))}"
        )
    kinds: dict[str, list[str]] = {}
    for one in bugs:
        kinds.setdefault(one.kind, []).append(one.rank)
    print(f"{len(kinds)} kinds: " + ", ".join(f"{kind} {r.count('1')}/{len(r)}" for kind, r in sorted(kinds.items())))


def training_only(one: Outcome) -> bool:
    told = pair(one.pair).BUGS[one.bug]
    return bool(told.tensors) or told.is_trained
