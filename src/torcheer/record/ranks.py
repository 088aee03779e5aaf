"""Recordings of processes that ran one model together, side by side: what each rank did, row by row.

Ranks may run the same operations (data parallel, sharded) or different ones (a pipeline), so rows are matched by what
an operation is: its function, the module it is in, and which time it comes there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from torcheer.record.model import Op, Record

COLLECTIVES = ("c10d.", "c10d_functional.", "_c10d_functional.", "_c10d_functional_autograd.", "symm_mem.")
_NO_COLLECTIVES = ("wait_tensor", "_wrap_tensor_autograd")  # they wait for one, or mark its result
_WRAPPERS = ("DistributedDataParallel", "DataParallel")  # they hold the model as their "module"
_WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


class RankedOp(NamedTuple):
    """One operation on every rank."""

    name: str  # "linear"
    function: str  # "torch.nn.functional.linear"
    module: str  # address of the module it is in; "" for the model itself
    ops: tuple[int | None, ...]  # per rank: index into Record.ops; None: that rank does not run it


class Collective(NamedTuple):
    """One call of a process group's, as one rank made it."""

    function: str  # "c10d.allreduce_.default"
    phase: str  # "forward" | "backward" | "recompute"
    shapes: tuple[tuple[int, ...], ...]  # of the tensors it was given
    size_bytes: int  # of them all
    aten: int  # index into Record.aten


def align(records: Sequence[Record]) -> list[RankedOp]:
    """Every operation of any rank, in an order that is each rank's own."""
    tables = [_keys(record) for record in records]
    order: list[Hashable] = []
    for table in tables:
        known, place = set(order), 0
        for key in table:
            if place < len(order) and order[place] == key:
                place += 1
            elif key in known:
                place = max(place, order.index(key, 0) + 1)
            else:
                order.insert(place, key)
                place += 1
    rows = []
    for key in order:
        places = tuple(table.get(key) for table in tables)
        rank = next(rank for rank, place in enumerate(places) if place is not None)
        op = records[rank].ops[places[rank] or 0]
        rows.append(RankedOp(op.name, op.function, _address(records[rank], op), places))
    return rows


def plain_addresses(record: Record) -> list[str]:
    """Addresses of the modules without what a wrapper (DDP, FSDP, checkpointing) puts into them."""
    is_wrapped = bool(record.modules) and record.modules[0].type_name in _WRAPPERS
    return [plain_address(module.address, is_wrapped=is_wrapped) for module in record.modules]


def plain_address(address: str, *, is_wrapped: bool) -> str:
    """The address of a module or param, as the model without wrappers has it."""
    names = address.split(".")
    if is_wrapped and names[0] == "module":
        names = names[1:]
    return ".".join(name for name in names if name not in _WRAPPED)


def _keys(record: Record) -> dict[Hashable, int]:
    addresses = plain_addresses(record)
    seen: Counter[Hashable] = Counter()
    keys: dict[Hashable, int] = {}
    for op in record.ops:
        if op.owner is None:
            what = (op.kind, op.function, addresses[record.calls[op.call].module])
            seen[what] += 1
            keys[what, seen[what]] = op.index
    return keys


def _address(record: Record, op: Op) -> str:
    return record.modules[record.calls[op.call].module].address


def collectives(record: Record) -> list[Collective]:
    """The calls of process groups, in the order in which this rank made them."""
    found = []
    for op in record.aten:
        if op.function.startswith(COLLECTIVES) and not op.function.split(".")[1].startswith(_NO_COLLECTIVES):
            values = [record.values[value] for value in op.inputs]
            size = sum(value.size_bytes or 0 for value in values)
            found.append(Collective(op.function, op.phase, tuple(value.shape for value in values), size, op.index))
    return found


def first_mismatch(records: Sequence[Record]) -> int | None:
    """Position of the first collective that is not the same on every rank: where such a run waits for ever."""
    calls = [[call.function for call in collectives(record)] for record in records]
    longest = max((len(one) for one in calls), default=0)
    for position in range(longest):
        if len({one[position] if position < len(one) else None for one in calls}) > 1:
            return position
    return None
