"""The columns of a profile: one place for their names, titles, units, and what they mean and how they are measured.

The table in the terminal, the page and the reference in docs/reference/profile.md all come from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torcheer.profiling.report import Report, Row, RowMemory


class Column(NamedTuple):
    """One column."""

    name: str  # as in Report.table(columns=…) and in the rows of the view
    title: str
    unit: str  # "ns" | "bytes" | "FLOP" | "FLOP/s" | "FLOP/byte" | "count" | "ratio" | "shape" | "text"
    needs: str  # what has to be measured for it: "time", "memory", "flops", "backward+time", …; "": nothing
    is_shown: bool  # without being asked for
    meaning: str
    method: str
    value: Callable[[Report, Row], Any]


def _memory(read: Callable[[RowMemory], int | None]) -> Callable[[Report, Row], int | None]:
    return lambda _report, row: None if row.memory is None else read(row.memory)


def _shape(report: Report, row: Row) -> Any:
    return [list(shape) for shape, _ in report.calls[row.calls[0]].outputs] if row.calls else None


def _share(report: Report, row: Row) -> float | None:
    whole, mine = report.totals.figures.time_ns, row.total.time_ns
    return mine / whole if whole and mine is not None else None


_HOOKS = (
    "median over the repeats of the time between a module's entry and return, in runs without the ATen level; the sum "
    "is that of plain runs"
)
_NODES = "median over the repeats of the times of the autograd nodes made in it, from hooks on the nodes"
_FORMULAS = "formulas of shapes, per ATen op; a multiply-add is two"
_STORAGES = "from the storages that ATen ops made and gave back, in order"

COLUMNS = (
    Column("type", "type", "text", "", True, "class of the module", "the model", lambda _, row: row.type_name),
    Column("calls", "calls", "count", "", False, "how often it was called at this place", "counted",
           lambda _, row: len(row.calls)),
    Column("output", "output", "shape", "run", True, "shapes of what its first call returned", "the tensors", _shape),
    Column("params", "params", "count", "", True, "numbers in its params and its children's, each param once",
           "the model", lambda _, row: row.num_params),
    Column("trainable", "trainable", "count", "", False, "of these, in params that require grad", "the model",
           lambda _, row: row.num_trainable),
    Column("params_bytes", "param size", "bytes", "", False, "bytes of its params, by their dtypes", "the model",
           lambda _, row: row.params_bytes),
    Column("gradient_bytes", "gradients", "bytes", "backward", False, "bytes of the gradients its params were given",
           "hooks where gradients are added", lambda _, row: row.gradient_bytes),
    Column("forward", "forward", "ns", "time", True, "time of its forward, its children's included", _HOOKS,
           lambda _, row: row.total.forward_ns),
    Column("own_forward", "own fwd", "ns", "time", False, "the same without its children", _HOOKS,
           lambda _, row: row.own.forward_ns),
    Column("backward", "backward", "ns", "backward+time", True,
           "time of the backward pass spent on it, its children included", _NODES,
           lambda _, row: row.total.backward_ns),
    Column("own_backward", "own bwd", "ns", "backward+time", False, "the same without its children", _NODES,
           lambda _, row: row.own.backward_ns),
    Column("recompute", "recompute", "ns", "backward+time", False,
           "time in the backward pass to compute it again (checkpointing)", "as forward, during a node",
           lambda _, row: row.total.recompute_ns),
    Column("share", "time", "ratio", "time", True, "forward and backward as a share of the whole model's", "from these",
           _share),
    Column("flops", "FLOPs fwd", "FLOP", "flops", True, "floating-point operations of its forward", _FORMULAS,
           lambda _, row: row.total.flops_forward),
    Column("macs", "MACs", "count", "flops", False, "multiply-adds of its forward: half the FLOPs", _FORMULAS,
           lambda _, row: row.total.macs_forward),
    Column("flops_backward", "FLOPs bwd", "FLOP", "backward+flops", True,
           "what the mathematics of its backward asks for", _FORMULAS, lambda _, row: row.total.flops_backward),
    Column("hardware_flops_backward", "FLOPs bwd hw", "FLOP", "backward+flops", False,
           "what kernels do in its backward: with what they compute again inside", _FORMULAS,
           lambda _, row: row.total.hardware_flops_backward),
    Column("flops_recompute", "FLOPs again", "FLOP", "backward+flops", False,
           "operations of what the backward pass computed again (checkpointing)", _FORMULAS,
           lambda _, row: row.total.flops_recompute),
    Column("rate", "FLOP/s fwd", "FLOP/s", "time+flops", False, "FLOPs of its forward by the time it took",
           "from these", lambda _, row: row.total.flops_per_second),
    Column("rate_backward", "FLOP/s bwd", "FLOP/s", "backward+time+flops", False,
           "FLOPs that kernels did in its backward by the time it took", "from these",
           lambda _, row: row.total.flops_per_second_backward),
    Column("intensity", "intensity", "FLOP/byte", "flops", False, "FLOPs of its forward by the bytes its ops moved",
           "bytes of the tensors that ATen ops read and wrote; views move none", lambda _, row: row.total.intensity),
    Column("needed", "needed", "bytes", "memory", True, "the most a call held at once above what was held before",
           _STORAGES, _memory(lambda memory: memory.needed)),
    Column("retained", "retained", "bytes", "memory", False, "what stayed when its calls ended", _STORAGES,
           _memory(lambda memory: memory.retained)),
    Column("transient", "transient", "bytes", "memory", False, "what was needed only during a call", _STORAGES,
           _memory(lambda memory: memory.transient)),
    Column("saved", "saved", "bytes", "backward+memory", True,
           "what its graph holds for the backward pass: storages, each once, without params and buffers",
           "read from the autograd nodes after the forward", _memory(lambda memory: memory.held)),
    Column("extra_forward", "extra fwd", "bytes", "memory", False, "what a call took beyond its outputs", _STORAGES,
           _memory(lambda memory: memory.extra_forward)),
    Column("extra_backward", "extra bwd", "bytes", "backward+memory", False,
           "what its nodes took beyond the gradients they left", _STORAGES,
           _memory(lambda memory: memory.extra_backward)),
    Column("ops", "ops", "count", "", False, "function-level ops in it", "counted", lambda _, row: row.total.num_ops),
    Column("aten", "ATen ops", "count", "flops", False, "ATen ops of its forward", "counted",
           lambda _, row: row.total.num_aten),
)  # fmt: skip


def is_measured(report: Report, column: Column) -> bool:
    """Was what a column needs measured in this run?"""
    have = {*report.record.run.measured, *(("backward",) if report.record.run.num_backward else ())}
    if report.record.run.execution == "fake":
        have.discard("time")
    if not report.record.run.measured:  # a recording that was not made for a profile has times and ATen ops
        have.update(("time", "flops"))
    if report.record.run.measured != ("structure",):
        have.add("run")
    return all(need in have for need in column.needs.split("+") if need)
