"""Rows whose truth is known by hand: FLOPs of architectures, prices of spinning nodes, work of shared modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import torcheer as tl
from benchmarks.flops_nets import NETS, Net
from benchmarks.profile_figures import Figure, exactly, within
from benchmarks.profile_nets import FAMILIES, TRUTH, SpinningNet
from benchmarks.shared_nets import MM, SIZE, WORK


def forward_flops(_rounds: int) -> Iterator[Figure]:
    """Forward FLOPs of 22 models and an embedding."""
    for how in ("grad", "no_grad", "inference"):
        ratios: dict[str, float] = {}
        for net in _nets():
            with torch.inference_mode(how == "inference"), torch.set_grad_enabled(how == "grad"):
                figures = tl.profile(net.model, *net.args, measure="flops").totals.figures
            ratios[net.name] = _ratio(figures.flops_forward, 2 * net.macs)
        yield _worst(1, "forward FLOPs ÷ truth", f"{len(ratios)} models, {how}", ratios)


def backward_flops(_rounds: int) -> Iterator[Figure]:
    """Backward FLOPs of the same models."""
    ratios, again = {}, {}
    for net in _nets():
        if net.macs == 0:
            continue
        figures = tl.profile(net.model, *net.args, measure="flops", backward=True).totals.figures
        truth = 2 * (2 * net.macs - net.first_macs)
        ratios[net.name] = _ratio(figures.flops_backward, truth)
        extra = (figures.hardware_flops_backward - figures.flops_backward) / truth
        if extra:
            again[net.name] = round(extra, 4)
    figure = _worst(2, "backward FLOPs ÷ truth", f"{len(ratios)} models", ratios)
    figure.details["computed_again"] = again
    figure.note = f"computed again inside kernels, shown apart: {len(again)} models, up to {max(again.values()):.1%}"
    yield figure


def _nets() -> Iterator[Net]:
    for make in NETS:
        torch.manual_seed(0)
        yield make()


def _ratio(found: int, truth: int) -> float:
    return found / truth if truth else 1.0 + found


def _worst(row: int, what: str, case: str, ratios: dict[str, float]) -> Figure:
    worst = max(ratios, key=lambda name: abs(ratios[name] - 1))
    note = "" if ratios[worst] == 1.0 else f"worst: {worst}"
    return exactly(row, what, case, ratios[worst], note=note, details={"ratios": ratios})


def spinning(rounds: int) -> Iterator[Figure]:
    """Backward time of nodes that spin for a known time."""
    torch.manual_seed(0)
    options = {"measure": "time", "repeats": max(5, rounds), "clock": "thread"}
    report = tl.profile(SpinningNet(), torch.rand(4), backward=True, **options)
    for address, (forward_ms, backward_ms) in TRUTH.items():
        share = 0.05 if address else 0.03
        total, case = report[address].total, address or "the net"
        yield within(3, "backward time ÷ truth", case, total.backward_ns / 1e6 / backward_ms, share)
        note = "without a bar: the modules multiply too, which takes some 0.05 ms each"
        yield Figure(3, "forward time ÷ spinning", case, total.forward_ns / 1e6 / forward_ms, note=note)


def families(_rounds: int) -> Iterator[Figure]:
    """Attribution of the backward pass over 19 families of vision nets, written as torchvision writes them."""
    crashes, lost, whole = [], 0, 0
    for name, make in FAMILIES.items():
        torch.manual_seed(0)
        try:
            report = tl.profile(make(), torch.rand(2, 3, 16, 16), backward=True, measure=("time", "flops"), repeats=1)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what this row counts
            crashes.append(f"{name}: {type(error).__name__}")
            continue
        lost += report.totals.unattributed_ns
        whole += report.totals.figures.backward_ns + report.totals.unattributed_ns
    yield exactly(4, "crashes", f"{len(FAMILIES)} families", len(crashes), 0, unit="", note=", ".join(crashes))
    yield exactly(4, "backward time without a module", f"{len(FAMILIES)} families", 100 * lost / whole, 0, unit="%")


def attribution(_rounds: int) -> Iterator[Figure]:
    """Work of two towers, a shared module, a checkpoint, skip connections."""
    for name, (model, truth) in WORK.items():
        torch.manual_seed(0)
        report = tl.profile(model, torch.randn(4, SIZE), backward=True, measure="flops")
        found: dict[str, tuple[int, ...]] = {}
        for address in truth:
            total = report[address].total
            found[address] = (total.flops_forward, total.flops_backward, total.flops_recompute)
        wrong = sum(found[address] != tuple(MM * one for one in truth[address]) for address in truth)
        details: dict[str, Any] = {"found": found, "truth": truth, "unit": MM}
        yield exactly(
            5, "modules with wrong FLOPs", f"{name}: {len(truth)} modules", wrong, 0, unit="", details=details
        )
