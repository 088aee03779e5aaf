"""Watches the user's own runs: every call of a watched model, and the backward passes through it, is measured.

``nn.Module.__call__`` is replaced for as long as an inspection runs, as it is during a capture; nothing is put on the
models. What the user's code computes, raises and keeps alive is what it would be without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torcheer.capture.arguments import positional_names
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.modules import is_recording
from torcheer.capture.torch.profiled import ProfiledRun
from torcheer.capture.torch.tape import named_tensors
from torcheer.record.model import Record

Watch = Callable[[torch.nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def watching_calls(models: list[torch.nn.Module], watch: Watch) -> Iterator[None]:
    """Hand the calls of these models to ``watch(model, call, args, kwargs)``, unless a capture is running."""
    plain = torch.nn.Module.__call__
    watched = {id(model) for model in models}

    def gate(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if id(module) not in watched or is_recording():
            return plain(module, *args, **kwargs)
        return watch(module, plain, args, kwargs)

    torch.nn.Module.__call__ = gate  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.__call__ = plain  # type: ignore[method-assign]


class Inspection:
    """Measures every call of some models between ``start`` and ``finish``."""

    def __init__(self, models: list[torch.nn.Module], measure: tuple[str, ...]) -> None:
        self.models = models
        self.measure = measure
        self.runs: list[ProfiledRun] = []
        self._undo = ExitStack()
        self._backward = ExitStack()  # watches of backward passes, of the runs that may still have one

    def start(self) -> None:
        """Begin to watch."""
        self._undo.enter_context(watching_calls(self.models, self._run))
        if "memory" in self.measure:
            self._undo.callback(register_optimizer_step_post_hook(self._stepped).remove)

    def finish(self) -> None:
        """Take everything back."""
        self._backward.close()
        self._undo.close()

    def models_of_runs(self) -> list[torch.nn.Module]:
        """The model that was called, per record."""
        return [run.session.model for run in self.runs]

    def records(self) -> list[Record]:
        """One record per call, in order."""
        return [run.record() for run in self.runs]

    def _run(self, model: torch.nn.Module, _call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(run.session.backward_recorder.num_passes for run in self.runs):
            # The next step has begun: the graphs of earlier ones are gone, or will not be gone through again.
            self._backward.close()
        run = ProfiledRun(model, Inputs(args, kwargs, positional_names(model.forward)), self.measure)
        self.runs.append(run)
        output = run.forward()
        run.let_go()
        if any(tensor.requires_grad for _, tensor in named_tensors(output)):
            self._backward.enter_context(run.session.watching_backward())
        return output

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer has made its step: what it now holds that was not there is its state."""
        run = next(reversed(self.runs), None)
        if run is None or run.done.memory is None:
            return
        for _, tensor in named_tensors(list(optimizer.state.values())):
            run.done.memory.note_state(run.session.tape, tensor)
