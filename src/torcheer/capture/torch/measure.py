"""The ATen level that also measures: memory taken and given back, and whether what ops return is finite.

What is measured is noted beside the tape and put into the record by ``finish_measure.py``. Meters see every ATen call
right after it; they read tensors and never change one.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import torch

from torcheer.capture.torch.finite import FiniteMeter
from torcheer.capture.torch.kinds import AtenKind
from torcheer.capture.torch.modes import AtenLevel
from torcheer.capture.torch.private import current_node, hide_from_dynamo, no_function_mode, storage_id
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.spread import own_part
from torcheer.capture.torch.tape import Tape, named_tensors

Tensor = torch.Tensor


class Meter(Protocol):
    """Something that looks at every ATen call."""

    def after(self, tape: Tape, kind: AtenKind, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None: ...


class MeasuringLevel(AtenLevel):
    """Writes the tape as the ATen level does, and shows each call to the meters."""

    def __init__(
        self,
        tape: Tape,
        keeper: Keeper | None,
        meters: tuple[Meter, ...],
        costs: dict[int, int],
        nodes: dict[int, tuple[int, str]],
    ) -> None:
        super().__init__(tape, keeper)
        self.meters = meters
        self.costs = costs
        self.nodes = nodes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tape = self.tape
        before = len(tape.events)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if len(tape.events) > before and not tape.is_paused:
            start = tape.host_now()
            kind = tape.aten_kinds[id(func)]
            with no_function_mode():
                for meter in self.meters:
                    meter.after(tape, kind, args, kwargs or {}, out)
            if not tape.is_forward and tape.op >= 0:
                self._note_node(len(tape.events) - 1)
            self.costs[len(tape.events) - 1] = tape.host_now() - start
        return out

    def _note_node(self, event: int) -> None:
        """The backward of an autograd.Function is Python: its calls are told from recomputation by their node."""
        node = current_node()
        if node is not None and getattr(node, "variable", None) is None:
            self.nodes[event] = (node._sequence_nr(), type(node).__name__)


class MemoryMeter:
    """Notes when memory of a storage is taken, and when it is given back.

    A storage's Python object lives as long as its memory, so a weak reference to it tells when that goes. Memory that
    a kernel takes and gives back within its call is not seen.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int, int]] = []  # (events on the tape, open call, storage, bytes)
        self.live: dict[int, tuple[Any, int, int]] = {}  # address → (weak reference, storage, bytes)
        self.states: set[int] = set()  # storages of optimizers
        self.is_closed = False
        self._num_unknown = 0

    def after(self, tape: Tape, kind: AtenKind, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given: set[int] | None = None
        for tensor in tensors_of(out):
            address = _address(tensor)
            if address is None:
                continue
            known = self.live.get(address)
            if known is not None:
                if kind.changes_geometry:
                    self._resize(tape, address, known, tensor)
                continue
            if kind.writes or kind.is_view:
                # What it returns may be an argument that was there before the run.
                if given is None:
                    given = {one for one in map(_address, tensors_of((args, kwargs))) if one is not None}
                if address in given:
                    continue
            self._take(tape, address, tensor)

    def _take(self, tape: Tape, address: int, tensor: Tensor) -> None:
        storage = own_part(tensor).untyped_storage()
        size = storage.nbytes()
        entry = tape.live.get(id(tensor))
        number = tape.values[entry[1]][5] if entry is not None and entry[0]() is tensor else None
        if number is None:
            self._num_unknown += 1
            number = -self._num_unknown
        watch = weakref.ref(storage, partial(self._given_back, tape, address))
        self.live[address] = (watch, number, size)
        if size:
            self.events.append((len(tape.events), tape.call, number, size))

    def _resize(self, tape: Tape, address: int, known: tuple[Any, int, int], tensor: Tensor) -> None:
        watch, number, before = known
        size = own_part(tensor).untyped_storage().nbytes()
        if size != before:
            self.live[address] = (watch, number, size)
            self.events.append((len(tape.events), tape.call, number, size - before))

    def _given_back(self, tape: Tape, address: int, watch: Any) -> None:
        known = self.live.get(address)
        if known is None or known[0] is not watch:
            return
        del self.live[address]
        tape.storages.pop(address, None)  # what comes to be at this address is another storage
        if known[2] and not self.is_closed:
            self.events.append((len(tape.events), tape.call, known[1], -known[2]))

    def note_state(self, tape: Tape, tensor: Tensor) -> None:
        """Memory that an optimizer holds, from its first step on."""
        address = _address(tensor)
        if address is not None and address not in self.live:
            self._take(tape, address, tensor)
            self.states.add(self.live[address][1])

    def number_at(self, tensor: Tensor | None) -> int | None:
        """The storage of a tensor, if its memory was taken in the run."""
        address = None if tensor is None else _address(tensor)
        known = None if address is None else self.live.get(address)
        return None if known is None else known[1]


class Measurements:
    """What one session measures beside its tape."""

    def __init__(self, *, memory: bool, nan: bool) -> None:
        self.memory = MemoryMeter() if memory else None
        self.finite = FiniteMeter() if nan else None
        self.costs: dict[int, int] = {}  # event of an ATen call → what looking at it took, in nanoseconds

        self.nodes: dict[int, tuple[int, str]] = {}  # event in a backward pass → number and name of its node

    def level(self, tape: Tape, keeper: Keeper | None) -> AtenLevel:
        """The ATen level of the session; it is made anew for every backward pass."""
        meters = tuple(meter for meter in (self.memory, self.finite) if meter is not None)
        return MeasuringLevel(tape, keeper, meters, self.costs, self.nodes)

    def close(self) -> None:
        """Stop listening to what is given back."""
        if self.memory is not None:
            self.memory.is_closed = True


def tensors_of(structure: Any) -> Iterator[Tensor] | tuple[Tensor, ...] | list[Tensor]:
    """The tensors an ATen call was given or returned."""
    if isinstance(structure, Tensor):
        return (structure,)
    if structure is None:
        return ()
    return [tensor for _, tensor in named_tensors(structure)]


def _address(tensor: Tensor) -> int | None:
    try:
        return storage_id(own_part(tensor))
    except (RuntimeError, NotImplementedError):
        return None  # sparse tensors, wrappers of function transforms: memory that cannot be seen


hide_from_dynamo(
    *(
        value
        for owner in (MeasuringLevel, MemoryMeter, FiniteMeter)
        for value in vars(owner).values()
        if inspect.isfunction(value)
    )
)
