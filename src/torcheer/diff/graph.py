"""A run as a graph of values, in the form that comparing needs.

Ops are the ATen calls of the forward pass. Values that differ by layout alone (a view, a transpose, a copy) are one
*class*: they hold the same numbers. What an op reads is a set of classes; where memory was written under a tensor, also
the classes of what was written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.side import Recording
from torcheer.record.model import Op, Record, Ref, Value
from torcheer.record.payload import Payloads, is_kept

# They show or copy the numbers they are given, each of them, and nothing else.
_LAYOUT = frozenset(
    "view _unsafe_view reshape _reshape_alias transpose transpose_ t permute unsqueeze unsqueeze_ squeeze squeeze_"
    " expand clone contiguous alias detach detach_ lift_fresh view_copy expand_copy movedim flatten unflatten"
    " swapaxes pixel_shuffle pixel_unshuffle _conj resolve_conj".split()
)
# They pick or join numbers they are given.
_SELECTION = frozenset(
    "slice select split split_with_sizes chunk unbind cat stack index_select gather index narrow roll flip repeat"
    " repeat_interleave constant_pad_nd as_strided unfold im2col view_as_real view_as_complex real imag diagonal"
    " pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d copy_ copy setitem tril triu"
    " scatter scatter_ index_copy index_copy_ masked_scatter masked_scatter_ masked_select index_fill index_fill_"
    " take take_along_dim channel_shuffle rot90 hstack vstack unsafe_split unsafe_chunk slice_scatter"
    " select_scatter _pack_padded_sequence _pad_packed_sequence complex rot90 index_put index_put_ unsafe_index"
    " _unsafe_index new_zeros zeros_like zeros new_empty".split()
)


_PLAIN = frozenset("ones ones_like zeros zeros_like eye".split())


def computes(function: str) -> bool:
    """Whether an ATen function computes numbers, rather than picking, copying or drawing them."""
    name = function.split(".")[1] if function.count(".") else function
    unfilled = name.startswith(("empty", "new_", "full", "ones", "arange", "scalar_tensor"))
    return not unfilled and name not in _LAYOUT and name not in _SELECTION and name not in _RANDOM


_FLOATS = ("float", "bfloat", "complex")
_RANDOM = frozenset(
    "native_dropout bernoulli bernoulli_ rand rand_like randn randn_like normal normal_ uniform_ randint randperm"
    " multinomial _fused_dropout feature_dropout alpha_dropout exponential_ randint_like rrelu_with_noise".split()
)


@dataclass(slots=True)
class Node:
    """One ATen call, or what a function-level op wrote that no single ATen call returned."""

    index: int  # position in Graph.nodes
    name: str  # "addmm"
    op: Op | None  # the call; None: written piece by piece
    inputs: tuple[int, ...]  # values read, memory written under them included
    outputs: tuple[int, ...]  # values returned that hold numbers
    owner: int  # function-level op: index into Record.ops

    @property
    def is_layout(self) -> bool:
        """Whether it changes no number."""
        return self.name in _LAYOUT

    @property
    def is_selection(self) -> bool:
        """Whether it picks or joins numbers and computes none."""
        return self.name in _SELECTION

    @property
    def is_plain(self) -> bool:
        """Whether it makes a constant in which no number is chosen: ones, the identity, 0, 1, 2, …"""
        if self.inputs or self.op is None:
            return False
        counts = (
            self.name == "arange" and (len(self.op.args) == 1 or self.op.args[:1] == (0,)) and len(self.op.args) < 3
        )
        return counts or self.name in _PLAIN

    @property
    def is_scaling(self) -> bool:
        """Whether it multiplies one tensor by a number."""
        scales = self.name in ("mul", "div", "mul_", "div_") and self.op is not None and len(self.inputs) == 1
        return scales and self.op is not None and any(type(arg) in (int, float) for arg in self.op.args)

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return self.name in _RANDOM and not (
            self.op is not None and self.name == "native_dropout" and _no_drop(self.op)
        )


def _no_drop(op: Op) -> bool:
    return len(op.args) > 2 and (op.args[2] is False or op.args[1] == 0.0)


@dataclass(slots=True)
class Output:
    """One tensor the model returned."""

    path: str
    value: int


@dataclass
class Graph:
    """One run."""

    recording: Recording
    picked: tuple[str, ...] | None = None  # paths of the outputs to compare; None: all
    nodes: list[Node] = field(default_factory=list)
    producer: dict[int, int] = field(default_factory=dict)  # value → node
    readers: dict[int, list[int]] = field(default_factory=dict)  # class → nodes
    handed_on: dict[int, int] = field(default_factory=dict)  # value → the one that a function gave back as it was
    _root: dict[int, int] = field(default_factory=dict)
    _arrays: dict[int, Array] = field(default_factory=dict)

    @property
    def record(self) -> Record:
        """The record of the run."""
        return self.recording.record

    @property
    def payloads(self) -> Payloads:
        """Its contents."""
        return self.recording.payloads

    def class_of(self, value: int) -> int:
        """The value that stands for all that hold the same numbers as this one: the first of them."""
        root = self._root
        while (up := root.get(value, value)) != value:
            value = up
        return value

    def members(self, cls: int) -> list[int]:
        """All values of a class, in order."""
        return self._members.get(cls, [cls])

    @cached_property
    def _members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for value in self.record.values:
            found.setdefault(self.class_of(value.index), []).append(value.index)
        return found

    def value(self, index: int) -> Value:
        """The record's entry of a value."""
        return self.record.values[index]

    def has_contents(self, value: int) -> bool:
        """Whether the numbers of a value were kept."""
        name = self.record.saved.get(value)
        return name is not None and is_kept(self.payloads, name)

    def array(self, value: int) -> Array:
        """The numbers of a value."""
        return as_array(self.payloads[self.record.saved[value]])

    @cached_property
    def classes(self) -> list[int]:
        """Every class whose numbers are known, in order of execution."""
        return [cls for cls in sorted(self._members) if self.content_member(cls) is not None]

    def content_member(self, cls: int) -> int | None:
        """A member of a class whose numbers were kept; the first one, which is seldom a view."""
        for value in self.members(cls):
            if self.has_contents(value) and -1 not in self.value(value).shape:
                return value
        return None

    @cached_property
    def outputs(self) -> list[Output]:
        """What the model returned, or of that what was picked for comparison."""
        by_path = {output.path: output for output in self.every_output}
        return self.every_output if self.picked is None else [by_path[path] for path in self.picked]

    @cached_property
    def every_output(self) -> list[Output]:
        """All tensors the model returned."""
        return [
            Output(item.path, op.inputs[0])
            for op in self.record.ops
            if op.kind == "output"
            for item in op.outputs
            if op.inputs
        ]

    @cached_property
    def inputs(self) -> list[Output]:
        """What the model was given."""
        return [Output(item.path, item.value) for op in self.record.ops if op.kind == "input" for item in op.outputs]

    @cached_property
    def side_classes(self) -> frozenset[int]:
        """Classes that carry no data: masks, positions, rotary tables, what is made of weights alone."""
        main: set[int] = set()
        trained: set[int] = set()
        given: set[int] = set()  # follows from integers the model was given
        for value in self.record.values:
            if value.index not in self.producer:
                floating, cls = value.dtype.startswith(_FLOATS), self.class_of(value.index)
                kind = {"param": trained, "input": main if floating else given}.get(value.kind)
                if kind is not None:
                    kind.add(cls)
        for node in self.nodes:
            reads = {self.class_of(value) for value in node.inputs}
            makes = [self.class_of(value) for value in node.outputs]
            if reads & main or (reads & trained and reads & given):
                main.update(makes)
            else:
                trained.update(makes if reads & trained else ())
                given.update(makes if reads & given else ())
        return frozenset(cls for cls in self._members if cls not in main)


def build(recording: Recording, picked: tuple[str, ...] | None = None) -> Graph:
    """The graph of a recorded run."""
    graph = Graph(recording, picked)
    record = recording.record
    written_by: dict[int, list[int]] = {}  # function-level op → values it returned that no ATen call did
    returned = {item.value for op in record.aten if op.phase == "forward" for item in op.outputs}
    for op in record.ops:
        if op.kind == "op":
            made = [item.value for item in op.outputs if record.values[item.value].producer == op.index]
            extra = [value for value in made if value not in returned]
            if extra and op.aten:
                written_by[max(op.aten)] = extra
            elif extra:
                _join_handed_on(graph, op, extra)
    for op in record.aten:
        if op.phase != "forward":
            continue
        _add(graph, op)
        for value in written_by.get(op.index, ()):
            _add_written(graph, record.ops[op.owner or 0], value)
    for node in graph.nodes:
        for cls in {graph.class_of(value) for value in node.inputs}:
            graph.readers.setdefault(cls, []).append(node.index)
    return graph


def _join_handed_on(graph: Graph, op: Op, returned: list[int]) -> None:
    """A function that does nothing returns what it was given: dropout in evaluation, ``to`` with nothing to change."""
    values = graph.record.values
    places = {_place(values[given]): given for given in op.inputs if values[given].storage is not None}
    for value in returned:
        given = places.get(_place(values[value]))
        if given is not None and given != value:
            graph._root[value] = graph.class_of(given)
            graph.handed_on[value] = given


def _place(value: Value) -> tuple[Any, ...]:
    return value.storage, value.version, value.offset, value.shape, value.stride, value.dtype


def _add(graph: Graph, op: Op) -> None:
    record = graph.record
    name = op.function.split(".")[1] if op.function.count(".") else op.function
    reads = dict.fromkeys(op.inputs)
    reads.update(dict.fromkeys(edge.value for edge in op.parents if edge.how == "memory"))
    outputs = tuple(item.value for item in op.outputs)
    if name.startswith(("empty", "new_empty")):
        outputs = ()
    node = Node(len(graph.nodes), name, op, tuple(reads), outputs, op.owner if op.owner is not None else -1)
    graph.nodes.append(node)
    for value in outputs:
        graph.producer.setdefault(value, node.index)
    source = _same_numbers(record, op, name)
    if source is not None and len(outputs) == 1:
        graph._root[outputs[0]] = graph.class_of(source)


def _same_numbers(record: Record, op: Op, name: str) -> int | None:
    """The value whose numbers an op hands on, if that is all it does."""
    if not op.inputs or not op.outputs:
        return None
    source, result = record.values[op.inputs[0]], record.values[op.outputs[0].value]
    has_memory = any(edge.how == "memory" for edge in op.parents)
    if name in _LAYOUT:
        return None if has_memory else source.index
    if name == "_to_copy" and not has_memory:
        # Rounding to a narrower type is a step of its own.
        both = source.dtype, result.dtype
        return source.index if both[0] == both[1] or both in _WIDENINGS else None
    if name in ("copy_", "copy") and len(op.inputs) > 1:
        source = record.values[op.inputs[1]]
        return source.index if source.shape == result.shape and source.dtype == result.dtype else None
    return None


_WIDENINGS = {("float32", "float64"), ("bfloat16", "float32"), ("float16", "float32"), ("int32", "int64")}


def _add_written(graph: Graph, op: Op, value: int) -> None:
    """A tensor as a function-level op left it, having written pieces of it."""
    pieces = [v for aten in op.aten for v in graph.record.aten[aten].inputs if v not in op.inputs]
    inputs = tuple(dict.fromkeys([*op.inputs, *pieces]))
    node = Node(len(graph.nodes), "setitem", None, inputs, (value,), op.index)
    graph.nodes.append(node)
    graph.producer.setdefault(value, node.index)


def plain_arguments(op: Op) -> tuple[Any, ...]:
    """Arguments of a call that are no tensors, in order."""

    def plain(value: Any) -> Any:
        if isinstance(value, Ref):
            return "tensor"
        return tuple(plain(item) for item in value) if isinstance(value, (tuple, list)) else value

    return tuple(plain(value) for value in op.args)
