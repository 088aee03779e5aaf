"""Adds a backward pass to the record of its forward pass.

Every autograd node carries the sequence number it got when it was made, and every forward op knows which
numbers were given out during its call, so a node has exactly one owner; no hook is put on a module. Gradients
are read in pre-hooks of the nodes, which also work where values were changed in place. What a backward pass
computes again (checkpointing) is matched to the forward op at the same call site of the same module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch

from torcheer.capture.torch.finish import Finisher, no_garbage_collection
from torcheer.capture.torch.finish_backward import Owners, add_backward_events
from torcheer.capture.torch.modes import AtenLevel, FunctionLevel
from torcheer.capture.torch.modules import recording
from torcheer.capture.torch.private import backward_runner, no_function_mode
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Gradient, Record

Tensor = torch.Tensor


class BackwardRecorder:
    """Records backward passes through the graph of one forward pass."""

    def __init__(self, record: Record, finisher: Finisher, tape: Tape, keeper: Keeper | None) -> None:
        self.record = record
        self.finisher = finisher
        self.tape = tape
        self.keeper = keeper
        self.owners = Owners(finisher)
        self._matched = 0  # events up to here have been matched to forward ops
        self._gradients: list[Gradient] = []
        self._node_times: dict[int, int] = {}  # sequence number → ns
        self._starts: dict[int, int] = {}
        self._running = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record every backward pass started inside the block."""
        tape, run = self.tape, self.record.run
        run.num_backward += 1
        first = self._matched = len(tape.events)
        tape.is_forward = False
        tape.op = tape.call = -1
        try:
            with backward_runner(self._wrap):
                yield
        except BaseException:
            if len(tape.events) == first and not self._gradients:
                run.num_backward -= 1  # it never began
            raise
        finally:
            with no_garbage_collection():
                self._matched = self.owners.match(self._matched)
                add_backward_events(self.finisher, first, self.owners)
                self._add_times()
            self.record.gradients.extend(self._gradients)
            self._gradients = []

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for handle in self._hook(roots):
                    stack.callback(handle.remove)
                if not self._running:
                    # A backward pass inside a backward pass (reentrant checkpointing) is under the modes already.
                    level = FunctionLevel(self.tape, None)
                    stack.enter_context(AtenLevel(self.tape, self.keeper))
                    stack.enter_context(recording(self.tape, level))
                    stack.enter_context(level)
                self._running += 1
                try:
                    return original(roots, *args, **kwargs)
                finally:
                    self._running -= 1

        return run

    # -- hooks ---------------------------------------------------------------------------------------

    def _hook(self, roots: Any) -> list[Any]:
        """Put hooks on the nodes below ``roots`` that belong to the recorded run."""
        if self._running:
            # What was computed again so far has made the graph below these roots.
            self._matched = self.owners.match(self._matched)
        handles: list[Any] = []
        seen: set[Any] = set()
        stack = [root.grad_fn for root in roots if isinstance(root, Tensor) and root.grad_fn is not None]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                handles += self._hook_leaf(node, variable)
            else:
                seq = node._sequence_nr()
                if seq in self.owners.of_node:
                    handles.append(node.register_prehook(partial(self._reached, seq)))
                    handles.append(node.register_hook(partial(self._left, seq)))
            stack.extend(following for following, _ in node.next_functions if following is not None)
        return handles

    def _reached(self, seq: int, gradients: tuple[Tensor | None, ...]) -> None:
        for output, gradient in enumerate(gradients):
            if gradient is not None:
                for value in self.owners.targets.get((seq, output), ()):
                    self._add(gradient, value, None)
        self._starts[seq] = perf_counter_ns()

    def _left(self, seq: int, _inputs: Any, _outputs: Any) -> None:
        start = self._starts.pop(seq, None)
        if start is not None:
            self._node_times[seq] = self._node_times.get(seq, 0) + perf_counter_ns() - start

    def _hook_leaf(self, node: Any, variable: Tensor) -> list[Any]:
        entry = self.tape.live.get(id(variable))
        if entry is None or entry[0]() is not variable:
            return []
        param = self.finisher.values.param_refs.get(entry[1])
        value = None if param is not None else self.finisher.input_values.get(entry[1])
        if param is None and value is None:
            return []

        def reached(gradients: tuple[Tensor | None, ...]) -> None:
            # What is already there is added to in place; the gradient of this pass is only seen here. A first
            # gradient is handed over as it is, and holding it here would force PyTorch to copy it.
            if gradients[0] is not None and variable.grad is not None:
                self._add(gradients[0], value, param)
                done.append(True)

        def left(_inputs: Any, _outputs: Any) -> None:
            if not done and variable.grad is not None:
                self._add(variable.grad, value, param)
            done.clear()

        done: list[bool] = []
        return [node.register_prehook(reached), node.register_hook(left)]

    def _add(self, gradient: Tensor, value: int | None, param: int | None) -> None:
        number = self.record.run.num_backward
        with no_function_mode():
            size = gradient.numel() * gradient.element_size() if gradient.layout is torch.strided else None
            kept = self.keeper is not None and (param is not None or value in self.record.saved)
            name = None
            if kept and self.keeper is not None:
                name = f"grad.{number}.{value}" if param is None else f"param_grad.{number}.{param}"
                self.keeper.put(name, gradient)
            shape, dtype = tuple(gradient.shape), str(gradient.dtype).removeprefix("torch.")
        self._gradients.append(Gradient(number, value, param, shape, dtype, size, name))

    def _add_times(self) -> None:
        totals: dict[int, int] = {}
        for seq, time_ns in self._node_times.items():
            owner = self.owners.of_node.get(seq)
            if owner is not None:
                totals[owner] = totals.get(owner, 0) + time_ns
        for owner, time_ns in totals.items():
            self.record.ops[owner].backward_time_ns = time_ns
        self._node_times = {}
