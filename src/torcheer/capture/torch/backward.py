"""Records backward passes through the graph of one forward pass.

Every autograd node carries the sequence number it got when it was made, and every forward op knows which
numbers were given out during its call, so a node has exactly one owner; no hook is put on a module. Gradients
are read in pre-hooks of the nodes, which also work where values were changed in place.

As in the forward pass, what happens is only written down here; ``finish_backward.py`` adds it to the record when
the record is next read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from time import perf_counter_ns
from typing import Any

import torch

from torcheer.capture.torch.events import ATEN, INPUT, OP, AtenEvent, OpEvent
from torcheer.capture.torch.finish_backward import BackwardPass, GradientRow
from torcheer.capture.torch.finish_values import refs_in
from torcheer.capture.torch.held import LEAF_SEQ, nodes_below
from torcheer.capture.torch.modes import AtenLevel, FunctionLevel
from torcheer.capture.torch.modules import recording
from torcheer.capture.torch.private import backward_runner, no_function_mode, sequence_nr
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.spread import is_spread, part_of
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Ref

Tensor = torch.Tensor


class BackwardRecorder:
    """Writes backward passes on the tape of their forward pass."""

    def __init__(
        self,
        tape: Tape,
        keeper: Keeper | None,
        aten_level: Callable[[Tape, Keeper | None], AbstractContextManager[Any]] = AtenLevel,
    ) -> None:
        self.tape = tape
        self.keeper = keeper
        self.aten_level = aten_level
        self.num_passes = 0
        self.pending: list[BackwardPass] = []  # not yet in the record
        self._now = BackwardPass(0, 0)
        self._first_seq = 0
        self._entered: tuple[int | None, int] = (None, 0)  # the node being evaluated, and since when
        self._running = 0
        self._sharded = False
        self._params_now: set[int] = set()  # id() of the params that are the model's when a pass begins

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record every backward pass started inside the block, as one."""
        tape = self.tape
        now = self._now = BackwardPass(self.num_passes + 1, len(tape.events))
        self._first_seq = sequence_nr()
        tape.is_forward = False
        tape.op = tape.call = -1
        tape.at_leaf = partial(self._enter, None)
        try:
            with backward_runner(self._wrap):
                yield
        finally:
            now.end = len(tape.events)
            # A call that was refused, such as one on a loss that is no scalar, is no pass.
            if now.end > now.first or now.gradients:
                self.num_passes = now.number
                self.pending.append(now)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                leaves: list[tuple[Tensor, Ref, bool]] = []
                self._sharded = self._has_sharded() if not self._running else self._sharded
                stack.callback(_remove, self._hook(roots, leaves))
                if not self._running:
                    # A backward pass inside a backward pass (reentrant checkpointing) is under the modes already.
                    level = FunctionLevel(self.tape, None)
                    stack.enter_context(self.aten_level(self.tape, self.keeper))
                    stack.enter_context(recording(self.tape, level))
                    stack.enter_context(level)
                self._running += 1
                try:
                    return original(roots, *args, **kwargs)
                finally:
                    self._running -= 1
                    self._enter(None)
                    read = {id(variable) for variable, ref, keep in leaves if self._read(variable, ref, keep=keep)}
                    if not self._running:
                        self._add_sharded(read)

        return run

    def _read(self, leaf: Tensor, ref: Ref, *, keep: bool) -> bool:
        """Take the gradient of a leaf when the pass is over, if it got one."""
        with no_function_mode():
            gradient = leaf.grad
        if gradient is not None:
            self._add(gradient, None, 0, ref, keep=keep)
        return gradient is not None

    def _has_sharded(self) -> bool:
        """Whether gradients of params are made of several processes' (FSDP), to be read when the pass is over."""
        root = self.tape.root
        if not self.tape.is_sharded or not isinstance(root, torch.nn.Module):
            return False
        with no_function_mode():
            return all(param.grad is None for param in root.parameters())

    def _add_sharded(self, known: set[int]) -> None:
        # As they are now: FSDP puts a gathered param in place of its own while the pass runs.
        for address, param in self.tape.root.named_parameters() if self._sharded else ():
            with no_function_mode():
                gradient = param.grad
            if gradient is not None and id(param) not in known:
                self._add(gradient, None, 0, None, keep=True, param=address)

    # -- hooks ---------------------------------------------------------------------------------------

    def _hook(self, roots: Any, leaves: list[tuple[Tensor, Ref, bool]]) -> list[Any]:
        """Put hooks on the nodes below ``roots`` that belong to the recorded run.

        Leaves whose gradient can be read when the pass is over are added to ``leaves``.
        """
        handles: list[Any] = []
        root = self.tape.root
        self._params_now = set(map(id, root.parameters())) if isinstance(root, torch.nn.Module) else set()
        for node in nodes_below(root for root in roots if isinstance(root, Tensor)):
            seq = node._sequence_nr()
            if seq < LEAF_SEQ:
                handles += self._hook_node(node, seq)
            else:
                handles += self._hook_leaf(node, node.variable, leaves)
        return handles

    def _hook_node(self, node: Any, seq: int) -> list[Any]:
        return [node.register_prehook(partial(self._reached, seq))] if self._belongs(seq) else []

    def _belongs(self, seq: int) -> bool:
        """Was the node made by the recorded run, or by a part of it that is being computed again?"""
        tape = self.tape
        return tape.first_seq <= seq < tape.last_seq or (self._running > 0 and seq >= self._first_seq)

    @cached_property
    def _kept_nodes(self) -> set[tuple[int, int]]:
        """(sequence number, output) of the nodes behind the tensors whose contents are kept."""
        if self.keeper is None:
            return set()
        refs = {ref for _, ref in self.keeper.names}
        nodes: set[tuple[int, int]] = set()
        for raw in self.tape.events[: self.tape.forward_end]:
            if type(raw) is not tuple:
                continue
            if raw[0] == OP:
                nodes.update((seq, output) for ref, _, seq, output in OpEvent._make(raw).nodes if ref in refs)
            elif raw[0] == ATEN and len(raw) > 7:
                event = AtenEvent(*raw)
                kept = enumerate(ref for _, ref in refs_in(event.out))
                nodes.update(((event.seq or 0) - 1, output) for output, ref in kept if ref in refs)
        return nodes

    def _reached(self, seq: int, gradients: tuple[Tensor | None, ...]) -> None:
        for output, gradient in enumerate(gradients):
            if gradient is not None:
                keep = (seq, output) in self._kept_nodes or seq >= self._first_seq
                self._add(gradient, seq, output, None, keep=keep)
        self._enter(seq)

    def _enter(self, seq: int | None) -> None:
        """The engine evaluates one node after the other: one's time ends where the next one's begins."""
        now = perf_counter_ns()
        before, start = self._entered
        if before is not None:
            times = self._now.node_times
            times[before] = times.get(before, 0) + now - start
        self._entered = (seq, now)

    def _hook_leaf(self, node: Any, variable: Tensor, leaves: list[tuple[Tensor, Ref, bool]]) -> list[Any]:
        entry = self.tape.live.get(id(variable))
        if entry is None or entry[0]() is not variable:
            return []
        ref = entry[1]
        is_input = self.keeper is not None and (INPUT, ref) in self.keeper.names
        keep = is_input or isinstance(variable, torch.nn.Parameter)
        is_own = id(variable) in self._params_now
        if self._sharded and (ref in self.tape.gathered or is_spread(variable)):
            return []
        if is_own and variable.grad is None and not variable._post_accumulate_grad_hooks and not self._running:
            # Nobody takes it away or adds to it before the pass ends, as FSDP does with gathered params.
            leaves.append((variable, ref, keep))
            return []

        def reached(gradients: tuple[Tensor | None, ...]) -> None:
            # What is already there is added to in place; the gradient of this pass is only seen here. A first
            # gradient is handed over as it is, and holding it here would force PyTorch to copy it.
            self._enter(None)
            if gradients[0] is not None and variable.grad is not None:
                self._add(gradients[0], None, 0, ref, keep=keep)
                done.append(True)

        def left(_inputs: Any, _outputs: Any) -> None:
            if not done and variable.grad is not None:
                self._add(variable.grad, None, 0, ref, keep=keep)
            done.clear()

        done: list[bool] = []
        return [node.register_prehook(reached), node.register_hook(left)]

    def _add(
        self, gradient: Tensor, seq: int | None, output: int, leaf: Ref | None, *, keep: bool, param: str | None = None
    ) -> None:
        with no_function_mode():
            name = None
            if keep and self.keeper is not None:
                where = f"leaf.{param or leaf}" if seq is None else f"{seq - self.tape.first_seq}.{output}"
                name = f"grad.{self._now.number}.{where}"
                self.keeper.put(name, gradient)
            size = gradient.numel() * gradient.element_size() if gradient.layout is torch.strided else None
            part = part_of(gradient) if self.tape.is_sharded and is_spread(gradient) else None
            row = GradientRow(seq, output, leaf, gradient.shape, gradient.dtype, size, name, param, part)
        self._now.gradients.append(row)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
