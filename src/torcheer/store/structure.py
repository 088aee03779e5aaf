"""The structure of a watched model: calls of its modules and what flows between them, from a recorded forward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torcheer.record.model import Item, Record

Structure = dict[str, Any]
Source = int | str  # a call inside, or "input:path" of the call around

MAX_SOURCES = 64  # of one functional op; what is beyond is drawn by way of the others


def structure_of(record: Record, modules: list[dict[str, Any]], step: int) -> Structure:
    """Calls and edges of a recorded forward, with the modules as the watcher describes them."""
    calls = [
        {
            "id": call.index, "module": record.modules[call.module].address, "call": call.call_index,
            "parent": call.parent, "order": call.index, "training": call.training, "attached": [],
            "inputs": _tensors(record, call.inputs), "outputs": _tensors(record, call.outputs), "first_step": step,
        }
        for call in record.calls
    ]  # fmt: skip
    return {"modules": modules, "calls": calls, "edges": _Flow(record).edges(), "record": None, "seen": "record"}


def structure_of_calls(
    seen: Iterable[tuple[str, int, int | None, bool]], modules: list[dict[str, Any]], step: int
) -> Structure:
    """The same where no recording was possible: (module, call, place of the call around, training), in order."""
    calls: list[dict[str, Any]] = [
        {
            "id": place, "module": module, "call": call, "parent": parent, "order": place, "training": training,
            "attached": [], "inputs": [], "outputs": [], "first_step": step,
        }
        for place, (module, call, parent, training) in enumerate(seen)
    ]  # fmt: skip
    return {"modules": modules, "calls": calls, "edges": [], "record": None, "seen": "calls"}


def union(old: Structure, new: Structure) -> Structure:
    """Everything of both; what the new one says of a call that both have holds."""
    ids = {(call["module"], call["call"]): call["id"] for call in old["calls"]}
    number: dict[Any, int] = {}
    fresh = max(ids.values(), default=-1) + 1
    for call in new["calls"]:
        key = (call["module"], call["call"])
        if key not in ids:
            ids[key], fresh = fresh, fresh + 1
        number[call["id"]] = ids[key]
    calls = {call["id"]: call for call in old["calls"]}
    for call in new["calls"]:
        own = number[call["id"]]
        known = calls.get(own)
        first, attached = call["first_step"], call["attached"]
        tensors = call
        if known is not None:
            first, attached = known["first_step"], list(dict.fromkeys([*known["attached"], *attached]))
            if not call["inputs"] and not call["outputs"]:
                tensors = known
        calls[own] = {
            **call, "id": own, "parent": None if call["parent"] is None else number[call["parent"]],
            "inputs": tensors["inputs"], "outputs": tensors["outputs"], "first_step": first, "attached": attached,
        }  # fmt: skip
    edges = [*old["edges"], *({key: number.get(end, end) for key, end in edge.items()} for edge in new["edges"])]
    unique = list({tuple(sorted(edge.items())): edge for edge in edges}.values())
    modules = list({module["address"]: module for module in (*old["modules"], *new["modules"])}.values())
    seen = "record" if "record" in (old["seen"], new["seen"]) else "calls"
    return {
        "modules": modules, "calls": sorted(calls.values(), key=lambda call: (call["order"], call["id"])),
        "edges": unique, "record": new["record"] or old["record"], "seen": seen,
    }  # fmt: skip


def _tensors(record: Record, items: Iterable[Item]) -> list[dict[str, Any]]:
    return [
        {"path": item.path, "shape": list(record.values[item.value].shape), "dtype": record.values[item.value].dtype}
        for item in items
    ]


class _Flow:
    """Follows values from op to op, and says through which calls they went."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._found: dict[tuple[int, Source, Source], None] = {}
        # (call, op directly in it) → where what it computes came from
        self._sources: dict[tuple[int, int], dict[Source, None]] = {}
        self._chains: dict[int, list[int]] = {}

    def edges(self) -> list[dict[str, Any]]:
        for op in self._record.ops:
            if op.owner is None and op.kind != "input":
                for edge in op.parents:
                    self._edge(op.index, edge.op, edge.value)
        return [{"parent": call, "from": source, "to": target} for call, source, target in self._found]

    def _chain(self, call: int) -> list[int]:
        """The call and those around it, outermost first."""
        known = self._chains.get(call)
        if known is None:
            parent = self._record.calls[call].parent
            known = self._chains[call] = [*(self._chain(parent) if parent is not None else []), call]
        return known

    def _edge(self, op: int, parent: int, value: int) -> None:
        ops = self._record.ops
        reads, makes = self._chain(ops[op].call), self._chain(ops[parent].call)
        common = 0
        while common < min(len(reads), len(makes)) and reads[common] == makes[common]:
            common += 1
        flowing = self._out_of(parent, value, makes, common)
        if ops[parent].kind == "input":
            flowing = {f"input:{self._path(self._record.calls[0].inputs, value)}": None}
        around = reads[common - 1]
        if ops[op].kind == "output":
            self._add(around, flowing, f"output:{self._path(self._record.calls[0].outputs, value)}")
        elif common == len(reads):
            self._note(around, op, flowing)
        else:
            self._add(around, flowing, reads[common])
            self._into(op, value, reads, common)

    def _out_of(self, parent: int, value: int, makes: list[int], common: int) -> dict[Source, None]:
        """Where a value comes from, seen from the call that both ops share; with the edges on its way out."""
        if common == len(makes):
            return self._sources.get((makes[-1], parent), {})
        flowing: dict[Source, None] = dict(self._sources.get((makes[-1], parent), {}))
        for depth in range(len(makes) - 1, common - 1, -1):
            call = makes[depth]
            self._add(call, flowing, f"output:{self._path(self._record.calls[call].outputs, value)}")
            flowing = {call: None}
        return flowing

    def _into(self, op: int, value: int, reads: list[int], common: int) -> None:
        for depth in range(common, len(reads)):
            call = reads[depth]
            source: dict[Source, None] = {f"input:{self._path(self._record.calls[call].inputs, value)}": None}
            if depth == len(reads) - 1:
                self._note(call, op, source)
            else:
                self._add(call, source, reads[depth + 1])

    def _note(self, call: int, op: int, sources: dict[Source, None]) -> None:
        known = self._sources.setdefault((call, op), {})
        for source in sources:
            if len(known) < MAX_SOURCES:
                known[source] = None

    def _add(self, call: int, sources: Iterable[Source], target: Source) -> None:
        for source in sources:
            self._found[call, source, target] = None

    @staticmethod
    def _path(items: Iterable[Item], value: int) -> str:
        """The place of a value among inputs or outputs; "*" where it got there another way."""
        return next((item.path or "0" for item in items if item.value == value), "*")
