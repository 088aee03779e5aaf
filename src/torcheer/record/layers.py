"""Which ops are passes of one layer, and what the layers are called.

An op's identity is its call site: the module it runs in and the chain of calls from that module's forward
down to it, together with the params it reads. Two passes of one identity are one layer.

- A module with parameters is the same module wherever it is called from, so its ops are one layer with a
  pass per call (an RNN cell in a loop, a shared block). A module without any (one ``ReLU`` used three times)
  is told apart by where it is called.
- A call site may repeat although nothing is recurrent: ``for block in self.blocks: x = block(x) + x`` runs
  its ``+`` once per block. Passes within one call of a module are a loop only if everything that happens
  between them repeats too, or, where they do not depend on one another, if they have the same parents or ones
  that repeat (the condition of a ``while`` reads what the loop carries on).
  Otherwise each is a layer of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise

from torcheer.record.model import Layer, Op, Record


def assign_layers(record: Record) -> None:
    """Fill ``record.layers`` and every op's ``layer`` and ``pass_index``. Ops inside other ops get none."""
    ops = [op for op in record.ops if op.owner is None]
    keys = _Identities(record).keys(ops)
    keys = _split_false_loops(ops, keys, _anchors(record))
    by_key: dict[Hashable, list[Op]] = {}
    for op in ops:
        by_key.setdefault(keys[op.index], []).append(op)
    numbers: defaultdict[str, int] = defaultdict(int)
    record.layers = []
    for position, passes in enumerate(by_key.values()):
        name = passes[0].name
        numbers[name] += 1
        record.layers.append(Layer(name, numbers[name], position, tuple(op.index for op in passes)))
        for count, op in enumerate(passes, 1):
            op.layer, op.pass_index = position, count


class _Identities:
    """Identity of calls and ops before loops are looked at."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.has_params = modules_with_params(record)
        self._calls: dict[int, Hashable] = {}

    def keys(self, ops: list[Op]) -> dict[int, Hashable]:
        """Key of each op by its index; inputs and outputs are always themselves."""
        return {
            op.index: (self._call(op.call), op.site, op.function, op.params) if op.kind == "op" else (op.kind, op.index)
            for op in ops
        }

    def _call(self, index: int) -> Hashable:
        key = self._calls.get(index)
        if key is None:
            call = self.record.calls[index]
            if call.parent is None or self.has_params[call.module]:
                key = call.module
            else:
                key = (self._call(call.parent), call.module, call.site)
            self._calls[index] = key
        return key


def modules_with_params(record: Record) -> list[bool]:
    """Per module: does it or anything below it own a parameter or buffer?"""
    owns = [bool(module.params) for module in record.modules]
    # Parents come before their children.
    for index in range(len(owns) - 1, -1, -1):
        parent = record.modules[index].parent
        if owns[index] and parent is not None:
            owns[parent] = True
    return owns


def _anchors(record: Record) -> list[int]:
    """Per call: the innermost call around it, or itself, of a module with params (or of the model)."""
    has_params = modules_with_params(record)
    anchors: list[int] = []
    for call in record.calls:
        own = call.parent is None or has_params[call.module]
        anchors.append(call.index if own or call.parent is None else anchors[call.parent])
    return anchors


def _split_false_loops(ops: list[Op], keys: dict[int, Hashable], anchors: list[int]) -> dict[int, Hashable]:
    """Give passes that are no loop keys of their own, until nothing changes."""
    keys = dict(keys)
    position = {op.index: number for number, op in enumerate(ops)}
    changed = True
    while changed:
        changed = False
        groups: dict[Hashable, list[Op]] = {}
        for op in ops:
            groups.setdefault(keys[op.index], []).append(op)
        repeated = {key for key, group in groups.items() if len(group) > 1}
        for key in [key for key in groups if key in repeated]:
            group = groups[key]
            if group[0].params:
                continue
            runs: dict[int, list[Op]] = {}
            for op in group:
                runs.setdefault(anchors[op.call], []).append(op)
            if all(_is_loop(run, ops, position, keys, repeated) for run in runs.values()):
                continue
            changed = True
            for run in runs.values():
                for count, op in enumerate(run):
                    keys[op.index] = (key, "pass", count)
    return keys


def _is_loop(
    run: list[Op],
    ops: list[Op],
    position: dict[int, int],
    keys: dict[int, Hashable],
    repeated: set[Hashable],
) -> bool:
    for earlier, later in pairwise(run):
        between = _between(ops, position, earlier, later)
        if between is None:
            fresh = _parent_keys(later, keys) - _parent_keys(earlier, keys)
            if not fresh <= repeated:
                return False
        elif any(keys[index] not in repeated for index in between):
            return False
    return True


def _parent_keys(op: Op, keys: dict[int, Hashable]) -> set[Hashable]:
    return {keys.get(edge.op) for edge in op.parents}


def _between(ops: list[Op], position: dict[int, int], earlier: Op, later: Op) -> set[int] | None:
    """Ops on the ways from one op to another; None when there is no way."""
    after = {earlier.index}
    window = ops[position[earlier.index] + 1 : position[later.index] + 1]
    for op in window:
        if any(edge.op in after for edge in op.parents):
            after.add(op.index)
    if later.index not in after:
        return None
    needed = {later.index}
    for op in reversed(window):
        if op.index in needed:
            needed.update(edge.op for edge in op.parents if edge.op in after)
    return needed - {earlier.index, later.index}
