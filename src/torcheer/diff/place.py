"""Where in a run something happened, in the user's terms: op, module, source line, stack, arguments."""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass, field
from typing import Any

from torcheer.diff.graph import Graph, Node
from torcheer.record.model import Frame, Op, Record, Ref

_FRAMEWORKS = ("/site-packages/torch/", "/dist-packages/torch/", "/site-packages/paddle/", "/dist-packages/paddle/")


@dataclass(slots=True)
class Line:
    """One line of source on the way to an op."""

    file: str
    line: int
    function: str
    text: str = ""

    @property
    def where(self) -> str:
        """File, as short as it is clear, number and function."""
        return f"{short_path(self.file)}:{self.line} in {self.function}"

    def __str__(self) -> str:
        return self.where + (f": {self.text}" if self.text else "")


def short_path(file: str) -> str:
    """A file below the current folder from there, one of an installed package from the package."""
    for packages in ("/site-packages/", "/dist-packages/"):
        if packages in file:
            return file.rpartition(packages)[2]
    here = os.getcwd().rstrip("/") + "/"
    return file.removeprefix(here)


@dataclass(slots=True)
class Place:
    """One op of one side."""

    op: str  # its label: "layernorm_3_41"
    function: str  # "torch.nn.functional.layer_norm"
    aten: str  # the ATen call inside it: "native_layer_norm"
    module: str  # address of the innermost module
    module_type: str
    frame: Line | None  # the innermost line that is not the framework's
    stack: list[Line] = field(default_factory=list)  # the model's forward first
    params: list[str] = field(default_factory=list)  # params and buffers it reads
    arguments: str = ""  # what it was given besides: "normalized_shape=(8,), eps=1e-05"

    def __str__(self) -> str:
        where = f" in {self.module} ({self.module_type})" if self.module else f" in the model ({self.module_type})"
        return f"{self.op} ({self.aten}){where}" + (f"\n    {self.frame}" if self.frame else "")


def place_of(graph: Graph, node: Node) -> Place:
    """The place of an op."""
    record = graph.record
    owner = record.ops[node.owner] if node.owner >= 0 else None
    op = node.op or owner
    assert op is not None
    call = record.calls[op.call] if record.calls else None
    module = record.modules[call.module] if call is not None and record.modules else None
    stack = _stack(record, owner or op)
    mine = [line for line in stack if not any(part in line.file for part in _FRAMEWORKS)]
    params = [record.params[index].address for index in (owner.params if owner is not None else op.params)]
    for value in node.inputs:
        entry = graph.value(graph.class_of(value))
        if entry.param is not None and record.params[entry.param].address not in params:
            params.append(record.params[entry.param].address)
    return Place(
        label_of(record, owner) if owner is not None else f"aten {node.index}",
        owner.function if owner is not None else op.function,
        node.name,
        module.address if module is not None else "",
        module.type_name if module is not None else record.run.model,
        mine[-1] if mine else (stack[-1] if stack else None),
        stack,
        params,
        _arguments(op),
    )


def label_of(record: Record, op: Op) -> str:
    """The label of a function-level op; of one inside another, the outer one's and its own name."""
    if op.layer >= 0:
        layer = record.layers[op.layer]
        return layer.label if len(layer.ops) == 1 else f"{layer.label}:{op.pass_index}"
    if op.owner is not None:
        return f"{label_of(record, record.ops[op.owner])}/{op.name}"
    return op.name


def _stack(record: Record, op: Op) -> list[Line]:
    frames: tuple[Frame, ...] = record.sites[op.site].frames if op.site is not None else ()
    call = record.calls[op.call] if record.calls else None
    while call is not None:
        if call.site is not None:
            frames = record.sites[call.site].frames + frames
        call = record.calls[call.parent] if call.parent is not None else None
    return [Line(f.file, f.line, f.function, linecache.getline(f.file, f.line).strip()) for f in frames]


def _arguments(op: Op) -> str:
    shown = [_shown(value) for value in op.args if not isinstance(value, Ref)]
    shown += [f"{name}={_shown(value)}" for name, value in (op.kwargs or {}).items() if not isinstance(value, Ref)]
    return ", ".join(one for one in shown if one)


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)) and any(isinstance(item, Ref) for item in value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
