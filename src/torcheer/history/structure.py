"""How the operations of a record hang together: parents, children, passes, and which call returned what.

Every table is worked out when first asked for and kept: a record's forward part no longer changes.

An op inside another op (``owner`` set, such as those in the forward of an ``autograd.Function``) is not in
the listing. Seen from outside, its work is its owner's: edges of listed ops are lifted to listed ops.
"""

from __future__ import annotations

from functools import cached_property

from torcheer.record.model import Item, Op, Record


class Structure:
    """Derived tables of one record, all by op, call or param number."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def listed(self) -> list[int]:
        """Ops of the listing in order of execution: a position in it is what ``history[7]`` means."""
        return [op.index for op in self.record.ops if op.layer >= 0]

    @cached_property
    def ordinal(self) -> dict[int, int]:
        """Position of each listed op."""
        return {op: position for position, op in enumerate(self.listed)}

    @cached_property
    def parents(self) -> list[tuple[int, ...]]:
        """Parents of every op, each once, in the order of its arguments."""
        return [self._parents_of(op) for op in self.record.ops]

    @cached_property
    def children(self) -> list[tuple[int, ...]]:
        """Ops that read what an op made, each once, in order; for a listed op, listed ops."""
        ops = self.record.ops
        children: list[list[int]] = [[] for _ in ops]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                if ops[parent].layer < 0 or ops[child].layer >= 0:
                    children[parent].append(child)
        return [tuple(found) for found in children]

    @cached_property
    def inner(self) -> dict[int, tuple[int, ...]]:
        """Function-level ops directly inside each op that has some."""
        inner: dict[int, list[int]] = {}
        for op in self.record.ops:
            if op.owner is not None and op.layer < 0:
                inner.setdefault(op.owner, []).append(op.index)
        return {owner: tuple(ops) for owner, ops in inner.items()}

    @cached_property
    def num_inner(self) -> int:
        """How many ops are inside others."""
        return len(self.record.ops) - len(self.listed)

    @cached_property
    def labels(self) -> list[str]:
        """``conv2d_3_7``; ``add_1_3:2`` where the layer has several passes; ``myfunction_1_4/mul_1``."""
        record = self.record
        labels = [""] * len(record.ops)
        for layer in record.layers:
            for number, op in enumerate(layer.ops, 1):
                labels[op] = layer.label if len(layer.ops) == 1 else f"{layer.label}:{number}"
        owners = [op for op in self.listed if op in self.inner]
        for owner in owners:  # grows while it is read: what is inside may have ops inside, too
            counts: dict[str, int] = {}
            for inner_op in self.inner[owner]:
                name = record.ops[inner_op].name
                counts[name] = counts.get(name, 0) + 1
                labels[inner_op] = f"{labels[owner]}/{name}_{counts[name]}"
            owners += [inner_op for inner_op in self.inner[owner] if inner_op in self.inner]
        return labels

    @cached_property
    def module_calls(self) -> dict[int, tuple[int, ...]]:
        """Calls of each module that was called."""
        calls: dict[int, list[int]] = {}
        for call in self.record.calls:
            calls.setdefault(call.module, []).append(call.index)
        return {module: tuple(indices) for module, indices in calls.items()}

    @cached_property
    def call_children(self) -> dict[int, tuple[int, ...]]:
        """Calls made directly inside each call that made some."""
        children: dict[int, list[int]] = {}
        for call in self.record.calls:
            if call.parent is not None:
                children.setdefault(call.parent, []).append(call.index)
        return {parent: tuple(indices) for parent, indices in children.items()}

    @cached_property
    def module_children(self) -> dict[int, tuple[int, ...]]:
        """Direct children of each module that has some."""
        children: dict[int, list[int]] = {}
        for index, module in enumerate(self.record.modules):
            if module.parent is not None:
                children.setdefault(module.parent, []).append(index)
        return {parent: tuple(indices) for parent, indices in children.items()}

    @cached_property
    def outputs_of(self) -> dict[int, tuple[int, ...]]:
        """Calls that returned something an op made, innermost call first; the model's own call left out."""
        found: dict[int, list[int]] = {}
        for call in self.record.calls:
            if call.parent is not None:
                for op in self.producers(call.outputs):
                    found.setdefault(op, []).append(call.index)
        depth = [call.depth for call in self.record.calls]
        return {op: tuple(sorted(calls, key=lambda call: -depth[call])) for op, calls in found.items()}

    @cached_property
    def param_users(self) -> dict[int, tuple[int, ...]]:
        """Listed ops that read each param or buffer."""
        users: dict[int, list[int]] = {}
        for op in self.record.ops:
            for param in op.params:
                users.setdefault(param, []).append(self.lifted(op.index))
        return {param: tuple(dict.fromkeys(ops)) for param, ops in users.items()}

    @cached_property
    def used_params(self) -> frozenset[int]:
        """Params and buffers read on either level: scripted code reads its own on the ATen level only."""
        aten = (op for op in self.record.aten if op.phase == "forward")
        return frozenset(param for op in (*self.record.ops, *aten) for param in op.params)

    @cached_property
    def is_branching(self) -> bool:
        """Whether an op feeds several ops or is fed by several."""
        return any(len(self.parents[op]) > 1 or len(self.children[op]) > 1 for op in self.listed)

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether a pass of a layer depends on an earlier pass of the same layer."""
        ops = self.record.ops
        repeated = [index for index, layer in enumerate(self.record.layers) if len(layer.ops) > 1]
        bit = {layer: 1 << position for position, layer in enumerate(repeated)}
        if not bit:
            return False
        upstream: dict[int, int] = {}  # op -> the repeated layers among its ancestors, one bit each
        for op in self.listed:
            seen = 0
            for parent in self.parents[op]:
                seen |= upstream.get(parent, 0) | bit.get(ops[parent].layer, 0)
            if seen & bit.get(ops[op].layer, 0):
                return True
            upstream[op] = seen
        return False

    def lifted(self, op: int) -> int:
        """Return the listed op that an op is, or is inside of."""
        ops = self.record.ops
        owner = ops[op].owner
        while ops[op].layer < 0 and owner is not None:
            op = owner
            owner = ops[op].owner
        return op

    def outputs(self, op: int) -> tuple[Item, ...]:
        """Return the tensors an op made; those it passed on where it is an output of the model."""
        entry = self.record.ops[op]
        if entry.outputs or entry.kind != "output":
            return entry.outputs
        several = len(entry.inputs) > 1
        return tuple(Item(str(i) if several else "", value) for i, value in enumerate(entry.inputs))

    def written_params(self, op: int) -> tuple[int, ...]:
        """Return the params and buffers an op wrote in place."""
        found = (self._param_of(value) for value in self.record.ops[op].writes)
        return tuple(dict.fromkeys(param for param in found if param is not None))

    def producers(self, items: tuple[Item, ...]) -> tuple[int, ...]:
        """Return the listed ops that made these tensors, each once."""
        made_by = (self.record.values[item.value].producer for item in items)
        return tuple(dict.fromkeys(self.lifted(op) for op in made_by if op is not None))

    def call_label(self, call: int) -> str:
        """Return ``features.6:1``; an empty string for the model's own call."""
        entry = self.record.calls[call]
        address = self.record.modules[entry.module].address
        return f"{address}:{entry.call_index}" if address else ""

    def call_chain(self, call: int) -> tuple[int, ...]:
        """Return the calls around and including a call, the model's own first."""
        chain = [call]
        parent = self.record.calls[call].parent
        while parent is not None:
            chain.append(parent)
            parent = self.record.calls[parent].parent
        return tuple(reversed(chain))

    def value_label(self, value: int) -> str:
        """Return what a reader calls a tensor: its op's label, its param's address, or its kind and shape."""
        entry = self.record.values[value]
        if entry.param is not None and entry.producer is None:
            return self.record.params[entry.param].address
        if entry.producer is None:
            return f"{entry.kind}{list(entry.shape)}"
        op = self.record.ops[entry.producer]
        if len(op.outputs) < 2:
            return self.labels[op.index]
        path = next((item.path for item in op.outputs if item.value == value), "?")
        return f"{self.labels[op.index]}[{path}]"

    def _param_of(self, value: int) -> int | None:
        entry = self.record.values[value]
        if entry.param is not None or entry.storage is None:
            return entry.param
        params = self._storage_params.get(entry.storage, set())
        return next(iter(params)) if len(params) == 1 else None

    @cached_property
    def _storage_params(self) -> dict[int, set[int]]:
        """Params by storage: a view of a param shares its storage. Flattened params share one among them."""
        params: dict[int, set[int]] = {}
        for value in self.record.values:
            if value.param is not None and value.storage is not None:
                params.setdefault(value.storage, set()).add(value.param)
        return params

    def _parents_of(self, op: Op) -> tuple[int, ...]:
        if op.layer < 0:
            return tuple(dict.fromkeys(edge.op for edge in op.parents))
        lifted = dict.fromkeys(self.lifted(edge.op) for edge in op.parents)
        lifted.pop(op.index, None)
        return tuple(lifted)
