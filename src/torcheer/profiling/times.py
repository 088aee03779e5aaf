"""Times of calls and ops: those of the time pass, or else of the run that was recorded.

A row of ``Record.timings`` is a call's own work, without the calls inside it; what is inclusive is added up from
these, so that children and parent always agree.
"""

from __future__ import annotations

from torcheer.record.model import Record

Key = tuple[str, int, str]  # kind, target, phase


class Times:
    """Times by what they belong to."""

    def __init__(self, record: Record) -> None:
        self.is_timed = bool(record.timings)
        self.by_key: dict[Key, int] = {}
        self.spreads: dict[Key, int] = {}
        for timing in record.timings:
            key = (timing.kind, timing.target, timing.phase)
            self.by_key[key], self.spreads[key] = timing.time_ns, timing.spread_ns
        if not self.is_timed and (not record.run.measured or "time" in record.run.measured):
            self._from_the_run(record)

    def _from_the_run(self, record: Record) -> None:
        """Wall times of the recorded run. Recording is part of them."""
        inside: dict[int, int] = {}
        for call in record.calls:
            if call.parent is not None and call.time_ns is not None:
                inside[call.parent] = inside.get(call.parent, 0) + call.time_ns
        for call in record.calls:
            if call.time_ns is not None:
                self.by_key["call", call.index, "forward"] = max(0, call.time_ns - inside.get(call.index, 0))
        for op in record.ops:
            if op.time_ns is not None and op.kind == "op":
                self.by_key["op", op.index, "forward"] = op.time_ns
            if op.backward_time_ns is not None:
                self.by_key["op", op.index, "backward"] = op.backward_time_ns
                key = ("call", op.call, "backward")
                self.by_key[key] = self.by_key.get(key, 0) + op.backward_time_ns

    def get(self, kind: str, target: int, phase: str) -> int | None:
        """Nanoseconds, or None where none were measured."""
        return self.by_key.get((kind, target, phase))

    def backward(self, kind: str, target: int) -> int | None:
        """Of the nodes of a call or op, with what they added to gradients of params."""
        parts = [self.get(kind, target, phase) for phase in ("backward", "accumulate")]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None
