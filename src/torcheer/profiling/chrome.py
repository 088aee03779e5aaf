"""A trace in the Trace Event Format, for Perfetto and chrome://tracing.

The forward pass is laid out as it ran, by the start of each call; the backward pass, of which each module's time is
known but not when it came, as one row of modules in the order in which their nodes ran. Memory is a counter over the
ATen ops.
"""

from __future__ import annotations

from typing import Any

from torcheer.profiling.report import CallRow, Report

_FORWARD, _BACKWARD, _MEMORY = 1, 2, 3


def to_chrome_trace(report: Report) -> dict[str, Any]:
    """The report as trace events."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}
        for thread, name in ((_FORWARD, "forward"), (_BACKWARD, "backward"), (_MEMORY, "memory"))
    ]
    if report.calls:
        end = _lay_out(report, report.calls[0], 0.0, events)
        _backward(report, end, events)
    events += [
        {"ph": "C", "pid": 1, "tid": _MEMORY, "ts": place, "name": "memory held", "args": {"bytes": point.held_bytes}}
        for place, point in enumerate(report.timeline)
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"model": report.record.run.model}}


def _lay_out(report: Report, call: CallRow, start_us: float, events: list[dict[str, Any]]) -> float:
    """One call and what is in it, its own ops first where they ran before a call inside; returns its end."""
    record = report.record
    now = start_us
    inside = [other for other in report.calls if other.parent == call.call]
    ops = [report.ops[index] for index in call.ops]
    steps = sorted(
        [(record.calls[other.call].first_op, 1, other) for other in inside] + [(op.op, 0, op) for op in ops],
        key=lambda step: (step[0], -step[1]),
    )
    slot = len(events)
    events.append({})
    for _, _, step in steps:
        if isinstance(step, CallRow):
            now = _lay_out(report, step, now, events)
            continue
        spent = (step.figures.forward_ns or 0) / 1e3
        events.append(_span(step.label, "op", _FORWARD, now, spent, {"source": step.source}))
        now += spent
    spent = max(now - start_us, (call.total.forward_ns or 0) / 1e3)
    args = {"module": call.address, "flops": call.total.flops_forward}
    name = call.address or record.run.model
    events[slot] = _span(name, "module", _FORWARD, start_us, spent, args)
    return start_us + spent


def _backward(report: Report, start_us: float, events: list[dict[str, Any]]) -> None:
    now = start_us
    for call in reversed(report.calls):
        spent = ((call.own.backward_ns or 0) + (call.own.recompute_ns or 0)) / 1e3
        if spent:
            args = {"module": call.address, "flops": call.own.flops_backward}
            events.append(_span(call.address or report.record.run.model, "backward", _BACKWARD, now, spent, args))
            now += spent


def _span(name: str, category: str, thread: int, start: float, spent: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "pid": 1, "tid": thread, "name": name, "cat": category, "ts": round(start, 3),
        "dur": round(spent, 3), "args": args,
    }  # fmt: skip
