"""One forward that is logged: takes rows of what modules are given and return."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from torcheer.capture.torch.modules import is_recording
from torcheer.capture.torch.private import no_dispatch_mode, no_function_mode, plain_module_call
from torcheer.watching.gradients import OfActivation, follow
from torcheer.watching.places import CallPlace, ModulePlace, Places, Side, tensors_in
from torcheer.watching.sampling import Row, Sampler
from torcheer.watching.step import LoggedStep

Tensor = torch.Tensor


class LoggedForward:
    """Sees every module call of one forward."""

    def __init__(
        self,
        model: torch.nn.Module,
        step: LoggedStep,
        places: Places,
        sampler: Sampler,
        log: frozenset[str],
        count_dead: bool,
    ) -> None:
        self._model, self.step, self.places, self._sampler, self._count_dead = model, step, places, sampler, count_dead
        self._has_versions = not torch.is_inference_mode_enabled()
        self._values = "io" in log
        self._gradients = "io_grad" in log and step.lane.endswith("train")
        # Tensors of this forward: id → (the tensor, its version, its row, its hook). Outputs are next ones' inputs.
        self._seen: dict[int, tuple[Any, int, int | None, OfActivation | None]] = {}
        self.seen_calls: list[tuple[CallPlace, CallPlace | None]] = []  # and the call around each
        self._stack: list[CallPlace] = []
        self._leaves: list[Any] = []  # nodes that nothing else holds before an operation uses the leaf
        self.is_recorded = False
        self._start = (len(step.rows), len(step.series))

    def start_again(self) -> None:
        """Forget what was seen: this forward is run once more."""
        rows, series = self._start
        del self.step.rows[rows:], self.step.which[rows:], self.step.series[series:]
        self._seen.clear()
        self.seen_calls.clear()
        self._stack.clear()
        self.places.begin_forward()

    def call(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module's call; what ``nn.Module.__call__`` runs while this forward is logged."""
        place = self.places.place_of(module, self._model)
        if place is None:
            return plain_module_call(module, *args, **kwargs)
        return self.run(place, lambda: plain_module_call(module, *args, **kwargs), args, kwargs)

    def run(self, place: ModulePlace, call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """The same, for a call that is made by ``call``."""
        here, around = self.places.begin(place), place.current
        self.seen_calls.append((here, self._stack[-1] if self._stack else None))
        self._stack.append(here)
        place.current = here
        try:
            self._take(place, here.inputs, args, kwargs)
            out = call()
            self._take(place, here.outputs, out, None)
        finally:
            self._stack.pop()
            place.current = around
        return out

    def attach(self, place: ModulePlace, tensor: Tensor, name: str) -> None:
        """Take a tensor that the model's own code hands over by name."""
        if place.current is not None:
            self._tensor(place, place.current.attached, name, tensor)

    def _take(self, place: ModulePlace, side: Side, structure: Any, named: dict[str, Any] | None) -> None:
        if is_recording():
            # What is done here is no operation of the model.
            with ExitStack() as stack:
                stack.enter_context(no_function_mode())
                stack.enter_context(no_dispatch_mode())
                self._take_all(place, side, structure, named)
        else:
            self._take_all(place, side, structure, named)

    def _take_all(self, place: ModulePlace, side: Side, structure: Any, named: dict[str, Any] | None) -> None:
        # What most modules are given and return, without a walk.
        path, only = ("0", structure[0]) if type(structure) is tuple and len(structure) == 1 else (0, structure)
        if isinstance(only, Tensor):
            self._tensor(place, side, path, only)
        else:
            for path, tensor in tensors_in(structure):
                self._tensor(place, side, path, tensor)
        if named:
            for path, tensor in tensors_in(named):
                self._tensor(place, side, path, tensor)

    def _tensor(self, place: ModulePlace, side: Side, path: Any, tensor: Tensor) -> None:
        version = tensor._version if self._has_versions else 0
        known = self._seen.get(id(tensor))
        if known is None or known[1] != version or known[0]() is not tensor:
            known = self._see(tensor, version)
        _, _, number, hook = known
        if number is not None:
            self.step.series.append((side.values.of(path, tensor), number))
            if side.values._kind == "output":
                self._judge(place, self.step.rows[number], tensor)
        if hook is not None and place.with_gradients:
            hook.series.append(side.grads.of(path, tensor))

    def _see(self, tensor: Tensor, version: int) -> tuple[Any, int, int | None, OfActivation | None]:
        number = hook = None
        if self._values:
            row = self._sampler.row(tensor)
            number = None if row is None else self.step.add(row)
        if self._gradients and tensor.requires_grad and torch.is_grad_enabled():
            hook = OfActivation(self.step, self._sampler, 0)
            node = follow(tensor, hook)
            if tensor.is_leaf:
                self._leaves.append(node)
        known = self._seen[id(tensor)] = (weakref.ref(tensor), version, number, hook)
        return known

    def _judge(self, place: ModulePlace, row: Row, tensor: Tensor) -> None:
        row.saturating = row.saturating or place.saturating  # a module around it returns the same tensor
        if place.counts_dead and self._count_dead and row.dead is None and tensor.dim() > 1:
            values = tensor.detach()
            unit = 1 if tensor.dim() > 3 else tensor.dim() - 1
            others = [dim for dim in range(tensor.dim()) if dim != unit]
            row.dead = (values.amax(dim=others) == 0).float().mean()
