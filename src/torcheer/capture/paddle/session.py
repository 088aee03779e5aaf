"""One capture of a Paddle layer: runs it once and hands out the record."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any

import paddle

from torcheer import __version__
from torcheer.capture.arguments import Arguments, arrange
from torcheer.capture.asked import LayersToSave, OpPreview, asked_values
from torcheer.capture.paddle.private import initial_seed
from torcheer.capture.paddle.recorder import Recorder, Wanted
from torcheer.capture.paddle.seeing import CALLING_CODES, seen_by
from torcheer.capture.paddle.tensors import Kept, is_tensor
from torcheer.capture.results import Current, plain_output
from torcheer.errors import CaptureError
from torcheer.record.file import FilePayloads, TensorWriter
from torcheer.record.model import Record, Run
from torcheer.record.payload import Payloads


class PaddleSession:
    """Runs a model once and records it."""

    def __init__(self, model: Any, inputs: Arguments, layers_to_save: LayersToSave, store: Any = None) -> None:
        self.model = model
        self.inputs = inputs
        self.keys: list[str | int] | None = None  # those given, to be looked up when the labels are final
        self.store: Any = Kept() if store is None else store
        self.output: Any = None
        self.run_facts = Run(_name(model), framework="paddle", framework_version=str(paddle.version.full_version))
        self.recorder = Recorder(model, self.run_facts, self._wanted(layers_to_save), self.store)
        self.recorder.stop_codes = frozenset((*CALLING_CODES, PaddleSession.run.__code__))

    def _wanted(self, layers: LayersToSave) -> Wanted | None:
        if layers is None or (isinstance(layers, str) and layers == "none"):
            return None
        if isinstance(layers, str) and layers == "all":
            return _Everything()
        if callable(layers):
            return _Matching(layers)
        keys = [layers] if isinstance(layers, (str, int)) else list(layers)
        for key in keys:
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise CaptureError(
                    f"layers_to_save: {key!r} is a {type(key).__name__}. Keys are module addresses, layer labels "
                    "or positions, such as 'features.6', 'conv2d_3' or -1."
                )
        self.keys = keys
        return _Everything() if keys else None

    def run(self) -> Any:
        """Call the model. Whatever it raises comes through as it is; the record then ends there."""
        recorder, facts = self.recorder, self.run_facts
        facts.seed = initial_seed()
        facts.python_version, facts.torcheer_version = platform.python_version(), __version__
        facts.grad_enabled = bool(paddle.is_grad_enabled())
        facts.training = bool(getattr(self.model, "training", False))
        recorder.begin(self.inputs.tensors(is_tensor), self.inputs.args, self.inputs.kwargs)
        start = perf_counter_ns()
        try:
            with seen_by(recorder):
                self.output = self.model(*self.inputs.args, **self.inputs.kwargs)
        except BaseException as error:
            facts.time_ns = perf_counter_ns() - start
            facts.error = f"{type(error).__name__}: {error}"
            recorder.end(None, error)
            raise
        facts.time_ns = perf_counter_ns() - start
        facts.output_structure = type(self.output).__name__
        facts.output_data = plain_output(self.output)
        recorder.end(self.output, None)
        return self.output

    def record(self) -> Record:
        """The record of the run."""
        record = self.recorder.finish()
        if self.keys is not None:
            keys, self.keys = self.keys, None
            asked = asked_values(record, keys)
            record.saved = {value: name for value, name in record.saved.items() if value in asked}
            if isinstance(self.store, Kept):
                for name in set(self.store) - set(record.saved.values()):
                    del self.store[name]
        return record

    @property
    def payloads(self) -> Payloads:
        """The contents that were kept, wherever they are now."""
        return Current(self)

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """Run ``loss.backward(**kwargs)`` and add it to the record."""
        if not is_tensor(loss):
            raise CaptureError(
                f"log_backward takes the loss, a Paddle tensor, and was given {type(loss).__name__}. "
                "Call it as history.log_backward(loss), where loss was computed from history.output."
            )
        with self.watching_backward():
            loss.backward(**kwargs)

    @contextmanager
    def watching_backward(self) -> Iterator[None]:
        """Add to the record the backward pass that runs inside the ``with`` block."""
        record = self.record()
        with ExitStack() as stack:
            store = self.store
            if isinstance(store, FilePayloads):
                store = stack.enter_context(TensorWriter.reopen(store.path))
                stack.callback(lambda: setattr(self, "store", store.finish(record)))
            keeps = self.recorder.wanted is not None
            with self.recorder.gradients.recorded(record, store, keeps=keeps):
                yield


def arrange_call(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Decide how the given arguments call a Paddle model."""
    if isinstance(model, paddle.nn.Layer):
        return arrange(model.forward, type(model).__name__, args, kwargs)
    return arrange(model, _name(model), args, kwargs)


class _Everything:
    def wants(self, _preview: OpPreview) -> bool:
        return True


class _Matching:
    def __init__(self, predicate: Any) -> None:
        self._predicate = predicate

    def wants(self, preview: OpPreview) -> bool:
        return bool(self._predicate(preview))


def _name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, paddle.nn.Layer) else str(getattr(model, "__name__", model))
