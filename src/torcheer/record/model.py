"""The record: plain data about one run of a model. Everything torcheer shows is read from it.

Nothing here knows PyTorch: dtypes and devices are strings, tensors are numbers into tables, and the
tensors' contents live apart (``payload.py``). A record is filled by a room under ``capture/`` and is not
changed afterwards, except that a backward pass adds to it.

Tables refer to one another by position: ``Op.call`` is an index into ``Record.calls``, and so on.

What holds in every record, of a run that raised too:

- Tables are in order of execution. An op comes after its parents, and an owner before what it owns.
- An op with ``owner`` None is in the listing and has a layer; an op inside another has none (``layer`` is -1).
- ``Op.parents`` may point at an op inside another only where the reading op is inside that other one too; seen
  from outside, what happens inside an op is that op's.
- The ops of kind "input" and "output" stand for the tensors the model was given and returned, one each. Their
  ``outputs`` hold that tensor with its path; an output op's ``inputs`` hold it as the model's last op left it.
- ``Op.aten`` lists the ATen ops of all phases, in order: the forward's, then those of each backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Shape = tuple[int, ...]


class Ref(int):
    """Stands for a tensor inside an op's ``args``: the index of its value in ``Record.values``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Ref({int(self)})"


class Opaque(NamedTuple):
    """Stands inside ``args`` for an object that is neither a tensor nor plain data."""

    type_name: str  # class name of the object: "Generator"


class Item(NamedTuple):
    """One tensor inside a nested structure, and where it sits."""

    path: str  # "" for a bare tensor, else such as "0", "1.hidden", "logits"
    value: int  # index into Record.values


class Edge(NamedTuple):
    """A tensor that flows from one op into another."""

    op: int  # the parent: index into Record.ops (or Record.aten, for ATen ops)
    value: int  # the tensor that flows: index into Record.values
    how: str  # "argument": the op was given it; "memory": written in place into memory the op read
    argument: str  # where the reading op has it: "0", "1.2", "weight"; "" if not among its arguments


class Frame(NamedTuple):
    """One line of source."""

    file: str  # path of the source file, as Python has it: absolute, or such as "<string>"
    line: int  # from 1
    function: str  # qualified name where Python knows it: "AlexNet.forward"


@dataclass(slots=True)
class Site:
    """A call site: the way down from the module's forward to the call."""

    frames: tuple[Frame, ...]  # outermost (the module's forward) first


@dataclass(slots=True)
class Value:
    """A tensor as one op left it. An in-place write makes a new value of the same storage."""

    index: int  # position in Record.values
    kind: str  # "activation" | "input" | "param" | "buffer" | "constant" (made outside the run)
    producer: int | None  # the function-level op that made it: index into Record.ops
    shape: Shape  # sizes of its dimensions; -1: not the same in every row (nested tensors), or symbolic
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    layout: str  # "strided" | "sparse_coo" | "jagged" | …
    stride: Shape | None  # None where the layout has none
    offset: int  # storage offset, in elements
    storage: int | None  # number of its storage within the run; None where there is none to see
    version: int  # how many writes this storage had seen when the value came to be
    size_bytes: int | None  # None: unknown
    requires_grad: bool = False  # whether autograd follows it
    grad_function: str | None = None  # class of the autograd node that made it: "ConvolutionBackward0"
    param: int | None = None  # index into Record.params for kinds "param" and "buffer"
    node_seq: int | None = None  # sequence number of the autograd node that made it
    node_output: int = 0  # which output of that node it is


@dataclass(slots=True)
class Op:
    """One operation: a call people recognise (``Record.ops``) or an ATen call (``Record.aten``)."""

    index: int  # position in its table
    kind: str  # "input" | "op" | "output"
    name: str  # lower case, no underscores: "conv2d", "add", "maxpool2d"
    function: str  # "torch.conv2d", "torch.Tensor.add_", "aten.addmm.default", "autograd.MyFunction"
    call: int  # innermost module call around it: index into Record.calls
    site: int | None  # index into Record.sites
    args: tuple[Any, ...] = ()  # plain data; tensors as Ref, other objects as Opaque
    kwargs: dict[str, Any] | None = None  # keyword arguments, in the form of args; None: none given
    hidden: tuple[int, ...] = ()  # values read that are not among its arguments
    outputs: tuple[Item, ...] = ()  # tensors returned, and where each sat in what was returned
    writes: tuple[int, ...] = ()  # values overwritten in place, as they were before
    parents: tuple[Edge, ...] = ()  # tensors that flow into it from ops of its level, in order of its arguments
    owner: int | None = None  # of an ATen op, or of an op inside an op: the function-level op around it
    aten: tuple[int, ...] = ()  # its ATen ops of all phases: indices into Record.aten
    params: tuple[int, ...] = ()  # params and buffers read: indices into Record.params
    layer: int = -1  # index into Record.layers (function level only)
    pass_index: int = 1  # which pass of its layer, from 1
    start_ns: int | None = None  # since the start of the run
    time_ns: int | None = None  # wall time of the call, children included
    seq: tuple[int, int] | None = None  # autograd sequence numbers [first, last) of the nodes it made
    result: Any = None  # what it returned, where that is plain data and not a tensor: True, 3.5
    phase: str = "forward"  # "forward" | "backward" | "recompute" (ATen level)
    backward_time_ns: int | None = None  # wall time of its nodes in the last recorded backward pass
    node: str | None = None  # ATen op of a backward pass: the autograd node that ran it

    @property
    def inputs(self) -> tuple[int, ...]:
        """Values read, each once: those among its arguments first, then the hidden ones."""
        found = dict.fromkeys(refs_in(self.args))
        if self.kwargs:
            found.update(dict.fromkeys(refs_in(self.kwargs)))
        found.update(dict.fromkeys(self.hidden))
        return tuple(found)


def refs_in(structure: Any) -> Iterator[int]:
    """The values that a structure of arguments stands for, in order."""
    if isinstance(structure, Ref):
        yield int(structure)
    elif isinstance(structure, (tuple, list)):
        for item in structure:
            yield from refs_in(item)
    elif isinstance(structure, dict):
        for item in structure.values():
            yield from refs_in(item)
    elif isinstance(structure, slice):
        yield from refs_in((structure.start, structure.stop, structure.step))


@dataclass(slots=True)
class Layer:
    """Ops of one identity: one entry of the listing. A loop makes several passes of one layer."""

    name: str  # "conv2d"
    number: int  # the 3rd conv2d
    position: int  # the 7th layer overall; inputs count, from 0
    ops: tuple[int, ...]  # its passes, in order

    @property
    def label(self) -> str:
        """``conv2d_3_7``"""
        return f"{self.name}_{self.number}_{self.position}"


@dataclass(slots=True)
class Module:
    """A module of the model as it stands, called or not."""

    address: str  # "features.6"; "" for the model itself
    type_name: str  # "Conv2d"
    qualified_type: str  # "torch.nn.modules.conv.Conv2d"
    parent: int | None  # the module that holds it: index into Record.modules; None for the model itself
    params: tuple[int, ...] = ()  # its own params and buffers, without its children's: indices into Record.params
    aliases: tuple[str, ...] = ()  # further addresses of the same object
    extra: str = ""  # extra_repr: "64, 192, kernel_size=(5, 5)"
    training: bool = True  # in training mode, after the run
    attributes: dict[str, Any] = field(default_factory=dict)  # public attributes that are plain data, by name


@dataclass(slots=True)
class ModuleCall:
    """One use of a module. The model's own call is call 0."""

    index: int  # position in Record.calls
    module: int  # the module called: index into Record.modules
    call_index: int  # which call of that module, from 1
    parent: int | None  # the call it happened in: index into Record.calls; None for the model's own
    depth: int  # number of calls around it
    site: int | None  # where in the parent's forward: index into Record.sites
    inputs: tuple[Item, ...] = ()  # tensors it was given, with their places among its arguments
    outputs: tuple[Item, ...] = ()  # tensors it returned, with their places in what it returned
    first_op: int = 0  # its ops, those of calls inside included, are Record.ops[first_op:end_op]
    end_op: int = 0  # one past its last op
    start_ns: int | None = None  # since the start of the run
    time_ns: int | None = None  # wall time, calls inside included
    training: bool = True  # whether the module was in training mode
    seq: tuple[int, int] | None = None  # autograd sequence numbers [first, last) of the nodes made inside
    thread: int = 0  # 0: the thread of the capture
    error: str | None = None  # "ValueError: …" when it raised
    memory: tuple[int, int] | None = None  # its forward is Record.memory[first:end]; None: not measured


@dataclass(slots=True)
class Param:
    """A parameter or buffer of the model."""

    address: str  # "features.6.weight"
    kind: str  # "param" | "buffer"
    shape: Shape  # sizes of its dimensions
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    size_bytes: int | None  # bytes of its elements; None: unknown
    num_elements: int | None  # how many numbers it holds; None: unknown
    requires_grad: bool  # whether it is trained
    aliases: tuple[str, ...] = ()  # further addresses of the same tensor (tied weights)


@dataclass(slots=True)
class Gradient:
    """A gradient seen in a backward pass."""

    backward: int  # which recorded backward pass, from 1
    value: int | None  # the activation it belongs to: index into Record.values
    param: int | None  # or the parameter: index into Record.params
    shape: Shape  # sizes of its dimensions
    dtype: str  # "float32"
    size_bytes: int | None  # bytes of its elements; None: unknown
    payload: str | None = None  # name of its contents in the payload store; None: not kept
    is_finite: bool | None = None  # False: it holds NaN or Inf; None: not checked


class Timing(NamedTuple):
    """How long something took, over the repeats of a time pass. What recording itself costs is subtracted."""

    kind: str  # "call": a module call without the calls in it; "op"; "run": what belongs to no call
    target: int  # index into Record.calls or Record.ops; 0 for "run"
    phase: str  # "forward" | "backward" | "accumulate" (into gradients of params) | "recompute" | "engine" | "outside"
    time_ns: int  # median over the repeats
    min_ns: int  # of the fastest repeat
    spread_ns: int  # between the quartiles of the repeats; 0 of a single one
    num_repeats: int  # how many were measured


class MemoryEvent(NamedTuple):
    """Memory of one storage came to be, grew, shrank or was given back."""

    storage: int  # number of the storage, as in Value.storage
    delta_bytes: int  # positive: taken; negative: given back
    aten: int  # the last ATen op begun before: index into Record.aten; -1: none yet
    role: str  # "activation" | "temporary" | "gradient" | "optimizer" | "output"


class SavedTensor(NamedTuple):
    """A tensor that an autograd node holds for the backward pass."""

    op: int | None  # the function-level op whose node it is: index into Record.ops
    storage: int  # number of its storage, as in Value.storage; below -1: one no op was seen to make
    size_bytes: int  # of the whole storage, which is what is kept in memory
    role: str  # "activation" | "param" | "buffer" | "input"


class TensorFacts(NamedTuple):
    """The contents of a tensor in numbers."""

    place: str  # where the op has it: "input 0", "output"
    num_elements: int  # how many numbers it holds
    nan: int  # how many of them are NaN
    pos_inf: int  # +Inf
    neg_inf: int  # -Inf
    smallest: float | None  # of the finite ones; None: there is none
    largest: float | None  # of the finite ones


class NonFinite(NamedTuple):
    """An ATen op returned NaN or Inf."""

    aten: int  # the op: index into Record.aten
    output: int  # which of its output tensors
    facts: TensorFacts  # of that output
    inputs: tuple[TensorFacts, ...] = ()  # of the tensors it was given, as they were
    reaches: str = ""  # "output" | "gradient" where that is known without following it op by op


class Part(NamedTuple):
    """What this process has of a tensor that is spread over several. Contents kept of such a tensor are this part."""

    value: int | None  # the tensor: index into Record.values
    param: int | None  # or index into Record.params
    mesh: Shape  # the processes it is spread over, as a grid: (2, 4)
    coordinate: Shape  # place of this process in that grid; empty: it is not among them
    placements: tuple[str, ...]  # per axis of the grid: "S(0)" cut along a dimension, "R" whole, "P(sum)" a summand
    shape: Shape  # of this process's part
    gradient: int | None = None  # or the tensor is one of Record.gradients: index into it


class Diagnostic(NamedTuple):
    """Something the reader must know to read the record rightly."""

    code: str  # "thread-not-recorded", "unknown-origin"
    message: str  # what it is and what to do about it, for people
    op: int | None = None  # the op it is about: index into Record.ops
    module: int | None = None  # the module it is about: index into Record.modules

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(slots=True)
class Run:
    """Where, when and how the run happened."""

    model: str  # class name of the model
    framework: str = "torch"  # which framework ran it
    framework_version: str = ""  # "2.13.0+cpu"
    torcheer_version: str = ""  # of the torcheer that recorded it
    python_version: str = ""  # "3.11.7"
    seed: int | None = None  # of the default generator; observing does not change it
    grad_enabled: bool = True  # whether autograd was on when it began
    training: bool = True  # whether the model was in training mode
    time_ns: int | None = None  # wall time of the model's call, recording included
    num_backward: int = 0  # how many backward passes have been recorded
    output_structure: str = ""  # class of what the model returned: "Tensor", "tuple", "CausalLMOutput"
    output_data: Any = None  # outputs that are not tensors: plain data by path
    error: str | None = None  # the exception that ended the run
    execution: str = "real"  # "real" | "fake": shapes only, nothing was computed
    measured: tuple[str, ...] = ()  # what was switched on: "time", "memory", "flops", "nan"
    clock: str | None = None  # of Record.timings: the host's, "wall" or "thread", or "device", the accelerator's own
    num_repeats: int = 0  # of the time pass
    num_warm_up: int = 0  # runs before it that were not measured
    rank: int | None = None  # of this process among those that ran the model together; None: there was one only
    world_size: int | None = None  # how many of them
    num_threads: int | None = None  # that the CPU's kernels were given


@dataclass(slots=True)
class Record:
    """One run: its tables."""

    run: Run  # where, when and how it happened
    ops: list[Op] = field(default_factory=list)  # the function level: calls people recognise
    aten: list[Op] = field(default_factory=list)  # the ATen level: forward, then each backward pass
    values: list[Value] = field(default_factory=list)  # tensors as ops left them
    layers: list[Layer] = field(default_factory=list)  # identities of ops, by their first pass
    modules: list[Module] = field(default_factory=list)  # all modules, called or not; the model itself is the first
    calls: list[ModuleCall] = field(default_factory=list)  # uses of modules; the model's own is the first
    params: list[Param] = field(default_factory=list)  # params and buffers of all modules, each once
    sites: list[Site] = field(default_factory=list)  # call sites, each once
    gradients: list[Gradient] = field(default_factory=list)  # those of recorded backward passes, in order
    diagnostics: list[Diagnostic] = field(default_factory=list)  # what the reader must know
    saved: dict[int, str] = field(default_factory=dict)  # value → name of its contents in the payload store
    timings: list[Timing] = field(default_factory=list)  # of a time pass
    memory: list[MemoryEvent] = field(default_factory=list)  # in order; baseline: what was there before the run
    held: list[SavedTensor] = field(default_factory=list)  # what the graph holds after the forward pass
    parts: list[Part] = field(default_factory=list)  # tensors spread over processes (DTensor), of which this has a part
    nonfinite: list[NonFinite] = field(default_factory=list)  # ops that returned NaN or Inf, in order
