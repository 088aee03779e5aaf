"""A recording with the contents of every tensor that took part: ATen results, parameters and buffers as well.

What is compared are values, also those inside fused and composite functions, so the contents of ATen results are kept
beside those of function-level ops. Nothing is copied unless somebody writes (``saving.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.modes import AtenLevel
from torcheer.capture.torch.saving import Keeper, Store
from torcheer.capture.torch.select import Everything
from torcheer.capture.torch.session import PARAM, TorchSession
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.record.model import Record

Tensor = torch.Tensor
# Their result is memory nobody has filled: reading it would give other numbers each time.
_UNFILLED = ("aten.empty", "aten.new_empty")


class KeepingAtenLevel(AtenLevel):
    """The ATen level, keeping what every operator returned, and what came from outside the run."""

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__(tape, keeper)
        self._seen: set[int] = set()
        self._unfilled: dict[int, bool] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tape, keeper = self.tape, self.keeper
        before = len(tape.events)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if keeper is None or not tape.is_forward or tape.is_paused or len(tape.events) == before:
            return out
        event, seen = len(tape.events) - 1, self._seen
        kind = tape.aten_kinds[id(func)]
        if not kind.writes:
            for argument in args:
                if isinstance(argument, Tensor) and tape.ref(argument) not in seen:
                    seen.add(tape.ref(argument))
                    keeper.keep(event, tape.ref(argument), argument)
        if not self._is_unfilled(func):
            for tensor in (out,) if isinstance(out, Tensor) else [tensor for _, tensor in named_tensors(out)]:
                seen.add(tape.ref(tensor))
                keeper.keep(event, tape.ref(tensor), tensor)
        return out

    def _is_unfilled(self, func: Any) -> bool:
        known = self._unfilled.get(id(func))
        if known is None:
            known = self._unfilled[id(func)] = str(func).startswith(_UNFILLED)
        return known


class FineSession(TorchSession):
    """Records one run with the contents of every tensor."""

    keeps_params = True

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        store: Store | None = None,
        *,
        aten_level: type[KeepingAtenLevel] = KeepingAtenLevel,
    ) -> None:
        super().__init__(model, inputs, Everything(), store, aten_level=aten_level)

    def record(self) -> Record:
        """The record; contents of parameters and buffers are named in it, as they were before the run."""
        is_new = self._record is None
        record = super().record()
        if is_new:
            names = set(self.payloads)
            for value in record.values:
                if value.param is not None and value.version == 0:
                    name = f"{PARAM}{record.params[value.param].address}"
                    if name in names:
                        record.saved[value.index] = name
        return record


@contextmanager
def unfused() -> Iterator[None]:
    """Run attention, encoder layers and recurrent layers by their formulas, so that what happens inside is seen."""
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.enabled = onednn
