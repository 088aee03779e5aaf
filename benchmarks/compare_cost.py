"""What a comparison costs: two BERT-base models against the two plain forward passes.

python benchmarks/compare_cost.py [--layers 12] [--repeats 3]

Equal models, and models of which one has another epsilon in the layer norms of its sixth layer; both in eval mode.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import BertConfig, BertModel

import torcheer as tl


def timed(run: Callable[[], object], repeats: int) -> float:
    """Median seconds."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measure(
    title: str, given: tuple[torch.nn.Module, torch.nn.Module, torch.Tensor], verdict: str, repeats: int
) -> None:
    a, b, ids = given
    a(ids), b(ids)
    plain = timed(lambda: (a(ids), b(ids)), repeats)
    results: list[tl.Comparison] = []
    cost = timed(lambda: results.append(tl.compare(a, b, ids)), repeats)
    assert results[0].verdict == verdict, results[0]
    print(f"{title} two forwards {plain:.2f} s, compare {cost:.2f} s: {cost / plain:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    ids = torch.randint(0, 30000, (2, 128))
    for attention in ("eager", "sdpa"):
        config = BertConfig(num_hidden_layers=chosen.layers, attn_implementation=attention)
        a, b = BertModel(config).eval(), BertModel(config).eval()
        b.load_state_dict(a.state_dict())
        for kind in ("equal", "diverged"):
            if kind == "diverged":
                b.encoder.layer[chosen.layers // 2].output.LayerNorm.eps = 1e-2
            measure(f"{attention:6} {kind:9}", (a, b, ids), kind, chosen.repeats)


if __name__ == "__main__":
    main()
