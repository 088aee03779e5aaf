"""Checks little in every step, and when that is not finite runs the step again with every op checked.

Each step takes the sums of what the model returned, of the loss, and the norms of the gradients of params: next to
nothing. A hit is played again under a ``Guard``: the same inputs, random numbers, autocast and gradients of the
outputs, so the same NaN is born at the same op. The model, its gradients and the random numbers are left as they were.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, isinf
from typing import Any

import torch

from torcheer.capture.arguments import positional_names
from torcheer.capture.torch.finite import is_finite, total_of
from torcheer.capture.torch.guard import Guard
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.inspection import watching_calls
from torcheer.capture.torch.private import backward_runner, hide_from_dynamo, no_dispatch_mode, no_function_mode
from torcheer.capture.torch.state import (
    RunState,
    host_random_state,
    random_state,
    set_host_random_state,
    set_random_state,
)
from torcheer.capture.torch.tape import named_tensors
from torcheer.errors import NonFiniteError
from torcheer.record.model import Diagnostic, Record

Tensor = torch.Tensor


def nan_check(models: list[torch.nn.Module], choice: str, *, replay: bool = True) -> Guard | Sentinel:
    """A check for NaN and Inf that may be open for a whole training: ``start()`` it, ``finish()`` it.

    What ``InspectorGadgets(measure="nan")`` and ``tl.watch(nan=…)`` use. ``choice``: "warn" warns and "stop" raises
    ``NonFiniteError``, out of the model's call or out of ``backward()``, with the op, its module, its source line and
    what it was given; "report" keeps it for ``records()``.

    replay: check only what a step makes in the end, and run a step again that has a hit. Otherwise every op is checked.
    """
    return Sentinel(models, choice) if replay else Guard(models, choice)


@dataclass
class Moment:
    """What is needed to run a call again."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: Any
    host_random: Any
    is_grad_enabled: bool
    autocast: list[tuple[str, torch.dtype]]  # devices for which it was on
    gradients: dict[int, Tensor] = field(default_factory=dict)  # of the outputs, by their place


class Sentinel:
    """Checks outputs, losses and gradients between ``start`` and ``finish``."""

    def __init__(self, models: list[torch.nn.Module], choice: str) -> None:
        self.models = models
        self.choice = choice  # "report" | "warn" | "stop"
        self.runs: list[None] = []  # not empty once a model was called
        self.found: Guard | None = None  # of the last replay
        self._said: list[str] = []  # of hits that no replay explains
        self._moments: dict[int, Moment] = {}  # id() of a model → its last call
        self._undo = ExitStack()
        self._is_busy = False  # in a call, or replaying one
        self.is_replaying = False
        self.tell: Callable[[str], None] | None = None  # called with what was found, before it is raised or warned of
        self._has_masked_outputs = False  # infinities that a replay has found to be meant

    def start(self, *, sees_calls: bool = False) -> None:
        """Begin to check. ``sees_calls``: whoever starts this sees the models' calls, and hands them to ``call``."""
        if not sees_calls:
            self._undo.enter_context(watching_calls(self.models, self.call))
        self._undo.enter_context(backward_runner(self._backward))

    def finish(self) -> None:
        """Take everything back."""
        self._undo.close()
        self._moments.clear()

    def models_of_runs(self) -> list[torch.nn.Module]:
        """The model of the one record there is."""
        return self.models[:1] if self.runs else []

    def records(self) -> list[Record]:
        """A record of the ops in which NaN or Inf was born in the last replay; none if no model was called."""
        if not self.runs:
            return []
        guard = self.found or Guard(self.models, "report")
        guard.runs = [None]
        records = guard.records()
        records[0].diagnostics += [Diagnostic("nan-outside", text) for text in self._said]
        return records

    # -- each step -----------------------------------------------------------------------------------

    def call(
        self, model: torch.nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a model's call and check what it returns."""
        if self._is_busy:
            return call(model, *args, **kwargs)
        self.runs = [None]
        moment = Moment(model, args, kwargs, random_state(), host_random_state(), torch.is_grad_enabled(), _autocast())
        self._is_busy = True
        try:
            out = call(model, *args, **kwargs)
        finally:
            self._is_busy = False
        self._moments[id(model)] = moment
        tensors = [tensor for _, tensor in named_tensors(out)]
        for place, tensor in enumerate(tensors):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(partial(_keep, moment, place, tensor.output_nr))
        if self._is_hit(tensors, masks=self._has_masked_outputs):
            self._replay([moment], "the output of the model")
        return out

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_busy or not self._moments:
                return original(roots, *args, **kwargs)
            losses = [root for root in roots if isinstance(root, Tensor)]
            is_hit = self._is_hit(losses, masks=False)
            result = original(roots, *args, **kwargs)
            moments = list(self._moments.values())
            if is_hit:
                self._replay(moments, "the loss")
            elif any(_has_bad_gradient(moment.model) for moment in moments):
                self._replay(moments, "a gradient of a param")
            for moment in moments:
                moment.gradients.clear()
            return result

        return run

    def _is_hit(self, tensors: Iterable[Tensor], *, masks: bool) -> bool:
        with no_dispatch_mode(), no_function_mode(), torch.no_grad():
            totals = [total_of(tensor.detach()) for tensor in tensors]
        return any(not isfinite(total) and not (masks and isinf(total)) for total in totals)

    # -- a hit ---------------------------------------------------------------------------------------

    def _replay(self, moments: list[Moment], where: str) -> None:
        """Run the last calls again, every op checked, and say what was found."""
        if self.choice == "report" and self.found is not None:
            return  # a net that has gone NaN has one in every step
        guard = Guard(self.models, "report")
        for moment in moments:
            inputs = Inputs(moment.args, moment.kwargs, positional_names(moment.model.forward))
            self._is_busy = self.is_replaying = True
            state = RunState(moment.model, inputs, with_params=False)
            try:
                _run_again(moment, guard)
            finally:
                state.restore()
                self._is_busy = self.is_replaying = False
            if guard.alarms:
                break
        self._report(guard, where)

    def _report(self, guard: Guard, where: str) -> None:
        if guard.alarms:
            self.found = guard
            text = guard.text_of(guard.alarms[0])
        elif where == "the output of the model":
            self._has_masked_outputs = True  # -inf, written on purpose
            return
        else:
            text = (
                f"NaN or Inf in {where}, and none in the model when its last call was run again: it comes from what is "
                "computed between the model and backward(), as in the loss, or from a sum of gradients of several "
                'calls. Pass measure="nan" with replay=False to have every op of the step checked, those outside '
                "of the model too."
            )
            self._said = [text]
        if self.tell is not None:
            self.tell(text)
        if self.choice == "stop":
            raise NonFiniteError(text)
        if self.choice == "warn":
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def _has_bad_gradient(model: torch.nn.Module) -> bool:
    held = [param.grad for param in model.parameters() if param.grad is not None]
    gradients = [gradient for gradient in held if gradient.layout is torch.strided and not gradient.is_meta]
    if not gradients:
        return False
    with no_dispatch_mode(), no_function_mode(), torch.no_grad():
        norm = torch.nn.utils.get_total_norm(gradients)
        # Finite numbers may overflow in a norm: only then each is looked at.
        return not bool(norm.isfinite()) and any(not bool(gradient.isfinite().all()) for gradient in gradients)


def _run_again(moment: Moment, guard: Guard) -> None:
    set_random_state(moment.random)
    set_host_random_state(moment.host_random)
    for param in moment.model.parameters():
        param.grad = None
    for module in moment.model.modules():
        # The graph of the user's own run may hold the buffers: writing to them would spoil its backward pass.
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.detach().clone()
    # What came with a gradient was not born in the model.
    given = moment.gradients if all(is_finite(gradient) for gradient in moment.gradients.values()) else {}
    with ExitStack() as stack:
        for device, dtype in moment.autocast:
            stack.enter_context(torch.autocast(device, dtype))
        stack.enter_context(torch.set_grad_enabled(moment.is_grad_enabled))
        guard.start()
        stack.callback(guard.finish)
        out = moment.model(*moment.args, **moment.kwargs)
        tensors = [tensor for _, tensor in named_tensors(out)]
        wanted = [place for place in given if place < len(tensors) and tensors[place].requires_grad]
        if wanted:
            torch.autograd.backward([tensors[place] for place in wanted], [given[place] for place in wanted])


def _keep(moment: Moment, place: int, output: int, gradients: tuple[Tensor | None, ...]) -> None:
    """A hook of the node that made an output: note the gradient it was given."""
    gradient = gradients[output]
    if gradient is not None:
        moment.gradients[place] = gradient


def _autocast() -> list[tuple[str, torch.dtype]]:
    accelerator = torch.accelerator.current_accelerator()
    devices = ["cpu", *([accelerator.type] if accelerator is not None else [])]
    return [(device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device)]


hide_from_dynamo(*(value for value in vars(Sentinel).values() if inspect.isfunction(value)))
