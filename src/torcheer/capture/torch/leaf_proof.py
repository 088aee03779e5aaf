"""Proves what was written down without looking (``leaves.py``): a run that looks at every ATen call says the same.

Two runs make different objects at different addresses, so tensors are numbered anew, in the order the ATen calls
speak of them.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from torcheer.capture.torch.events import ATEN, AtenEvent
from torcheer.capture.torch.finish_values import refs_in
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.proof import Check
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Ref


def looked_at(model: Any, inputs: Inputs) -> list[str]:
    """The ATen calls of a run that takes no function for a leaf."""
    session = TorchSession(model, inputs, None)
    session.function_level.leaves = {}
    session.run()
    return aten_calls(session.tape)


def aten_calls(tape: Tape) -> list[str]:
    """Every ATen call of the forward pass in full: operator, arguments, result, memory they share, and whose it is."""
    numbers: dict[int, int] = {}
    owners: dict[int, int] = {}
    calls = []
    for raw in tape.events[: tape.forward_end]:
        if type(raw) is not tuple or raw[0] != ATEN:
            continue
        event = AtenEvent(*raw)
        parts = (event.args, event.kwargs or {}, event.out)
        given, named, out = (_numbered(part, tape, numbers) for part in parts)
        read = [ref for part in parts[:2] for _, ref in refs_in(part)]
        shared = [[_shares(tape, ref, other) for other in read] for _, ref in refs_in(event.out)]
        owner = owners.setdefault(event.owner, len(owners))
        calls.append(f"{event.kind.name}{given} {named} -> {out}, sharing {shared}, in op {owner}")
    return calls


def _shares(tape: Tape, ref: int, other: int) -> bool:
    storage = tape.values[ref][5]
    return storage is not None and storage == tape.values[other][5]


def _numbered(value: Any, tape: Tape, numbers: dict[int, int]) -> str:
    """As text, so that 1, 1.0 and True, or a tuple and a list, are not the same."""
    if type(value) is Ref:
        if value not in numbers:
            numbers[value] = len(numbers)
            shape, stride, offset, dtype, device, *_ = tape.values[value]
            return f"%{numbers[value]}:{dtype}{None if shape is None else list(shape)}{stride}+{offset}@{device}"
        return f"%{numbers[value]}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_numbered(item, tape, numbers)}' for key, item in value.items())}}}"
    if isinstance(value, (tuple, list)):
        left, right = "[]" if isinstance(value, list) else "()"
        return f"{left}{', '.join(_numbered(item, tape, numbers) for item in value)}{right}"
    return repr(value)


def check_leaves(recorded: list[str], looked: list[str]) -> Check:
    """Is the record the one that looking at every ATen call gives?"""
    check = Check("leaves", tested=len(looked))
    for place, (one, other) in enumerate(zip_longest(recorded, looked, fillvalue="nothing")):
        if one != other:
            check.failures.append(f"ATen call {place} was written down as {one}; looked at, it is {other}")
            break  # what follows may only be numbered differently
    return check
