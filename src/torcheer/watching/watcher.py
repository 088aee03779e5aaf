"""When a step begins, whether it is logged, and when it is complete: the clock of one watched model.

A step is what lies between the first forward after a backward pass and the next one after that. Several forwards
before a backward belong to one step. A logged step is complete when the optimizer has stepped, or else when the next
step begins.
"""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from typing import Any

import torch

from torcheer.capture.torch.modules import is_recording
from torcheer.capture.torch.private import is_compiled, original_of, without_compiled_calls
from torcheer.capture.torch.sentinel import Sentinel
from torcheer.watching import roots
from torcheer.watching.forward import LoggedForward
from torcheer.watching.gradients import OfParameters
from torcheer.watching.options import Options
from torcheer.watching.params import Parameters
from torcheer.watching.places import Places
from torcheer.watching.sampling import Sampler
from torcheer.watching.scaling import LoopListener, listen, unlisten
from torcheer.watching.sink import Sink
from torcheer.watching.step import LoggedStep

Tensor = torch.Tensor
Module = torch.nn.Module

_DEAD_EVERY = 10  # logged steps; it reads whole activations


class Watcher(LoopListener):
    """Watches one model."""

    def __init__(
        self, model: Module, name: str, options: Options, sink: Sink, first_step: int, check: Sentinel | None = None
    ) -> None:
        """check: for NaN and Inf; it is handed every call of the model."""
        self._check = check
        self.name, self.options, self._sink = name, options, sink
        self._model = weakref.ref(model)
        self._pid = os.getpid()
        self._sampler = Sampler(options.sample_n)
        self._gradients = OfParameters(self._sampler)
        self._parameters = Parameters(self._sampler)
        self._places: dict[str, Places] = {}
        self.step = first_step - 1  # the step that training is in
        self.saw_backward = True  # so that the first forward begins a step
        self.open: LoggedStep | None = None
        self.forward: LoggedForward | None = None
        self.num_logged = 0
        self._has_seen_forward = False
        self._clock: int | None = None  # parameter whose gradient begins a step where no forward is seen
        self._num_eval, self._last_was_eval = 0, False
        self._sentinels: list[Any] = []
        self._stepped: set[int] = set()  # parameters that optimizers have stepped in the open step
        self.start()
        weakref.finalize(model, roots.forget_calls, id(model), type(model)).atexit = False

    def start(self) -> None:
        """Look at the model from now on; again after ``stop``, too."""
        model = self._model()
        if model is not None:
            self._place_sentinels(model)
            listen(self)
            roots.watch_calls(model, self._called)

    @property
    def model(self) -> Module | None:
        return self._model()

    # -- forwards ------------------------------------------------------------------------------------

    def _called(self, call: roots.Call, model: Module, args: Any, kwargs: Any) -> Any:
        if is_recording() or self.forward is not None or os.getpid() != self._pid:
            return call()  # somebody else's capture; a model that calls itself; a forked process
        if self._check is None:
            return self._see(call, model, args, kwargs)
        if self._check.is_replaying:
            return call()
        return self._check.call(model, lambda *_, **__: self._see(call, model, args, kwargs), args, kwargs)

    def _see(self, call: roots.Call, model: Module, args: Any, kwargs: Any) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return self._evaluate(call, model, args, kwargs)
        self._last_was_eval, self._has_seen_forward = False, True
        if self.saw_backward:
            self.begin_step()
        out = call() if self.open is None else self._log_forward(self.open, call, model, args, kwargs)
        if not self._notice_backward(out):
            self.saw_backward = True  # nothing that a backward pass could come through: the next forward is a step
            if self.open is not None:
                self.finish_step()
        return out

    def begin_step(self) -> None:
        """Training goes on to its next step; opens it if it is one that is logged."""
        before = self.open
        self.step += 1
        self.saw_backward = False
        self.open = None
        if self.step % self.options.log_freq == 0 and self._sink.is_open:
            self._open()
        if before is not None:
            self._finish(before, self.open)

    def _open(self) -> None:
        model = self._model()
        if model is None:
            return
        unit, time_of = self.options.time_log
        if time_of is not None:
            self._sink.add_scalars(self.step, {unit: time_of(model, self.step)})
        step = self.open = LoggedStep(self._lane("train"), self.step)
        self._stepped.clear()
        places = self._places_of("train", model)
        log, found = self.options.log, list(places.params())
        if "params" in log:
            rows = self._parameters.rows(parameter for _, _, parameter in found)
            step.before = {number: step.add(row) for number, row in rows.items()}
            for module, name, parameter in found:
                row = step.before.get(id(parameter))
                if row is not None:
                    step.series.append((places.of_param("param", module, name, parameter), row))
        if "params_grad" in log:
            of_param: dict[int, tuple[Tensor, list[int]]] = {}
            for module, name, parameter in found:
                series = of_param.setdefault(id(parameter), (parameter, []))[1]
                series.append(places.of_param("param_grad", module, name, parameter))
            self._gradients.start(step, of_param)

    def _log_forward(self, step: LoggedStep, call: roots.Call, model: Module, args: Any, kwargs: Any) -> Any:
        mode = "train" if step.lane.endswith("train") else "eval"
        places = self._places_of(mode, model)
        places.begin_forward()
        root = places.modules[id(original_of(model))]
        count_dead = self.num_logged % _DEAD_EVERY == 0
        forward = LoggedForward(model, step, places, self._sampler, self.options.log, count_dead)
        compiled = call.is_compiled or places.is_compiled or is_compiled(model) or original_of(model) is not model
        self.forward = forward
        try:
            with ExitStack() as stack:
                if compiled and self.options.compiled == "eager":
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                    stack.enter_context(without_compiled_calls(model))
                    call, compiled = call.plain(), False
                if compiled:
                    self._sink.note_once(self.step, "compiled", _COMPILED)
                    out = forward.run(root, call, args, kwargs)
                else:
                    stack.enter_context(roots.seeing_modules(forward.call))
                    out = self._sink.run_and_record(self, forward, call, model, args, kwargs)
        finally:
            self.forward = None
        self._sink.saw_calls(self, forward, model)
        return out

    def _evaluate(self, call: roots.Call, model: Module, args: Any, kwargs: Any) -> Any:
        is_first, self._last_was_eval = not self._last_was_eval, True
        is_due = is_first or self._num_eval % self.options.log_freq == 0
        self._num_eval += 1
        if not is_due or not self._sink.is_open:
            return call()
        step = LoggedStep(self._lane("eval"), max(self.step, 0))
        try:
            return self._log_forward(step, call, model, args, kwargs)
        finally:
            step.close()
            self._sink.add_step(step)

    # -- backwards -----------------------------------------------------------------------------------

    def _notice_backward(self, out: Any) -> bool:
        """Hook the nodes of what the model returned. Returns whether a backward pass can come at all."""
        tensors = (out,) if isinstance(out, Tensor) else _few_tensors(out)
        hooked = False
        for tensor in tensors:
            if tensor.requires_grad:
                node = tensor.grad_fn
                if node is not None:
                    node.register_prehook(self._backward_came)
                hooked = True
        return hooked or bool(self._sentinels)

    def _backward_came(self, _: Any) -> None:
        self.saw_backward = True

    def _place_sentinels(self, model: Module) -> None:
        """On the first and the last trained parameter: they tell of backward passes whose forward was not seen."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.is_leaf]
        for parameter in dict.fromkeys((*trained[:1], *trained[-1:])):
            self._sentinels.append(parameter.register_post_accumulate_grad_hook(self._parameter_came))

    def _parameter_came(self, parameter: Tensor) -> None:
        if not self._has_seen_forward and os.getpid() == self._pid:
            self._begin_in_backward(parameter)
        self.saw_backward = True

    def _begin_in_backward(self, parameter: Tensor) -> None:
        """A backward pass of a forward that was not seen: parameters and their gradients can be logged all the same."""
        if self._clock is None:
            self._clock = id(parameter)
            self._sink.note_once(self.step + 1, "forward-not-seen", _NOT_SEEN)
        if self._clock == id(parameter):
            self.begin_step()
            self._gradients.take_present()

    # -- the end of a step ---------------------------------------------------------------------------

    def scaled(self, scaler: torch.amp.GradScaler) -> None:
        """The loss has been scaled; gradients will be divided by it."""
        if self.open is not None:
            self.open.scale = float(scaler.get_scale())

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped. Where it has changed our parameters, the step is complete."""
        step = self.open
        if step is None or not self.saw_backward:
            return
        if self.options.log_freq == 1:
            step.optimized = True  # the next step begins with what this one has led to
            return
        trained = {id(one) for one in self._all_parameters() if one.requires_grad}
        stepped = {id(one) for group in optimizer.param_groups for one in group["params"]} & trained
        if stepped:
            step.optimized = True
            self._stepped |= stepped
            if self._stepped >= trained:
                self.finish_step()

    def _all_parameters(self) -> list[Tensor]:
        model = self._model()
        return [] if model is None else list(model.parameters())

    def finish_step(self) -> None:
        """Hand the open step over to the writer."""
        step, self.open = self.open, None
        if step is not None:
            self._finish(step, None)

    def _finish(self, step: LoggedStep, following: LoggedStep | None) -> None:
        """following: the step that begins now, if it is logged; its parameters are what this one has made of them."""
        if step.before:
            if following is not None:
                after = {number: following.rows[row].values for number, row in following.before.items()}
            else:
                after = self._parameters.samples(self._all_parameters())
            for number, row in step.before.items():
                sample = after.get(number)
                if sample is not None and sample.numel() == step.rows[row].values.numel():
                    step.after[row] = sample
        step.close()
        if following is None:
            self._gradients.stop()
        self.num_logged += 1
        self._sink.add_step(step)

    def stop(self) -> None:
        """Leave the model as it was."""
        self.finish_step()
        for handle in self._sentinels:
            handle.remove()
        self._sentinels.clear()
        unlisten(self)
        model = self._model()
        if model is not None:
            roots.unwatch_calls(model)

    # -- places --------------------------------------------------------------------------------------

    def _lane(self, mode: str) -> str:
        return f"{self.name}/{mode}" if self.name else mode

    def _places_of(self, mode: str, model: Module) -> Places:
        places = self._places.get(mode)
        if places is None:
            lane = self._lane(mode)
            places = self._places[mode] = Places(self.name, lane, self._sink.register, self.options.ignored)
            places.refresh(model)
        else:
            places.refresh_if_changed(model)
        return places


_COMPILED = (
    "The model is compiled, so only its own inputs and outputs are seen, and its parameters. To see inside, at the "
    'cost of running logged steps without the compiled code: tl.watch(…, compiled="eager").'
)


_NOT_SEEN = (
    "The model is trained without a call of it that could be seen, so only its parameters and their gradients are "
    "logged. Give tl.watch the compiled model where it was compiled before, and call model(x) instead of "
    "model.forward(x)."
)


def _few_tensors(out: Any) -> list[Tensor]:
    """The tensors that a loss is likely made of: those at the top of what the model returned."""
    if isinstance(out, dict):
        items = list(out.values())
    elif isinstance(out, (tuple, list)):
        items = list(out)
    else:
        items = [getattr(out, name, None) for name in getattr(out, "__dataclass_fields__", ())]
    return [item for item in items[:4] if isinstance(item, Tensor)]
