"""What the reader of a report must know: what is partial or unknown, and why."""

from __future__ import annotations

from torcheer.profiling.report import Report
from torcheer.profiling.scratch import Hidden
from torcheer.units import bytes_text, counted_text

# Kernels whose own memory, taken and given back within a call, is a large part of what a model takes.
SCRATCH = ("aten.mkldnn_rnn_layer_backward.",)


def notes_of(report: Report, is_timed: bool, hidden: Hidden | None = None) -> list[str]:
    """Sentences, most important first."""
    run = report.record.run
    notes = []
    if run.error is not None:
        notes.append(f"Partial: the run ended in {run.error}. What happened before it is shown.")
    if run.rank is not None and (run.world_size or 1) > 1:
        whole = " Params are counted whole, though it has a part of some." if report.record.parts else ""
        notes.append(f"This is rank {run.rank} of {run.world_size}: what this process computed and held.{whole}")
    if report.uncounted:
        functions = ", ".join(one.function for one in report.uncounted[:4]) + (", …" * (len(report.uncounted) > 4))
        calls = counted_text(sum(one.num_calls for one in report.uncounted), "call")
        notes.append(
            f"FLOPs are partial: {calls} of operators without a formula ({functions}) are not in them. "
            "Add one with tl.register_formula."
        )
    if "memory" in run.measured and any(op.function.startswith(SCRATCH) for op in report.record.aten):
        notes.append(
            "Memory is partial: the CPU's LSTM kernel takes memory of its own within its call, some 30 % of the peak, "
            "which is not seen."
        )
    if hidden is not None:
        notes.append(_hidden_text(report, hidden))
    if not is_timed and run.execution == "real" and (not run.measured or "time" in run.measured):
        notes.append("Times are of the recorded run and contain what recording costs.")
    if run.execution == "fake":
        notes.append("Nothing was computed (execution='fake'): memory is predicted, and there are no times.")
    if run.measured == ("structure",):
        notes.append("Nothing was run: give an input to see shapes and FLOPs.")
    elif not report.record.values:
        notes.append("Only NaN and Inf were looked for: there is no record of the other ops.")
    elif run.num_backward == 0 and run.grad_enabled and set(run.measured) != {"flops"}:
        notes.append("No backward pass was recorded: its columns are empty.")
    notes += [diagnostic.message for diagnostic in report.record.diagnostics]
    return notes


def _hidden_text(report: Report, hidden: Hidden) -> str:
    record = report.record
    op = record.aten[hidden.aten]
    address = record.modules[record.calls[op.call].module].address if op.owner is not None and record.calls else ""
    where = f" in {address}" if address else ""
    return (
        f"Memory is partial: the kernel of {op.function.rpartition('.')[0]}{where} may take "
        f"{bytes_text(hidden.scratch_bytes)} of its own within its call, which is not seen: the peak may be "
        f"{bytes_text(hidden.peak_bytes)}."
    )
