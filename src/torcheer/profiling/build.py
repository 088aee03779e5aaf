"""Record → Report. Nothing here runs a model."""

from __future__ import annotations

from collections.abc import Iterator

from torcheer.profiling.flops import Call, Flops, count, inside_of_formulas
from torcheer.profiling.memory import Memory
from torcheer.profiling.nonfinite import find, source_of
from torcheer.profiling.notes import notes_of
from torcheer.profiling.report import CallRow, Figures, OpRow, Report, Row, RowMemory, Totals, Uncounted
from torcheer.profiling.scratch import hidden_peak
from torcheer.profiling.times import Times
from torcheer.record.model import Gradient, Item, ModuleCall, Op, Record, Shape, refs_in

Tensors = tuple[tuple[Shape, "int | None"], ...]


def build(record: Record) -> Report:
    """The profile of a recorded run."""
    return Builder(record).report()


class Builder:
    """Makes one report."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.times = Times(record)
        self.memory = Memory(record)
        self.rows: list[Row] = []
        self.calls: list[CallRow] = []
        self.ops: list[OpRow] = []
        self.uncounted: dict[str, Uncounted] = {}
        self.outside = Figures()  # ops that belong to no call: of the loss, of the optimizer
        self.moved_bytes = [0, 0]  # by ATen ops whose FLOPs are known, and by all
        self._op_rows: dict[int, OpRow] = {}
        self._places: dict[tuple[int | None, int], int] = {}  # (row above, module) → row
        self._gradients = {row.value: row for row in record.gradients if row.value is not None}
        self._param_gradients = {row.param: row.size_bytes for row in record.gradients if row.param is not None}
        self._bad_values = self._values_not_finite()
        self._parts = {part.value: part.shape for part in record.parts if part.value is not None}
        self._read = self._values_read()
        self._inside = set(inside_of_formulas(record))

    def report(self) -> Report:
        record = self.record
        for call in record.calls:
            self._add_call(call)
        self._add_uncalled()
        for op in record.ops:
            self._add_op(op)
        for op in record.aten:
            self._add_aten(op)
        self._sum_calls()
        self._sum_rows()
        self._count_params()
        findings = find(record) if "nan" in record.run.measured else []
        report = Report(
            record, self.rows, self.calls, self.ops, self._totals(), sorted(self.uncounted.values(), key=_most),
            findings,
        )  # fmt: skip
        if self.memory.is_measured:
            report.timeline = self.memory.timeline(lambda call: self.calls[call].row)
            report.memory_before = self.memory.before()
        hidden = hidden_peak(record, self.memory.held) if self.memory.is_measured else None
        report.notes = notes_of(report, self.times.is_timed, hidden)
        return report

    # -- the tree ------------------------------------------------------------------------------------

    def _add_call(self, call: ModuleCall) -> None:
        above = self.calls[call.parent].row if call.parent is not None else None
        row = self._row(above, call.module)
        self.rows[row].calls.append(call.index)
        gradients_in, gradients_out = self._gradients_of(call.inputs), self._gradients_of(call.outputs)
        checked = "nan" in self.record.run.measured
        times = self.times
        own = Figures(
            forward_ns=times.get("call", call.index, "forward"),
            backward_ns=times.backward("call", call.index),
            recompute_ns=times.get("call", call.index, "recompute"),
        )
        self.calls.append(
            CallRow(
                call.index, self.record.modules[call.module].address, call.call_index, call.parent, row, own, Figures(),
                self.memory.of_call(call.index) if self.memory.is_measured else None,
                self._tensors(call.inputs), self._tensors(call.outputs),
                tuple((one.shape, one.size_bytes) for one in gradients_in),
                tuple((one.shape, one.size_bytes) for one in gradients_out),
                not any(item.value in self._bad_values for item in call.outputs) if checked else None,
                all(one.is_finite is not False for one in gradients_in) if checked else None,
                all(one.is_finite is not False for one in gradients_out) if checked else None,
                call.error,
            )
        )  # fmt: skip

    def _row(self, above: int | None, module: int) -> int:
        """The row of a module below a row; containers that are never called themselves get rows of their own."""
        place = self._places.get((above, module))
        if place is not None:
            return place
        modules = self.record.modules
        holder = modules[module].parent
        if above is not None and holder is not None and holder != self.rows[above].module:
            ancestors = list(self._ancestors(module))
            if self.rows[above].module in ancestors:
                above = self._row(above, holder)
        elif above is None and module != 0 and modules[module].parent is not None:
            above = self._row(None, holder if holder is not None else 0)
        place = self._places.get((above, module))
        if place is None:
            place = self._places[above, module] = self._new_row(above, module)
        return place

    def _new_row(self, above: int | None, module: int) -> int:
        data = self.record.modules[module]
        prefix = self.rows[above].address if above is not None else ""
        name = data.address[len(prefix) + 1 :] if prefix and data.address.startswith(f"{prefix}.") else data.address
        depth = 0 if above is None else self.rows[above].depth + 1
        row = Row(len(self.rows), data.address, name or data.type_name, data.type_name, module, above, depth)
        row.is_repeat = any(earlier.module == module for earlier in self.rows)
        self.rows.append(row)
        if above is not None:
            self.rows[above].children.append(row.index)
        return row.index

    def _ancestors(self, module: int) -> Iterator[int]:
        parent = self.record.modules[module].parent
        while parent is not None:
            yield parent
            parent = self.record.modules[parent].parent

    def _add_uncalled(self) -> None:
        """Modules that were not called, below the row of what holds them."""
        seen = {row.module: row.index for row in reversed(self.rows)}
        for index, module in enumerate(self.record.modules):
            if index not in seen:
                above = seen.get(module.parent) if module.parent is not None else None
                seen[index] = self._row(above, index)

    # -- figures -------------------------------------------------------------------------------------

    def _add_op(self, op: Op) -> None:
        if op.kind != "op" or op.owner is not None:
            return
        record, times = self.record, self.times
        figures = Figures(
            forward_ns=times.get("op", op.index, "forward"), backward_ns=times.backward("op", op.index), num_ops=1
        )
        label = record.layers[op.layer].label if 0 <= op.layer < len(record.layers) else op.name
        shapes = tuple(record.values[item.value].shape for item in op.outputs)
        row = OpRow(op.index, f"{label}:{op.pass_index}", op.name, source_of(record, op), shapes, figures)
        self.ops.append(row)
        self._op_rows[op.index] = row
        if self.calls:
            self.calls[op.call].ops.append(len(self.ops) - 1)
            self.calls[op.call].own.num_ops += 1

    def _add_aten(self, op: Op) -> None:
        call = Call(self.record, op, self._read.__contains__, self._parts)
        flops = Flops(0, 0) if op.index in self._inside else count(call)
        read, written = self._moved(op)
        self.moved_bytes[1] += read + written
        targets = self._targets(op)
        if flops is None:
            entry = self.uncounted.setdefault(op.function, Uncounted(op.function, 0, 0))
            entry.num_calls, entry.moved_bytes = entry.num_calls + 1, entry.moved_bytes + read + written
        else:
            self.moved_bytes[0] += read + written
        for figures in targets:
            _add(figures, op.phase, flops, read, written)

    def _targets(self, op: Op) -> list[Figures]:
        if op.owner is None or not self.calls:
            return [self.outside]
        owner: Op | None = self.record.ops[op.owner]
        targets = [self.calls[op.call].own]
        while owner is not None and owner.owner is not None:
            owner = self.record.ops[owner.owner]
        row = self._op_rows.get(owner.index) if owner is not None else None
        return [*targets, row.figures] if row is not None else targets

    def _moved(self, op: Op) -> tuple[int, int]:
        """Bytes of the tensors it read and of those it wrote; a view moves none."""
        values = self.record.values
        read = {value: values[value].size_bytes or 0 for value in op.inputs}
        storages = {values[value].storage for value in read}
        made = [values[item.value] for item in op.outputs]
        if made and not op.writes and all(one.storage in storages for one in made):
            return 0, 0
        return sum(read.values()), sum(one.size_bytes or 0 for one in made)

    def _sum_calls(self) -> None:
        for row in self.calls:
            row.total.add(row.own)
        for row in reversed(self.calls):
            if row.parent is not None:
                self.calls[row.parent].total.add(row.total)

    def _sum_rows(self) -> None:
        for row in self.rows:
            for call in row.calls:
                row.own.add(self.calls[call].own)
            row.total.add(row.own)
            row.memory = self._row_memory(row)
        for row in reversed(self.rows):
            if row.parent is not None:
                self.rows[row.parent].total.add(row.total)

    def _row_memory(self, row: Row) -> RowMemory | None:
        calls = [self.calls[call].memory for call in row.calls]
        known = [memory for memory in calls if memory is not None]
        if not known:
            return None
        extra = [memory.extra_backward for memory in known if memory.extra_backward is not None]
        return RowMemory(
            max(memory.peak - memory.entry for memory in known),
            sum(memory.retained for memory in known),
            max(memory.transient for memory in known),
            self.memory.saved(row.calls),
            max(memory.extra_forward for memory in known),
            max(extra) if extra else None,
        )

    def _count_params(self) -> None:
        record = self.record
        below: dict[int, set[int]] = {index: set(module.params) for index, module in enumerate(record.modules)}
        for index in range(len(record.modules) - 1, 0, -1):
            parent = record.modules[index].parent
            if parent is not None:
                below[parent] |= below[index]
        seen: set[int] = set()
        for row in self.rows:
            params = [index for index in below[row.module] if record.params[index].kind == "param"]
            row.num_params = sum(record.params[index].num_elements or 0 for index in params)
            row.num_trainable = sum(
                record.params[index].num_elements or 0 for index in params if record.params[index].requires_grad
            )
            row.params_bytes = sum(record.params[index].size_bytes or 0 for index in params)
            if record.run.num_backward:
                row.gradient_bytes = sum(self._param_gradients.get(index) or 0 for index in params)
            own = [index for index in record.modules[row.module].params if record.params[index].kind == "param"]
            row.num_own_params = sum(record.params[index].num_elements or 0 for index in own if index not in seen)
            seen.update(own)

    def _totals(self) -> Totals:
        figures = Figures()
        if self.rows:
            figures.add(self.rows[0].total)
        times, memory = self.times, self.memory
        known, moved = self.moved_bytes
        totals = Totals(figures, times.get("run", 0, "engine"), times.get("run", 0, "outside"))
        totals.flops_share = known / moved if moved else 1.0
        totals.time_spread_ns = times.spreads.get(("run", 0, "all"))
        if times.is_timed and self.record.run.num_backward:
            totals.unattributed_ns = times.get("run", 0, "unattributed") or 0
        if memory.is_measured:
            totals.peak_bytes, totals.after_forward_bytes = memory.peak, memory.after_forward()
            totals.held_bytes, totals.held_params_bytes = memory.held_for_backward()
            totals.at_peak = memory.at_peak()
        return totals

    # -- tensors -------------------------------------------------------------------------------------

    def _tensors(self, items: tuple[Item, ...]) -> Tensors:
        values = self.record.values
        return tuple((values[item.value].shape, values[item.value].size_bytes) for item in items)

    def _gradients_of(self, items: tuple[Item, ...]) -> list[Gradient]:
        return [self._gradients[item.value] for item in items if item.value in self._gradients]

    def _values_not_finite(self) -> set[int]:
        """Values that hold NaN or Inf; views of them are found by their storage and version."""
        values, found = self.record.values, set()
        for entry in self.record.nonfinite:
            outputs = self.record.aten[entry.aten].outputs
            if entry.output < len(outputs):
                value = values[outputs[entry.output].value]
                found.add((value.storage, value.version))
        return {value.index for value in values if (value.storage, value.version) in found}

    def _values_read(self) -> set[int]:
        """Values that some ATen op was given."""
        record = self.record
        found = {value for op in record.aten for value in refs_in(op.args)}
        found.update(value for op in record.aten if op.kwargs for value in refs_in(op.kwargs))
        return found


def _add(figures: Figures, phase: str, flops: Flops | None, read: int, written: int) -> None:
    if flops is None:
        figures.num_uncounted += 1
        flops = Flops(0, 0)
    if phase == "forward":
        figures.num_aten += 1
        figures.flops_forward += flops.model
        figures.hardware_flops_forward += flops.hardware
        figures.bytes_read += read
        figures.bytes_written += written
    elif phase == "recompute":
        figures.flops_recompute += flops.hardware
        figures.num_aten_backward += 1
    else:
        figures.num_aten_backward += 1
        figures.flops_backward += flops.model
        figures.hardware_flops_backward += flops.hardware


def _most(entry: Uncounted) -> tuple[int, str]:
    return (-entry.moved_bytes, entry.function)
