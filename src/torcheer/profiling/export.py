"""A report as plain data.

Every number of the JSON is bytes, nanoseconds, FLOPs or a count; null is unknown. ``metrics`` says of each whether it
was measured, predicted, computed by a formula, or is partial, and how.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torcheer import __version__
from torcheer.profiling.report import CallRow, Figures, Report, Row

SCHEMA_VERSION = 1


def to_dict(report: Report) -> dict[str, Any]:
    """Everything in a report."""
    record = report.record
    return {
        "format": "torcheer-profile",
        "schema_version": SCHEMA_VERSION,
        "torcheer": __version__,
        "run": {name: value for name, value in asdict(record.run).items() if name != "output_data"},
        "metrics": metrics(report),
        "totals": {**asdict(report.totals), "figures": _figures(report.totals.figures)},
        "coverage": {
            "aten_calls": len(record.aten),
            "uncounted": [asdict(one) for one in report.uncounted],
            "flops_share": report.totals.flops_share,
        },
        "modules": [_row(row) for row in report.rows],
        "module_calls": [_call(call) for call in report.calls],
        "ops": [{**asdict(op), "figures": _figures(op.figures)} for op in report.ops],
        "findings": [asdict(finding) for finding in report.findings],
        "memory_timeline": [asdict(point) for point in report.timeline],
        "diagnostics": [diagnostic._asdict() for diagnostic in record.diagnostics],
        "notes": list(report.notes),
    }


def metrics(report: Report) -> dict[str, dict[str, Any]]:
    """Of each kind of figure: how it came to be, and whether something is missing."""
    run = report.record.run
    is_timed = bool(report.record.timings)
    is_fake = run.execution == "fake"
    unknown = {"status": "unavailable", "method": "not measured in this run"}
    time = {
        "status": "measured",
        "unit": "ns",
        "clock": run.clock or "wall",
        "n": run.num_repeats or 1,
        "method": "runs without the ATen level, recording's cost subtracted, forward brought to plain runs"
        if run.num_repeats
        else "the recorded run, recording's cost subtracted"
        if is_timed
        else "the recorded run, recording's cost included",
    }
    flops = {"status": "partial" if report.is_partial else "formula", "unit": "FLOP", "method": "formulas of shapes"}
    memory = {
        "status": "predicted" if is_fake else "measured",
        "unit": "bytes",
        "method": "storages made and given back by ATen ops; what a kernel takes and gives back within is not seen",
    }
    numerics = {"status": "measured", "unit": "bool", "method": "sums of what every ATen op returned"}
    have = set(run.measured) or {"time", "flops"}
    return {
        "time": time if "time" in have and not is_fake else unknown,
        "flops": flops if "flops" in have else unknown,
        "memory": memory if "memory" in have else unknown,
        "numerics": numerics if "nan" in have else unknown,
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        **asdict(figures),
        "macs_forward": figures.macs_forward,
        "intensity": figures.intensity,
        "achieved_flops_forward": figures.flops_per_second,
        "achieved_flops_backward": figures.flops_per_second_backward,
    }


def _row(row: Row) -> dict[str, Any]:
    return {**asdict(row), "own": _figures(row.own), "total": _figures(row.total)}


def _call(call: CallRow) -> dict[str, Any]:
    data = {**asdict(call), "own": _figures(call.own), "total": _figures(call.total)}
    if call.memory is not None:
        memory = call.memory
        data["memory"] = {
            **asdict(memory), "retained": memory.retained, "transient": memory.transient,
            "extra_forward": memory.extra_forward,
        }  # fmt: skip
    return data
