"""Where NaN and Inf come from.

An op that returns NaN or Inf and was given none is an origin. What it returns is handed on; those ops are
*propagated* and belong to the origin. A ``-inf`` that an op was told to write is a *mask* and no alarm: every
attention with a mask makes some. An Inf of another origin is an alarm once it reaches a NaN, the model's output or a
gradient; T5's ``log(0)``, whose result is thrown away, reaches none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torcheer.record.frames import source
from torcheer.record.model import NonFinite, Op, Record, TensorFacts

# Operators that write a number they are given. With an infinite one, the infinity is meant.
_WRITES_A_NUMBER = ("full", "fill", "scalar_tensor", "masked_fill", "where", "full_like", "new_full", "constant_pad")
_HANDS_ON = ("lift_fresh", "_to_copy", "copy", "clone", "detach", "tril", "triu")


@dataclass(slots=True)
class Finding:
    """An op that returned NaN or Inf."""

    kind: str  # "nan" | "inf" | "mask" | "given" (it came in with an input or param) | "propagated"
    aten: int  # index into Record.aten
    op: int | None  # the function-level op it belongs to: index into Record.ops
    phase: str  # "forward" | "backward" | "recompute"
    function: str  # "aten.div.Tensor"
    node: str | None  # in a backward pass: the autograd node that ran it
    module: str  # address of the module it happened in; "" for the model itself or outside of any
    source: str  # "net.py:12" of the call, innermost line; "" if not known
    facts: TensorFacts  # of what it returned
    inputs: tuple[TensorFacts, ...]  # of what it was given
    origin: int | None = None  # of a propagated one: index of the finding it comes from
    reaches: str = ""  # "" | "nan" | "output" | "gradient": the worst it came to
    is_alarm: bool = False

    @property
    def text(self) -> str:
        """One line for people."""
        counts = ((self.facts.nan, "NaN"), (self.facts.pos_inf, "+Inf"), (self.facts.neg_inf, "-Inf"))
        what = ", ".join(f"{count} {name}" for count, name in counts if count)
        where = self.module or "the model itself"
        node = f" (in {self.node})" if self.node else ""
        line = f" at {self.source}" if self.source else ""
        given = " was given" if self.kind == "given" else " made"
        return f"{self.phase} {self.function}{node} in {where}{line}{given} {what} of {self.facts.num_elements}"

    def __str__(self) -> str:
        return self.text


def find(record: Record) -> list[Finding]:
    """All ops that returned NaN or Inf, classified, in order."""
    findings: list[Finding] = []
    origin_of: dict[int, int] = {}  # storage → the finding that its NaN or Inf comes from
    for entry in record.nonfinite:
        op = record.aten[entry.aten]
        finding = _finding(record, entry, op)
        sources = _sources(record, op, origin_of)
        finding.kind = _kind(entry, op, bool(sources))
        if finding.kind == "propagated" and not sources:
            finding.kind = _kind_given(entry)
        index = len(findings)
        if finding.kind == "propagated":
            finding.origin = sources[0]
        elif finding.kind == "nan":
            # Inf that became NaN here: inf - inf, 0 * inf.
            for source in sources:
                _reach(findings[source], "nan")
        _reach(finding, entry.reaches)
        storage = _storage_of(record, op, entry.output)
        if storage is not None:
            known = origin_of.get(storage)
            is_worse = known is None or findings[known].kind == "mask" or finding.kind == "nan"
            origin = index if finding.origin is None else finding.origin
            if finding.kind != "mask" or known is None:
                origin_of[storage] = origin if is_worse or known is None else known
        findings.append(finding)
    _judge(record, findings, origin_of)
    return findings


def _finding(record: Record, entry: NonFinite, op: Op) -> Finding:
    call = record.calls[op.call] if op.owner is not None and record.calls else None
    module = "" if call is None else record.modules[call.module].address
    upper = record.ops[op.owner] if op.owner is not None else None
    return Finding(
        "propagated", entry.aten, op.owner, op.phase, op.function, op.node, module, source_of(record, upper),
        entry.facts, entry.inputs,
    )  # fmt: skip


def source_of(record: Record, op: Op | None) -> str:
    """``net.py:12``: the line of the user's that made the call."""
    if op is None:
        return ""
    sites, call = [op.site], op.call if record.calls else None
    while call is not None:
        sites.append(record.calls[call].site)
        call = record.calls[call].parent
    frames = [frame for site in reversed(sites) if site is not None for frame in record.sites[site].frames]
    frame = source(tuple(frames))
    return "" if frame is None else f"{frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line}"


def _kind(entry: NonFinite, op: Op, has_sources: bool) -> str:
    facts = entry.facts
    if facts.nan:
        # What it wrote into is not among its inputs any more: there the storage tells.
        was_given = any(one.nan for one in entry.inputs) or (op.writes and has_sources)
        return "propagated" if was_given else "nan"
    if any(one.nan or one.pos_inf or one.neg_inf for one in entry.inputs) or (has_sources and not entry.inputs):
        return "propagated"
    name = op.function.split(".")[1].strip("_") if "." in op.function else op.function
    writes_number = name.startswith(_WRITES_A_NUMBER) and _has_infinite_number((*op.args, *(op.kwargs or {}).values()))
    return "mask" if writes_number or name.startswith(_HANDS_ON) else "inf"


def _kind_given(entry: NonFinite) -> str:
    """Of what no op of the run made: it came in with an input, a param or a buffer."""
    if any(one.pos_inf or one.nan for one in entry.inputs) or entry.facts.nan:
        return "given"
    return "mask"


def _has_infinite_number(args: tuple[Any, ...]) -> bool:
    return any(isinstance(one, float) and math.isinf(one) for one in args)


def _sources(record: Record, op: Op, origin_of: dict[int, int]) -> list[int]:
    storages = dict.fromkeys(record.values[value].storage for value in op.inputs)
    return [origin_of[storage] for storage in storages if storage is not None and storage in origin_of]


def _storage_of(record: Record, op: Op, output: int) -> int | None:
    return record.values[op.outputs[output].value].storage if output < len(op.outputs) else None


_WORSE = ("", "gradient", "output", "nan")


def _reach(finding: Finding, what: str) -> None:
    if _WORSE.index(what) > _WORSE.index(finding.reaches):
        finding.reaches = what


def _judge(record: Record, findings: list[Finding], origin_of: dict[int, int]) -> None:
    """Say how far each origin came, and which of them do harm."""
    outputs = {item.value for op in record.ops if op.kind == "output" for item in op.outputs}
    storages = {record.values[value].storage for value in outputs}
    for storage, known in origin_of.items():
        if storage in storages:
            _reach(findings[known], "output")
    by_op = {one.op: one for one in findings if one.phase != "backward" and one.kind == "inf" and one.op is not None}
    for finding in findings:
        if finding.phase == "backward" and finding.op in by_op and finding.kind in ("nan", "inf"):
            # The backward of the very op that made an Inf: where(x > 0, log(x), 0) at x = 0.
            _reach(by_op[finding.op], "gradient")
        if finding.phase == "backward":
            origin = finding if finding.origin is None else findings[finding.origin]
            if origin.kind != "mask":
                _reach(origin, "gradient")
    for finding in findings:
        came_in = finding.kind == "given" and (finding.facts.nan > 0 or finding.reaches != "")
        finding.is_alarm = finding.kind == "nan" or came_in or (finding.kind == "inf" and finding.reaches != "")
