"""What must hold between the tables of a record: every index names a row, and nothing is its own ancestor.

Checked when a record is written and when it is read, so that whoever walks a record from a file can trust it
as one that was just captured: no index error, no endless loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

from torcheer.record.file_plain import MalformedError
from torcheer.record.model import Record, Ref

# table: field: the table its numbers point into. "parents.op": that field of the named tuples in "parents".
REFERENCES: dict[str, dict[str, str]] = {
    "ops": {
        "call": "calls",
        "site": "sites",
        "hidden": "values",
        "outputs.value": "values",
        "writes": "values",
        "parents.op": "ops",
        "parents.value": "values",
        "owner": "ops",
        "aten": "aten",
        "params": "params",
    },
    "values": {"producer": "ops", "param": "params"},
    "layers": {"ops": "ops"},
    "modules": {"parent": "modules", "params": "params"},
    "calls": {
        "module": "modules",
        "parent": "calls",
        "site": "sites",
        "inputs.value": "values",
        "outputs.value": "values",
    },
    "gradients": {"value": "values", "param": "params"},
    "diagnostics": {"op": "ops", "module": "modules"},
    "held": {"op": "ops"},
    "nonfinite": {"aten": "aten"},
    "parts": {"value": "values", "param": "params", "gradient": "gradients"},
}
REFERENCES["aten"] = {**REFERENCES["ops"], "parents.op": "aten"}

POSITIONS = ("ops", "aten", "values", "calls")  # tables whose rows know their own number

# table: fields whose links must not lead back to where they started.
ANCESTORS = {
    "ops": ("parents.op", "owner"),
    "aten": ("parents.op",),
    "modules": ("parent",),
    "calls": ("parent",),
}

# table: fields that count or measure.
COUNTS = {
    "ops": ("time_ns", "start_ns", "backward_time_ns"),
    "aten": ("time_ns", "start_ns", "backward_time_ns"),
    "values": ("offset", "version", "size_bytes"),
    "calls": ("depth", "time_ns", "start_ns"),
    "params": ("shape", "size_bytes", "num_elements"),
    "gradients": ("size_bytes",),
    "timings": ("target", "time_ns", "min_ns", "spread_ns", "num_repeats"),
    "held": ("size_bytes",),
    "nonfinite": ("output",),
    "parts": ("mesh", "coordinate", "shape"),
    "sites": ("frames.line",),
}

# table: sizes, where -1 stands for one that is not the same in every row, or symbolic.
SIZES = {"values": ("shape",), "gradients": ("shape",)}

# table: fields of plain data, which may hold Refs.
PLAIN = {
    "ops": ("args", "kwargs", "result"),
    "aten": ("args", "kwargs", "result"),
    "modules": ("attributes",),
}


def check_record(record: Record) -> None:
    """Raise ``MalformedError`` for the first thing that does not hold."""
    sizes = {name: len(getattr(record, name)) for name in {*REFERENCES, "sites", "params", "gradients"}}
    for table, field_targets in REFERENCES.items():
        for field, target in field_targets.items():
            _check_range(record, table, field, sizes[target], f"number of {target}")
    for table in POSITIONS:
        for place, row in enumerate(getattr(record, table)):
            if row.index != place:
                raise MalformedError(f"{table}[{place}].index is {row.index}")
    for table, names in COUNTS.items():
        for field in names:
            _check_range(record, table, field, None, "")
    for table, names in SIZES.items():
        for field in names:
            _check_range(record, table, field, None, "", least=-1)
    for table, names in ANCESTORS.items():
        for field in names:
            _check_ancestors(table, field, [list(numbers(row, field)) for row in getattr(record, table)])
    _check_rest(record, sizes)


def numbers(row: Any, field: str) -> Iterable[int]:
    """The numbers of one field of one row: none for None."""
    name, _, member = field.partition(".")
    cell = getattr(row, name)
    if cell is None:
        return ()
    if isinstance(cell, int):
        return (cell,)
    return [getattr(item, member) for item in cell] if member else cell


def _check_range(record: Record, table: str, field: str, end: int | None, what: str, *, least: int = 0) -> None:
    if _is_within(getattr(record, table), field, least, end):
        return
    for place, row in enumerate(getattr(record, table)):
        for number in numbers(row, field):
            if number < least or (end is not None and number >= end):
                reason = f"the {what} is {end}" if end is not None else f"must not be below {least}"
                raise MalformedError(f"{table}[{place}].{field} is {number}: {reason}")


def _is_within(rows: list[Any], field: str, least: int, end: int | None) -> bool:
    """Whether all numbers of a field are in range. Only distinct cells are looked at: most rows are like others."""
    name, _, member = field.partition(".")
    try:
        found = set(map(attrgetter(name), rows)) - {None}
        if not all(isinstance(cell, int) for cell in found):
            found = set(chain.from_iterable(found))
        if member:
            found = set(map(attrgetter(member), found))
    except TypeError:  # cells that cannot be hashed: they are looked at one by one
        return False
    return not found or (min(found) >= least and (end is None or max(found) < end))


def _check_ancestors(table: str, field: str, parents: list[list[int]]) -> None:
    """Take away rows all of whose parents are gone, until none is left: those in a circle stay."""
    if all(not above or max(above) < row for row, above in enumerate(parents)):
        return  # as they ran: each after what it follows from
    children: list[list[int]] = [[] for _ in parents]
    for row, above in enumerate(parents):
        for parent in above:
            children[parent].append(row)
    num_left = [len(above) for above in parents]
    free = [row for row, left in enumerate(num_left) if not left]
    num_free = 0
    while free:
        num_free += 1
        for child in children[free.pop()]:
            num_left[child] -= 1
            if not num_left[child]:
                free.append(child)
    if num_free < len(parents):
        first = next(row for row, left in enumerate(num_left) if left)
        raise MalformedError(f"{table}[{first}].{field} leads in a circle")


def _check_rest(record: Record, sizes: dict[str, int]) -> None:
    for value in record.saved:
        if not 0 <= value < sizes["values"]:
            raise MalformedError(f"saved holds {value}: the number of values is {sizes['values']}")
    for table in ("ops", "aten"):
        for op in getattr(record, table):
            # -1: an op that is in no layer, such as every ATen op.
            if not -1 <= op.layer < sizes["layers"]:
                raise MalformedError(
                    f"{table}[{op.index}].layer is {op.layer}: the number of layers is {sizes['layers']}"
                )
    for call in record.calls:
        if not 0 <= call.first_op <= call.end_op <= sizes["ops"]:
            span = f"calls[{call.index}] spans ops {call.first_op} to {call.end_op}"
            raise MalformedError(f"{span}: the number of ops is {sizes['ops']}")
        first, end = call.memory or (0, 0)
        if not 0 <= first <= end <= len(record.memory):
            raise MalformedError(
                f"calls[{call.index}] spans memory {first} to {end}: the number of events is {len(record.memory)}"
            )
    _check_measurements(record, sizes)
    plain = (getattr(row, field) for table, names in PLAIN.items() for row in getattr(record, table) for field in names)
    for ref in refs(chain(plain, (record.run.output_data,))):
        if not 0 <= ref < sizes["values"]:
            raise MalformedError(f"arguments hold {ref!r}: the number of values is {sizes['values']}")


def _check_measurements(record: Record, sizes: dict[str, int]) -> None:
    for place, event in enumerate(record.memory):
        if not -1 <= event.aten < sizes["aten"]:
            raise MalformedError(f"memory[{place}].aten is {event.aten}: the number of aten is {sizes['aten']}")
    ends = {"call": sizes["calls"], "op": sizes["ops"], "run": 1}
    for place, timing in enumerate(record.timings):
        if timing.target >= ends.get(timing.kind, 0):
            raise MalformedError(f"timings[{place}] is of {timing.kind} {timing.target}, which is none")


def refs(plain: Iterable[Any]) -> Iterable[Ref]:
    """Every Ref in plain data, at any depth."""
    stack = list(plain)
    while stack:
        item = stack.pop()
        if isinstance(item, Ref):
            yield item
        elif isinstance(item, (tuple, list)):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, slice):
            stack += (item.start, item.stop, item.step)
