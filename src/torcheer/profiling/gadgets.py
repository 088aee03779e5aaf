"""The JSON of Inspector Gadgets: ``{model: {"info": …, "children": {block: {"info": …, "children": …}}}}``.

Same names and nesting as its README; memory in megabytes (10⁶ bytes), latencies in milliseconds. What Inspector
Gadgets estimated is measured here: gradients by their own bytes, every size by its dtype, and a parent's latency is
its own work and its children's, once. A module that was not called has empty shapes and zero latencies.
"""

from __future__ import annotations

from typing import Any

from torcheer.profiling.report import Report, Row

MEGA = 1e6
MILLI_NS = 1e6


def to_inspector_gadgets(report: Report) -> dict[str, Any]:
    """The report in that form: one entry, the model."""
    if not report.rows:
        return {}
    return {report.record.run.model: _node(report, report.rows[0])}


def _node(report: Report, row: Row) -> dict[str, Any]:
    children: dict[str, Any] = {}
    for index in row.children:
        child = report.rows[index]
        name = child.name
        while name in children:
            name = f"{name}'"
        children[name] = _node(report, child)
    return {"info": _info(report, row), "children": children}


def _info(report: Report, row: Row) -> dict[str, Any]:
    calls = [report.calls[index] for index in row.calls]
    first = calls[0] if calls else None
    inputs = list(first.inputs) if first is not None else []
    outputs = list(first.outputs) if first is not None else []
    gradient_bytes = row.gradient_bytes or 0
    input_bytes = sum(size or 0 for _, size in inputs)
    memory = row.memory
    return {
        "type": row.type_name,
        "input_shapes": [list(shape) for shape, _ in inputs],
        "output_shapes": [list(shape) for shape, _ in outputs],
        "grad_in_shape": [list(shape) for shape, _ in first.input_gradients] if first is not None else [],
        "grad_out_shape": [list(shape) for shape, _ in first.output_gradients] if first is not None else [],
        "num_parameters": row.num_params,
        "num_learnable_parameters": row.num_trainable,
        "param_memory_usage": row.params_bytes / MEGA,
        "gradient_memory_usage": gradient_bytes / MEGA,
        "input_memory_usage": [(size or 0) / MEGA for _, size in inputs],
        "output_memory_usage": [(size or 0) / MEGA for _, size in outputs],
        "effective_additional_memory_fwd": (memory.extra_forward if memory is not None else 0) / MEGA,
        "effective_additional_memory_bwd": ((memory.extra_backward or 0) if memory is not None else 0) / MEGA,
        "forward_nan": any(call.is_finite is False for call in calls),
        "grad_in_nan": any(call.input_gradients_finite is False for call in calls),
        "grad_out_nan": any(call.output_gradients_finite is False for call in calls),
        "total_memory": (row.params_bytes + gradient_bytes + input_bytes) / MEGA,
        "forward_latency": (row.total.forward_ns or 0) / MILLI_NS,
        "backward_latency": ((row.total.backward_ns or 0) + (row.total.recompute_ns or 0)) / MILLI_NS,
    }
