"""The record: plain data about one run of a model. Everything torcheer shows is read from it.

Nothing here knows PyTorch: dtypes and devices are strings, tensors are numbers into tables, and the
tensors' contents live apart (``payload.py``). A record is filled by a room under ``capture/`` and is not
changed afterwards, except that a backward pass adds to it.

Tables refer to one another by position: ``Op.call`` is an index into ``Record.calls``, and so on.
"""

from __future__ import annotations

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

    type_name: str


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

    file: str
    line: int
    function: str


@dataclass(slots=True)
class Site:
    """A call site: the way down from the module's forward to the call."""

    frames: tuple[Frame, ...]  # outermost (the module's forward) first


@dataclass(slots=True)
class Value:
    """A tensor as one op left it. An in-place write makes a new value of the same storage."""

    index: int
    kind: str  # "activation" | "input" | "param" | "buffer" | "constant" (made outside the run)
    producer: int | None  # the function-level op that made it: index into Record.ops
    shape: Shape  # -1: not the same in every row (nested tensors), or symbolic
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    layout: str  # "strided" | "sparse_coo" | "jagged" | …
    stride: Shape | None  # None where the layout has none
    offset: int  # storage offset, in elements
    storage: int | None  # number of its storage within the run; None where there is none to see
    version: int  # how many writes this storage had seen when the value came to be
    size_bytes: int | None  # None: unknown
    requires_grad: bool = False
    grad_function: str | None = None  # "ConvolutionBackward0"
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
    kwargs: dict[str, Any] | None = None
    inputs: tuple[int, ...] = ()  # values read, arguments first, then memory read without being one
    outputs: tuple[Item, ...] = ()  # tensors returned
    writes: tuple[int, ...] = ()  # values overwritten in place, as they were before
    parents: tuple[Edge, ...] = ()
    owner: int | None = None  # of an ATen op, or of an op inside an op: the function-level op around it
    aten: tuple[int, ...] = ()  # its ATen ops: indices into Record.aten
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


@dataclass(slots=True)
class Layer:
    """Ops of one identity: one entry of the listing. A loop makes several passes of one layer."""

    label: str  # "conv2d_3_7"
    name: str  # "conv2d"
    number: int  # the 3rd conv2d
    position: int  # the 7th layer overall; inputs count, from 0
    ops: tuple[int, ...]  # its passes, in order


@dataclass(slots=True)
class Module:
    """A module of the model as it stands, called or not."""

    address: str  # "features.6"; "" for the model itself
    type_name: str  # "Conv2d"
    qualified_type: str  # "torch.nn.modules.conv.Conv2d"
    parent: int | None  # index into Record.modules
    params: tuple[int, ...] = ()  # its own params and buffers, without its children's
    aliases: tuple[str, ...] = ()  # further addresses of the same object
    extra: str = ""  # extra_repr: "64, 192, kernel_size=(5, 5)"
    training: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)  # public plain attributes


@dataclass(slots=True)
class ModuleCall:
    """One use of a module. The model's own call is call 0."""

    index: int
    module: int  # index into Record.modules
    call_index: int  # which call of that module, from 1
    parent: int | None  # the call it happened in
    depth: int
    site: int | None  # where in the parent's forward
    inputs: tuple[Item, ...] = ()
    outputs: tuple[Item, ...] = ()
    first_op: int = 0  # its ops are Record.ops[first_op:end_op]
    end_op: int = 0
    start_ns: int | None = None
    time_ns: int | None = None
    training: bool = True
    seq: tuple[int, int] | None = None
    thread: int = 0  # 0: the thread of the capture
    error: str | None = None  # "ValueError: …" when it raised


@dataclass(slots=True)
class Param:
    """A parameter or buffer of the model."""

    address: str
    kind: str  # "param" | "buffer"
    shape: Shape
    dtype: str
    device: str
    size_bytes: int | None
    num_elements: int | None
    requires_grad: bool
    aliases: tuple[str, ...] = ()  # further addresses of the same tensor (tied weights)


@dataclass(slots=True)
class Gradient:
    """A gradient seen in a backward pass."""

    backward: int  # which recorded backward pass, from 1
    value: int | None  # the activation it belongs to: index into Record.values
    param: int | None  # or the parameter
    shape: Shape
    dtype: str
    size_bytes: int | None
    payload: str | None = None  # name of its contents in the payload store; None: not kept


class Diagnostic(NamedTuple):
    """Something the reader must know to read the record rightly."""

    code: str  # "thread-not-recorded", "unknown-origin"
    message: str
    op: int | None = None
    module: int | None = None


@dataclass(slots=True)
class Run:
    """Where, when and how the run happened."""

    model: str  # class name of the model
    framework: str = "torch"
    framework_version: str = ""
    torcheer_version: str = ""
    python_version: str = ""
    seed: int | None = None  # of the default generator; observing does not change it
    grad_enabled: bool = True
    training: bool = True
    time_ns: int | None = None  # wall time of the model's call, recording included
    num_backward: int = 0
    output_structure: str = ""  # "Tensor", "tuple", "CausalLMOutput"
    output_data: Any = None  # outputs that are not tensors: plain data by path
    error: str | None = None  # the exception that ended the run


@dataclass(slots=True)
class Record:
    """One run. Tables are in order of execution."""

    run: Run
    ops: list[Op] = field(default_factory=list)
    aten: list[Op] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    saved: dict[int, str] = field(default_factory=dict)  # value → name of its contents in the payload store
