"""One capture: enters the modes, runs the model once, and hands out the record.

The record is built when it is first read. Until then the session holds the model's modules and the tape; it
never holds activations unless they were asked for.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any

import torch

from torcheer import __version__
from torcheer.capture.asked import asked_values
from torcheer.capture.results import Current, plain_output
from torcheer.capture.torch.backward import BackwardRecorder
from torcheer.capture.torch.events import INPUT, OUTPUT
from torcheer.capture.torch.finish import Finisher, no_garbage_collection
from torcheer.capture.torch.finish_backward import Owners, add_backward
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.interrupts import Together
from torcheer.capture.torch.leaves import leaves_now
from torcheer.capture.torch.modes import AtenLevel, FunctionLevel
from torcheer.capture.torch.modules import call_on_tape, recording
from torcheer.capture.torch.private import no_function_mode, sequence_nr
from torcheer.capture.torch.saving import Keeper, Kept, Store, Wanted
from torcheer.capture.torch.select import Everything, Keys
from torcheer.capture.torch.spread import is_spread, local_of, part_of
from torcheer.capture.torch.structure import Structure, own_tensors, snapshot
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.errors import CaptureError
from torcheer.record.file import FilePayloads, TensorWriter
from torcheer.record.model import Part, Record, Ref, Run
from torcheer.record.payload import Payloads

Tensor = torch.Tensor
PARAM = "param."  # contents of a param or buffer are kept under this and its address


# Makes the ATen level of a session: AtenLevel, a level that also measures, or nothing at all (nullcontext).
AtenLevelMaker = Callable[[Tape, "Keeper | None"], AbstractContextManager[Any]]


class TorchSession:
    """Runs a model once and records it."""

    keeps_params = False  # also the contents of params and buffers, under PARAM and their addresses

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        wanted: Wanted | None,
        store: Store | None = None,
        level: type[FunctionLevel] = FunctionLevel,
        *,
        aten_level: AtenLevelMaker = AtenLevel,
        backward: Callable[..., BackwardRecorder] = BackwardRecorder,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.tape = Tape()
        self.store: Any = Kept() if store is None else store
        self.keeper = Keeper(self.tape, wanted, self.store) if wanted is not None else None
        self.function_level = level(self.tape, self.keeper)
        if aten_level is AtenLevel:
            self.function_level.leaves = leaves_now()
        self.aten_level = aten_level
        self.wanted = wanted
        self.output: Any = None
        self.run_facts = Run(type(model).__name__ if isinstance(model, torch.nn.Module) else _callable_name(model))
        self._structure: Structure | None = None
        self._input_refs: list[tuple[str, Ref]] = []
        self._output_refs: list[tuple[str, Ref]] = []
        self._record: Record | None = None
        self._finisher: Finisher | None = None
        self._backward = backward(self.tape, self.keeper, aten_level)
        self._owners: Owners | None = None

    # -- running -------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Call the model. Whatever it raises comes through as it is; the record then ends there."""
        tape, facts = self.tape, self.run_facts
        tape.root = self.model
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            tape.is_sharded = True
            tape.param_parts = _param_parts(self.model)
            facts.rank, facts.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        facts.seed = torch.initial_seed()
        facts.num_threads = torch.get_num_threads()
        facts.grad_enabled = torch.is_grad_enabled()
        facts.training = bool(getattr(self.model, "training", False))
        self._input_refs = [(path, tape.ref(tensor)) for path, tensor in self.inputs.tensors()]
        if self.keeper is not None:
            self._keep_inputs(self.keeper)
            if self.keeps_params or ((facts.world_size or 1) > 1 and isinstance(self.wanted, Everything)):
                self._keep_params(self.keeper)
        levels = Together(self.aten_level(tape, self.keeper), recording(tape, self.function_level), self.function_level)
        tape.first_seq = sequence_nr()
        start = tape.start_ns = perf_counter_ns()
        try:
            with levels:
                self.output = call_on_tape(
                    tape, self.model, self.inputs.args, self.inputs.kwargs, sys._getframe(0), _invoke
                )
            facts.time_ns = perf_counter_ns() - start
            self._output_refs = [(path, tape.ref(tensor)) for path, tensor in named_tensors(self.output)]
            self._keep_outputs()
        except BaseException as error:
            facts.time_ns = perf_counter_ns() - start
            facts.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            levels.leave()
            tape.forward_end, tape.last_seq = len(tape.events), sequence_nr()
            self._structure = snapshot(self.model)
            if isinstance(self.store, Kept):
                self.store.settle()
        return self.output

    def _keep_inputs(self, keeper: Keeper) -> None:
        # The next batch may be copied into an input, and the next run changes the buffers.
        keeper.borrow(tensor for _, tensor in self.inputs.tensors())
        if isinstance(self.model, torch.nn.Module):
            keeper.borrow(self.model.buffers())
        if isinstance(self.wanted, Keys) and self.wanted.modules:
            self.tape.keep_outputs = self._keep_module_output
        for _, tensor in self.inputs.tensors():
            if keeper.wanted.wants(_Input, tensor, self.tape):
                keeper.keep(INPUT, self.tape.ref(tensor), tensor)
            self.tape.num_ops += 1

    def _keep_params(self, keeper: Keeper) -> None:
        """Keep params and buffers as they are now: what this process has of them."""
        if not isinstance(self.model, torch.nn.Module):
            return
        keeper.borrow(self.model.buffers())
        for address, tensor in own_tensors(self.model):
            keeper.put(f"{PARAM}{address}", local_of(tensor) if is_spread(tensor) else tensor)

    def _keep_outputs(self) -> None:
        """Outputs that no op made: a parameter handed back as it is."""
        if self.keeper is None:
            return
        kept = {ref for _, ref in self.keeper.names}
        for _, tensor in named_tensors(self.output):
            ref = self.tape.ref(tensor)
            if ref not in kept and self.keeper.wanted.wants(_Output, tensor, self.tape):
                self.keeper.keep(OUTPUT, ref, tensor)

    def _keep_module_output(self, event: int, module: Any, output: Any) -> None:
        keeper, wanted = self.keeper, self.wanted
        if keeper is not None and isinstance(wanted, Keys) and id(module) in wanted.modules:
            with no_function_mode():
                for _, tensor in named_tensors(output):
                    keeper.keep(event, self.tape.ref(tensor), tensor)

    # -- reading -------------------------------------------------------------------------------------

    def record(self) -> Record:
        """The record of the run, built the first time it is asked for."""
        if self._record is None:
            assert self._structure is not None
            self._finisher = Finisher(self.tape, self._structure, self._facts())
            if self.keeper is not None:
                self._finisher.values.kept = self.keeper.names
            with no_garbage_collection():
                self._record = self._finisher.build(self._input_refs, self._output_refs)
            if isinstance(self.wanted, Keys) and self.keeper is not None:
                self._drop_unasked(self._record, self.wanted, self.keeper)
            self._structure = None
        if self._backward.pending:
            self._add_backward()
        return self._record

    def _add_backward(self) -> None:
        finisher = self._finisher
        assert finisher is not None
        with no_garbage_collection():
            owners = self._owners = self._owners or Owners(finisher)
            while self._backward.pending:
                add_backward(finisher, owners, self._backward.pending.pop(0))

    @property
    def finisher(self) -> Finisher:
        """What turned the tape into the record; it knows which event became what."""
        self.record()
        assert self._finisher is not None
        return self._finisher

    @property
    def backward_recorder(self) -> BackwardRecorder:
        """What records the backward passes."""
        return self._backward

    def owners(self) -> Owners:
        """Which forward op each autograd node belongs to."""
        self._owners = self._owners or Owners(self.finisher)
        return self._owners

    def ops_by_event(self) -> dict[int, int]:
        """Event on the tape → index into ``record.ops``."""
        self.record()
        assert self._finisher is not None
        return dict(self._finisher.op_of)

    def _drop_unasked(self, record: Record, wanted: Keys, keeper: Keeper) -> None:
        asked = asked_values(record, wanted.keys)
        record.saved = {value: name for value, name in record.saved.items() if value in asked}
        if isinstance(keeper.store, Kept):
            for name in set(keeper.store) - set(record.saved.values()):
                keeper.store.drop(name)

    def let_go(self) -> None:
        """Keep nothing of the output alive: it is the user's, with its graph."""
        facts = self.run_facts
        facts.output_structure, facts.output_data = type(self.output).__name__, plain_output(self.output)
        self.output = None

    def _facts(self) -> Run:
        facts = self.run_facts
        facts.framework_version = str(torch.__version__)
        facts.python_version, facts.torcheer_version = platform.python_version(), __version__
        if self.output is not None or not facts.output_structure:
            facts.output_structure, facts.output_data = type(self.output).__name__, plain_output(self.output)
        return facts

    @property
    def payloads(self) -> Payloads:
        """The contents that were kept, wherever they are now."""
        return Current(self)

    # -- backward ------------------------------------------------------------------------------------

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Run ``loss.backward(**kwargs)`` and add it to the record."""
        if not isinstance(loss, Tensor):
            raise CaptureError(
                f"log_backward takes the loss, a tensor, and was given {type(loss).__name__}. "
                "Call it as history.log_backward(loss), where loss was computed from history.output."
            )
        with self.watching_backward():
            loss.backward(**kwargs)

    @contextmanager
    def watching_backward(self) -> Iterator[None]:
        """Add to the record the backward pass that runs inside the ``with`` block."""
        with ExitStack() as stack:
            if self.keeper is not None and isinstance(self.store, FilePayloads):
                writer = stack.enter_context(TensorWriter.reopen(self.store.path))
                self.keeper.store = writer
                stack.callback(lambda: setattr(self, "store", writer.finish(self.record())))
            elif self._record is not None:
                # Somebody has read the record: views of it would not notice a pass that is still to be added.
                stack.callback(self.record)
            with self._backward.watching():
                yield


def _param_parts(model: Any) -> dict[str, Part]:
    """What this process has of params and buffers that are spread over several, by address."""
    tensors = own_tensors(model) if isinstance(model, torch.nn.Module) else ()
    return {address: part_of(tensor) for address, tensor in tensors if is_spread(tensor)}


class _Input:
    """Stands for the function of an input, which has none."""


class _Output:
    """The same for an output."""


def _invoke(model: Any, *args: Any, **kwargs: Any) -> Any:
    return model(*args, **kwargs)


def _callable_name(model: Any) -> str:
    return str(getattr(model, "__name__", type(model).__name__))
