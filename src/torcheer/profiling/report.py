"""What a profile is: a tree of rows, their sums, and what the reader must know to read them rightly.

Bytes, nanoseconds and FLOPs are integers. None means unknown, and ``Report.notes`` says why.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any

from torcheer import shown
from torcheer.record.model import Record, Shape
from torcheer.units import bytes_text, count_text, counted_text, flops_text, seconds_text

if TYPE_CHECKING:
    from torcheer.profiling.nonfinite import Finding


@dataclass(slots=True)
class Figures:
    """What adds up. A row has two: of its own work, and with everything inside it."""

    forward_ns: int | None = None  # time of the forward pass
    backward_ns: int | None = None  # time of the autograd nodes made in it, gradients of params included
    recompute_ns: int | None = None  # time of what the backward pass computed again (checkpointing)
    flops_forward: int = 0  # what the mathematics asks for
    flops_backward: int = 0  # the same of the backward pass
    hardware_flops_forward: int = 0  # what kernels do
    hardware_flops_backward: int = 0  # the same of the backward pass, recomputation inside kernels included
    flops_recompute: int = 0  # of what the backward pass computed again
    bytes_read: int = 0  # of tensors its ATen ops were given, forward
    bytes_written: int = 0  # of tensors its ATen ops made, forward
    num_ops: int = 0  # function-level ops
    num_aten: int = 0  # ATen ops of the forward pass
    num_aten_backward: int = 0  # ATen ops of the backward pass
    num_uncounted: int = 0  # calls of operators whose FLOPs nobody knows

    def add(self, other: Figures) -> None:
        """Add another's figures; what is unknown in both stays unknown."""
        for one in fields(Figures):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if theirs is not None:
                setattr(self, one.name, theirs if mine is None else mine + theirs)

    def texts(self) -> list[str]:
        """What is known, for people."""
        times = {"forward": self.forward_ns, "backward": self.backward_ns, "computed again": self.recompute_ns}
        counts = {"forward": self.flops_forward, "backward": self.flops_backward}
        found = [f"{what} {seconds_text(time)}" for what, time in times.items() if time is not None]
        return found + [f"{flops_text(count)} {what}" for what, count in counts.items() if count]

    @property
    def flops(self) -> int:
        """Forward and backward, without recomputation."""
        return self.flops_forward + self.flops_backward

    @property
    def macs_forward(self) -> int:
        """Multiply-adds of the forward pass."""
        return self.flops_forward // 2

    @property
    def time_ns(self) -> int | None:
        """Forward and backward and what was computed again."""
        known = [time for time in (self.forward_ns, self.backward_ns, self.recompute_ns) if time is not None]
        return sum(known) if known else None

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte moved, forward."""
        moved = self.bytes_read + self.bytes_written
        return self.flops_forward / moved if moved else None

    @property
    def flops_per_second(self) -> float | None:
        """What the forward pass achieved."""
        return self.flops_forward / (self.forward_ns / 1e9) if self.forward_ns else None

    @property
    def flops_per_second_backward(self) -> float | None:
        """What the backward pass achieved, by what kernels do."""
        return self.hardware_flops_backward / (self.backward_ns / 1e9) if self.backward_ns else None


@dataclass(slots=True)
class CallMemory:
    """Memory of one module call, in bytes above what was there before the run."""

    entry: int  # held when it began
    peak: int  # the most held at once during its forward
    exit: int  # held when it ended
    new_outputs: int  # of memory it took, what its outputs hold
    held: int  # storages its graph holds for the backward pass, params and buffers apart, each once
    extra_backward: int | None = None  # the most taken beyond gradients while its nodes ran; None: no backward pass

    @property
    def retained(self) -> int:
        """What stays when it ends."""
        return self.exit - self.entry

    @property
    def transient(self) -> int:
        """What was only needed during it."""
        return self.peak - max(self.entry, self.exit)

    @property
    def extra_forward(self) -> int:
        """What it took beyond its outputs."""
        return max(0, self.peak - self.entry - self.new_outputs)


@dataclass(slots=True)
class RowMemory:
    """Memory of all calls of a row, in bytes."""

    needed: int  # the most a call held at once above what was held when it began
    retained: int  # what stayed of all calls when they ended
    transient: int  # the most a call needed only during it
    held: int  # storages the graph holds for the backward pass, params and buffers apart, each once
    extra_forward: int  # the most a call took beyond its outputs
    extra_backward: int | None  # the most taken beyond gradients in the backward pass; None: there was none


@dataclass(slots=True)
class OpRow:
    """A function-level op in the profile."""

    op: int  # index into Record.ops
    label: str  # "conv2d_3_7:1"
    name: str  # "conv2d"
    source: str  # "net.py:12", the innermost line
    shapes: tuple[Shape, ...]  # of what it returned
    figures: Figures

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"{self.label}{where}: {', '.join(self.figures.texts()) or 'nothing measured'}"


@dataclass(slots=True)
class CallRow:
    """One call of a module."""

    call: int  # index into Record.calls
    address: str  # of the module
    call_index: int  # which call of that module, from 1
    parent: int | None  # the call around it
    row: int  # the row of the report it belongs to
    own: Figures  # without the calls in it
    total: Figures  # with them
    memory: CallMemory | None
    inputs: tuple[tuple[Shape, int | None], ...]  # shape and bytes of each tensor it was given
    outputs: tuple[tuple[Shape, int | None], ...]  # shape and bytes of each tensor it returned
    input_gradients: tuple[tuple[Shape, int | None], ...]  # of gradients with respect to its inputs
    output_gradients: tuple[tuple[Shape, int | None], ...]  # of gradients with respect to its outputs
    is_finite: bool | None  # of its outputs; None: not checked
    input_gradients_finite: bool | None  # None: not checked
    output_gradients_finite: bool | None  # None: not checked
    error: str | None  # why it did not end
    ops: list[int] = field(default_factory=list)  # its own ops: indices into Report.ops


@dataclass(slots=True)
class Row:
    """A module at one place of the tree of calls."""

    index: int  # position in Report.rows
    address: str  # "blocks.0.attention"; "" for the model
    name: str  # the same without the parent's: "attention"
    type_name: str  # "Linear"
    module: int  # index into Record.modules
    parent: int | None  # index into Report.rows
    depth: int  # number of rows around it
    own: Figures = field(default_factory=Figures)
    total: Figures = field(default_factory=Figures)
    children: list[int] = field(default_factory=list)  # indices into Report.rows
    calls: list[int] = field(default_factory=list)  # indices into Report.calls; none: it was not called
    num_params: int = 0  # numbers in params of the module and those below it, each param once
    num_trainable: int = 0  # of these, in params that require grad
    params_bytes: int = 0  # bytes of those params
    num_own_params: int = 0  # of its params, what no earlier row has: sums to the model's
    gradient_bytes: int | None = None  # measured bytes of gradients of those params; None: no backward pass
    is_repeat: bool = False  # its module also has an earlier row
    memory: RowMemory | None = None  # None: not measured, or not called

    def __str__(self) -> str:
        parts = [counted_text(len(self.calls), "call"), f"{count_text(self.num_params)} params", *self.total.texts()]
        parts += [] if self.memory is None else [f"needed {bytes_text(self.memory.needed)}"]
        return f"{self.address or self.name} ({self.type_name}): {', '.join(parts)}"


@dataclass(slots=True)
class Uncounted:
    """Calls of an operator whose FLOPs nobody knows."""

    function: str  # "mylib.attention.default"
    num_calls: int
    moved_bytes: int  # bytes it read and wrote


@dataclass(slots=True)
class Totals:
    """The whole run."""

    figures: Figures
    engine_ns: int | None = None  # between autograd nodes: adding gradients, going from one to the next
    outside_ns: int | None = None  # nodes that are not the model's: of the loss
    peak_bytes: int | None = None  # the most held at once, above what was there before the run
    after_forward_bytes: int | None = None  # held when the forward pass ended
    held_bytes: int | None = None  # storages the graph holds for the backward pass, params and buffers apart
    held_params_bytes: int | None = None  # of params and buffers the graph holds, which takes no further memory
    at_peak: dict[str, int] = field(default_factory=dict)  # what held the memory at the peak, by category
    flops_share: float = 1.0  # bytes moved by ATen ops whose FLOPs are known, as a share of all
    time_spread_ns: int | None = None  # between the quartiles of the repeats, of forward and backward together
    unattributed_ns: int | None = None  # backward time of nodes of the model that no module call owns


@dataclass(slots=True)
class Point:
    """A moment on the timeline of memory."""

    aten: int  # the last ATen op before
    phase: str  # "forward" | "backward" | "recompute" | "optimizer"
    row: int | None  # whose op took or gave back: index into Report.rows
    held_bytes: int  # after it
    role: str  # of the storage
    delta_bytes: int = 0  # positive: taken; negative: given back
    taker: int | None = None  # whose op took what was taken or is given back here: index into Report.rows


@dataclass(slots=True, repr=False)
class Report:
    """A profile of one run, or of a run and the timed runs after it."""

    record: Record
    rows: list[Row]
    calls: list[CallRow]
    ops: list[OpRow]
    totals: Totals
    uncounted: list[Uncounted] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    timeline: list[Point] = field(default_factory=list)
    memory_before: dict[str, int] = field(default_factory=dict)  # by category, in bytes: in no point of the timeline
    notes: list[str] = field(default_factory=list)  # what is partial or unknown, and why

    @property
    def is_partial(self) -> bool:
        """Does the sum of FLOPs lack something, or did the run not end?"""
        return bool(self.uncounted) or self.record.run.error is not None

    @property
    def alarms(self) -> list[Finding]:
        """Where NaN or Inf came to be that does harm; masks and what dies out are not among them."""
        return [finding for finding in self.findings if finding.is_alarm]

    def __getitem__(self, address: str) -> Row:
        """The row of a module: by its address, ``""`` for the model."""
        from torcheer.errors import LookupKeyError, near_or_all  # only a lookup needs them

        for row in self.rows:
            if row.address == address:
                return row
        hint = near_or_all(address, [row.address for row in self.rows])
        raise LookupKeyError(f"The profile has no module {address!r}.{hint}")

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        parts = [counted_text(len(self.rows), "module"), *self.totals.figures.texts()]
        return f"<Report of {self.record.run.model}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return f'<pre style="line-height:normal">{escape(self.table())}</pre>'

    def table(
        self,
        *,
        sort: str | None = None,
        depth: int | None = None,
        columns: tuple[str, ...] | None = None,
        ops: bool = False,
        width: int | None = None,
    ) -> str:
        """The profile as a tree in text.

        sort: a column; rows of one parent are then in falling order of it, and otherwise in order of their first call.
        depth: how many levels below the model to show; None: all.
        columns: which to show, by name; None: those that were measured.
        ops: whether to show the ops of each module too.
        width: of the text, in characters; None: as wide as it needs to be.
        """
        return shown.text("profile", self, sort=sort, depth=depth, columns=columns, ops=ops, width=width)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        from torcheer.profiling.export import to_dict  # it reads this module's types

        return to_dict(self)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Everything as JSON text, and into a file if a path is given."""
        return shown.written(shown.json_text(self.to_dict()), path)

    def to_inspector_gadgets(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The JSON of Inspector Gadgets: same names and nesting; megabytes (10⁶) and milliseconds."""
        from torcheer.profiling.gadgets import to_inspector_gadgets  # it reads this module's types

        data = to_inspector_gadgets(self)
        shown.written(shown.json_text(data), path)
        return data

    def to_chrome_trace(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """A trace for Perfetto or chrome://tracing: module calls and ops on a time axis, memory as a counter."""
        from torcheer.profiling.chrome import to_chrome_trace  # it reads this module's types

        data = to_chrome_trace(self)
        shown.written(shown.json_text(data), path)
        return data

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One HTML file, complete in itself, and into a file if a path is given."""
        return shown.written(shown.html("profile", self), path)
