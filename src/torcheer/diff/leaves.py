"""Which leaf modules two models have, and which of them a run called.

Leaf modules are the same when they have the same type and the same public attributes: a convolution of stride 1 is
another than one of stride 2. Tensors that are no leaf module's are listed too, by their shapes: raw parameters of a
model would otherwise be seen by nobody.

    summarize_leaves(record)                               one model: leaf modules by type and attributes
    registered = compare_registered(record_a, record_b)    what is missing, what is too much
    invoked = compare_invoked(record_a, record_b)          the same for what forward called, and what it never called
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torcheer.diff.forms import form_of
from torcheer.diff.side import Leaf
from torcheer.record.model import Module, Record
from torcheer.shown import Tables

RAW = "Parameter"  # type of a tensor that belongs to a module with children
_PARTS_OF_TORCH = ("torch.nn.", "paddle.nn.")


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Leaf modules of one type with the same attributes."""

    type_name: str  # "Conv2d"; "Parameter" for a tensor of a module with children
    attributes: Mapping[str, Any]  # public ones: {"in_channels": 3, …}
    addresses: tuple[str, ...]  # of its instances, in order of definition
    num_params: int | None  # numbers in the parameters of each instance; None: not known yet (lazy)
    num_calls: int = 0  # calls of all instances in the run; 0 also where nothing ran
    identity: str = ""  # equal for the same leaves of two models

    @property
    def count(self) -> int:
        """How many instances there are."""
        return len(self.addresses)


@dataclass(frozen=True, slots=True)
class GroupPair:
    """The same leaves on both sides: as many, or one side has more."""

    a: LeafGroup | None  # None: this side has none
    b: LeafGroup | None

    @property
    def either(self) -> LeafGroup:
        """The side that there is."""
        found = self.a or self.b
        assert found is not None
        return found

    @property
    def counts(self) -> tuple[int, int]:
        """Instances on both sides."""
        return (self.a.count if self.a else 0, self.b.count if self.b else 0)

    @property
    def is_equal(self) -> bool:
        """Whether both sides have as many."""
        return self.counts[0] == self.counts[1]


@dataclass(slots=True, repr=False)
class LeafSummary(Tables):
    """The leaf modules of one model, grouped by type and attributes."""

    name: str  # of the model
    groups: list[LeafGroup]
    num_params: int | None  # of the whole model, each once; None: some are not known yet (lazy)

    @property
    def num_leaves(self) -> int:
        """How many leaf modules there are."""
        return sum(group.count for group in self.groups if group.type_name != RAW)

    def __repr__(self) -> str:
        return f"<summary of {self.name}: {self.num_leaves} leaf modules in {len(self.groups)} groups>"


@dataclass(slots=True, repr=False)
class LeavesComparison(Tables):
    """Leaf modules of two models, side by side. True when both have the same."""

    what: str  # "registered" | "invoked"
    names: tuple[str, str]  # of the models
    pairs: list[GroupPair] = field(default_factory=list)  # same leaves of both
    unused: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # registered, of no use in the run
    functions: list[tuple[str, int, int]] = field(default_factory=list)  # called outside leaves: name, times in A, in B

    def __bool__(self) -> bool:
        return all(pair.is_equal for pair in self.pairs) and not self.unused_on_one_side

    @property
    def missing(self) -> list[GroupPair]:
        """What B has fewer of than A."""
        return [pair for pair in self.pairs if pair.counts[1] < pair.counts[0]]

    @property
    def extraneous(self) -> list[GroupPair]:
        """What B has more of than A."""
        return [pair for pair in self.pairs if pair.counts[1] > pair.counts[0]]

    @property
    def unused_on_one_side(self) -> bool:
        """Whether one model leaves more of its leaf modules unused than the other."""
        return len(self.unused[0]) != len(self.unused[1])

    def __repr__(self) -> str:
        verdict = "the same" if self else f"{len(self.missing)} missing, {len(self.extraneous)} extraneous"
        return f"<{self.what} leaf modules of {' and '.join(self.names)}: {verdict}>"


def summarize_leaves(record: Record, name: str | None = None) -> LeafSummary:
    """Group the leaf modules of a model, and count its parameters."""
    sizes = [param.num_elements for param in record.params if param.kind == "param"]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    return LeafSummary(name or record.run.model, group_leaves(record), total)


def group_leaves(record: Record, *, across: bool = False) -> list[LeafGroup]:
    """Leaf modules as registered, grouped; ``across`` for a comparison with another framework."""
    return _grouped(record, list(_leaves(record)), across)


def invoked_leaves(record: Record, *, across: bool = False) -> list[LeafGroup]:
    """Leaf modules that the run called, grouped, with their calls."""
    called = Counter(call.module for call in record.calls)
    read = _params_read(record)
    leaves = [
        (position, leaf)
        for position, leaf in _leaves(record)
        if (called[position] if leaf.type_name != RAW else leaf.address in read)
    ]
    return _grouped(record, leaves, across, called)


def unused_leaves(record: Record) -> list[str]:
    """Addresses of leaf modules and raw parameters that the run did not call and whose tensors it did not read."""
    called = {call.module for call in record.calls}
    read = _params_read(record)
    return [
        leaf.address
        for position, leaf in _leaves(record)
        if not (position in called and leaf.type_name != RAW)
        and leaf.address not in read
        and not any(record.params[param].address in read for param in record.modules[position].params)
    ]


def compare_registered(record_a: Record, record_b: Record, names: tuple[str, str] | None = None) -> LeavesComparison:
    """Compare the leaf modules that two models have, called or not."""
    across = record_a.run.framework != record_b.run.framework
    groups = (group_leaves(record_a, across=across), group_leaves(record_b, across=across))
    return LeavesComparison("registered", names or names_of(record_a, record_b), _paired(*groups))


def compare_invoked(record_a: Record, record_b: Record, names: tuple[str, str] | None = None) -> LeavesComparison:
    """Compare the leaf modules that two runs called, and name those that are registered and of no use."""
    across = record_a.run.framework != record_b.run.framework
    groups = (invoked_leaves(record_a, across=across), invoked_leaves(record_b, across=across))
    in_a, in_b = functions_outside(record_a), functions_outside(record_b)
    return LeavesComparison(
        "invoked",
        names or names_of(record_a, record_b),
        _paired(*groups),
        (unused_leaves(record_a), unused_leaves(record_b)),
        [(name, in_a[name], in_b[name]) for name in dict.fromkeys([*in_a, *in_b])],
    )


def names_of(record_a: Record, record_b: Record) -> tuple[str, str]:
    """What to call two models: their classes, where these tell them apart."""
    a, b = record_a.run.model, record_b.run.model
    return (a, b) if a != b else (f"{a} (A)", f"{b} (B)")


def functions_outside(record: Record) -> Counter[str]:
    """Functions called outside leaf modules, by name: what a census of modules does not see."""
    parents = {module.parent for module in record.modules}
    return Counter(
        op.name
        for op in record.ops
        if op.kind == "op" and op.owner is None and (position := record.calls[op.call].module) in parents
        and not is_part(record.modules[position])
    )  # fmt: skip


def is_part(module: Module) -> bool:
    """Whether this is a layer of the framework's own, even where it has children, as attention has."""
    return module.qualified_type.startswith(_PARTS_OF_TORCH)


def is_leaf(record: Record, position: int, parents: Iterable[int | None] | None = None) -> bool:
    """Whether a module is compared as a whole: it has no children, or is a layer of the framework with tensors."""
    module = record.modules[position]
    inner = position in (parents if parents is not None else {one.parent for one in record.modules})
    return not inner or (is_part(module) and any(record.params[param].kind == "param" for param in module.params))


def _leaves(record: Record) -> Iterable[tuple[int, Leaf]]:
    """Leaf modules with their positions, and raw parameters with those of their modules."""
    parents = {module.parent for module in record.modules}
    for position, module in enumerate(record.modules):
        params = [record.params[param] for param in module.params]
        if is_leaf(record, position, parents):
            prefix = f"{module.address}." if module.address else ""
            tensors = {param.address.removeprefix(prefix): tuple(param.shape) for param in params}
            trained = tuple(param.address.removeprefix(prefix) for param in params if param.kind == "param")
            attributes = _told_apart(record, module, {name: tensors[name] for name in trained})
            yield position, Leaf(module.address, module.type_name, attributes, tensors, trained=trained)
            continue
        for param in params:
            if param.kind == "param":
                shape = {"shape": tuple(param.shape)}
                yield position, Leaf(param.address, RAW, shape, {param.address: tuple(param.shape)})


def _told_apart(record: Record, module: Module, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """Attributes that tell leaves apart: Paddle's layers do not note their sizes, their parameters do."""
    if record.run.framework == "torch":
        return module.attributes
    return {**{name: value for name, value in module.attributes.items() if value is not None}, **shapes}


def identity_of(record: Record, leaf: Leaf, *, across: bool) -> str:
    """Equal for leaves that are the same: by attributes, or across frameworks by kind and shapes."""
    if across and leaf.type_name != RAW:
        form = form_of(record.run.framework, leaf)
        shapes = sorted(tuple(sorted(shape)) for name, shape in leaf.tensors.items() if name in leaf.trained)
        return f"{form.kind} {shapes}"
    return f"{leaf.type_name} {sorted((key, repr(value)) for key, value in leaf.attributes.items())}"


def _grouped(
    record: Record, leaves: list[tuple[int, Leaf]], across: bool, called: Mapping[int, int] | None = None
) -> list[LeafGroup]:
    found: dict[str, list[tuple[int, Leaf]]] = {}
    for position, leaf in leaves:
        found.setdefault(identity_of(record, leaf, across=across), []).append((position, leaf))
    by_address = {param.address: param for param in record.params}
    groups = []
    for identity, members in found.items():
        position, first = members[0]
        if first.type_name == RAW:
            sizes = [by_address[first.address].num_elements]
        else:
            own = (record.params[param] for param in record.modules[position].params)
            sizes = [param.num_elements for param in own if param.kind == "param"]
        known = [size for size in sizes if size is not None]
        groups.append(
            LeafGroup(
                first.type_name,
                first.attributes,
                tuple(leaf.address for _, leaf in members),
                sum(known) if len(known) == len(sizes) else None,
                sum(called[at] for at, leaf in members if leaf.type_name != RAW) if called else 0,
                identity,
            )
        )
    return groups


def _paired(groups_a: list[LeafGroup], groups_b: list[LeafGroup]) -> list[GroupPair]:
    in_a, in_b = ({group.identity: group for group in groups} for groups in (groups_a, groups_b))
    return [GroupPair(in_a.get(identity), in_b.get(identity)) for identity in dict.fromkeys([*in_a, *in_b])]


def _params_read(record: Record) -> set[str]:
    """Addresses, each by which it is known, of parameters and buffers that any op read."""
    read: set[str] = set()
    for op in (*record.ops, *record.aten):
        for param in op.params:
            read.update((record.params[param].address, *record.params[param].aliases))
        for value in op.inputs:
            position = record.values[value].param
            if position is not None:
                read.update((record.params[position].address, *record.params[position].aliases))
    return read
