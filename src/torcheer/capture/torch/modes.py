"""What PyTorch tells us of every call, on two levels.

``FunctionLevel`` sees calls made from Python: the ops people recognise. ``AtenLevel`` sees, below it, every
ATen call, also those made inside C++ composites, scripted code and the backward pass. Both are PyTorch's own
modes: nothing is wrapped, and both are gone when the run ends.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torcheer.capture.torch.composites import write_saved
from torcheer.capture.torch.events import ATEN, OP
from torcheer.capture.torch.kinds import METADATA_CALLS, REPLACING_CALLS, AtenKind
from torcheer.capture.torch.leaves import Leaf, is_cast_or_hooked
from torcheer.capture.torch.private import (
    TorchDispatchMode,
    current_node,
    hide_from_dynamo,
    in_forward_ad,
    no_dispatch_mode,
    no_function_mode,
    num_dispatch_modes,
    num_function_modes,
    plain_kernel,
    run_kernel,
    sequence_nr,
    transforms,
)
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.tape import DERIVED, FRESH, Tape, named_tensors
from torcheer.record.model import Ref

Tensor = torch.Tensor
_LOOK = object()
_is_grad_enabled = torch.is_grad_enabled


class FunctionLevel(TorchFunctionMode):
    """Writes an ``OpEvent`` for every call from Python that makes, reads or changes tensors."""

    caller = 1  # frames up from here to the call: 2 where a subclass looks first

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__()
        self.tape = tape
        self.keeper = keeper
        self.leaves: dict[int, Leaf] = {}  # functions whose ATen call need not be looked at

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA_CALLS:
            return func(*args, **kwargs) if kwargs else func(*args)
        tape = self.tape
        events = tape.events
        index = len(events)
        events.append(None)
        # Before the call: an in-place op changes what its arguments are.
        given = tape.template(args)
        named = tape.template_dict(kwargs) if kwargs else None
        site = tape.site(sys._getframe(self.caller))
        outer = tape.op
        tape.op = index
        if tape.is_sharded:
            tape.note_gathered(args)
        leaf = self.leaves.get(id(func))
        seq = sequence_nr()
        start = tape.now()
        try:
            out = _LOOK if leaf is None or kwargs else self._run_leaf(leaf, given, index, args)
            if out is _LOOK:
                out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            tape.op = outer
            events[index] = (
                OP, func, given, named, None, (), outer, tape.call, site, start, tape.now(),
                seq, sequence_nr(), len(events), type(error).__name__,
            )  # fmt: skip
            raise
        end = tape.now()
        tape.op = outer
        nodes: tuple[Any, ...] = ()
        if type(out) is Tensor:
            entry = tape.live.get(id(out))
            result: Any = entry[1] if entry is not None and entry[0]() is out else tape.register(out, DERIVED)
            if out.requires_grad:
                node = out.grad_fn
                if node is not None:
                    nodes = ((result, type(node), node._sequence_nr(), out.output_nr),)
            if self.keeper is not None:
                self.keeper.offer(index, func, result, out)
        elif len(events) == index + 1 and isinstance(out, _PLAIN_RESULTS) and func not in REPLACING_CALLS:
            # It read nothing but metadata, or ran no kernel: not an operation.
            events.pop()
            return out
        else:
            result, nodes = self._result(index, func, args, out)
        events[index] = (
            OP, func, given, named, result, nodes, outer, tape.call, site, start, end, seq, sequence_nr(),
            len(events), None,
        )  # fmt: skip
        if outer < 0:
            tape.num_ops += 1
        return out

    def _result(self, index: int, func: Any, args: tuple[Any, ...], out: Any) -> tuple[Any, tuple[Any, ...]]:
        """A result that is no single tensor, tensors as numbers, and their autograd nodes."""
        tape = self.tape
        if func in REPLACING_CALLS:
            result = tape.refresh(args[0])
            self.results(index, func, args[0])
            return result, ()
        if out is None and func is Tensor.__setitem__:
            # What it wrote into is its result.
            return tape.ref(args[0]), self.results(index, func, args[0])
        if isinstance(out, (int, type(None))) and getattr(func, "__module__", None) == _COLLECTIVES:
            written = () if func.__name__ in _ONLY_READ else args[:1]
            return tape.convert(written), self.results(index, func, written)
        return tape.convert(out), () if isinstance(out, _PLAIN_RESULTS) else self.results(index, func, out)

    def _run_leaf(self, leaf: Leaf, given: tuple[Any, ...], index: int, args: tuple[Any, ...]) -> Any:
        """Call a leaf and write its ATen call on the tape as the ATen level would; _LOOK where that has to look."""
        tape, kind, arguments = self.tape, leaf.kind, leaf.arguments
        inner: tuple[Any, ...] | None = given
        if not isinstance(arguments, int):
            inner = arguments(given)
        elif len(given) != arguments:
            return _LOOK
        if (
            inner is None
            or tape.is_lazy
            or num_dispatch_modes() != 1
            or num_function_modes()
            or transforms() is not None
            or in_forward_ad()
            or is_cast_or_hooked(leaf)
        ):
            return _LOOK
        values = tape.values
        for argument in inner:
            # Rows of other kinds are of subclasses and of tensors without ordinary storage.
            if type(argument) is Ref:
                if type(values[argument]) is not tuple:
                    return _LOOK
            elif isinstance(arguments, int):
                return _LOOK
        if leaf.is_alone is not None and not leaf.is_alone(*args):
            return _LOOK
        if self.keeper is not None and kind.writes:
            self.keeper.before_write(kind, args, None)
        off = no_dispatch_mode()  # not by a `with`, which takes twice as long
        try:
            out = leaf.func(*args)
        finally:
            del off
        if leaf.write is not None:
            leaf.write(tape, given, out, index)
            return out
        result = given[0] if out is args[0] else tape.register(out, DERIVED if kind.is_view else FRESH)
        tape.events.append((ATEN, kind, inner, None, result, index, tape.call))
        if leaf.saves_result and out.requires_grad and _is_grad_enabled():
            write_saved(tape, result, index)
        return out

    def results(self, index: int, func: Any, out: Any) -> tuple[Any, ...]:
        """Autograd nodes of every tensor in a structured result, each offered for saving."""
        nodes = []
        for _, tensor in named_tensors(out):
            ref = self.tape.ref(tensor)
            node = tensor.grad_fn if tensor.requires_grad else None
            if node is not None:
                nodes.append((ref, type(node), node._sequence_nr(), tensor.output_nr))
            if self.keeper is not None:
                self.keeper.offer(index, func, ref, tensor)
        return tuple(nodes)


_COLLECTIVES = "torch.distributed.distributed_c10d"  # they return no tensor and write to their first argument
_ONLY_READ = frozenset({"send", "gather"})  # but for these
_PLAIN_RESULTS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.Size)


class AtenLevel(TorchDispatchMode):
    """Writes an ``AtenEvent`` for every ATen call."""

    # cond, while_loop and their like reach the mode instead of failing under it.
    supports_higher_order_operators = True

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__()
        self.tape = tape
        self.keeper = keeper

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Its guard against Dynamo costs 1.5 µs per ATen call; hide_from_dynamo costs nothing.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tape = self.tape
        kind = tape.aten_kinds.get(id(func)) or tape.kind_of(func)
        owner = tape.op
        if owner < 0 or kind.is_special or tape.is_paused:
            return self._special(kind, func, args, kwargs or {})
        live = tape.live
        # As Tape.template has it: a call would cost as much as the loop.
        given = []
        for value in args:
            entry = live.get(id(value))
            given.append(entry[1] if entry is not None and entry[0]() is value else tape.convert(value))
        if self.keeper is not None and kind.writes:
            self.keeper.before_write(kind, args, kwargs)
        if kwargs:
            named: Any = tape.template_dict(kwargs)
            out = func._op(*args, **kwargs)
        else:
            named = None
            try:
                out = kind.run(*args)
            except TypeError:  # arguments the binding does not take; the operator says so itself if it does not either
                out = func._op(*args)
        if type(out) is Tensor:
            entry = live.get(id(out))
            if entry is None or entry[0]() is not out or kind.changes_geometry:
                is_view = kind.is_view and (not kind.may_copy or tape.shares(out, given))
                result: Any = tape.register(out, DERIVED if is_view else FRESH)
            else:
                result = entry[1]
        else:
            result = self._result(kind, given, out)
        tape.events.append((ATEN, kind, tuple(given), named, result, owner, tape.call))
        return out

    def _result(self, kind: AtenKind, given: Sequence[Any], out: Any) -> Any:
        """What an ATen call returned, tensors as numbers."""
        tape = self.tape
        if type(out) is not Tensor:
            return tape.convert(out) if kind.is_view or kind.writes else self._fresh(out)
        entry = tape.live.get(id(out))
        if entry is not None and entry[0]() is out and not kind.changes_geometry:
            return entry[1]
        is_view = kind.is_view and (not kind.may_copy or tape.shares(out, given))
        return tape.register(out, DERIVED if is_view else FRESH)

    def _special(self, kind: AtenKind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls that are torcheer's own, that compute nothing, that take functions, or that nobody owns."""
        tape = self.tape
        if tape.is_paused or kind.is_mark:
            return func(*args, **kwargs)
        if kind.is_higher_order:
            # cond, while_loop: run as they are, with what their branches do recorded.
            return plain_kernel(func)(*(self._inside(arg) for arg in args), **kwargs)
        if tape.op >= 0:
            given, named = self._before(kind, args, kwargs)
            out = self._run(kind, func, args, kwargs)
            tape.events.append((ATEN, kind, given, named, self._result(kind, given, out), tape.op, tape.call))
            return out
        # No function-level call is open, so its mode is active and would take what follows for calls of the user's.
        with no_function_mode():
            given, named = self._before(kind, args, kwargs)
            out = self._run(kind, func, args, kwargs)
            self._unowned(kind, given, named, self._result(kind, given, out), out)
        return out

    def _before(self, kind: AtenKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self.keeper is not None and kind.writes:
            self.keeper.before_write(kind, args, kwargs)
        return self.tape.template(args), self.tape.template_dict(kwargs) if kwargs else None

    def _inside(self, argument: Any) -> Any:
        if not callable(argument):
            return argument

        def branch(*args: Any, **kwargs: Any) -> Any:
            with self:
                return argument(*args, **kwargs)

        return branch

    def _run(self, kind: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kind.is_custom:
            tensor = next((tensor for _, tensor in named_tensors(args)), None)
            if type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_meta:
                # A kernel written in Python: what it calls is recorded as its inside.
                with self:
                    return run_kernel(func, tensor, args, kwargs)
        return func._op(*args, **kwargs)

    def _unowned(self, kind: Any, given: Any, named: Any, result: Any, out: Any) -> None:
        """An ATen call that no Python call caused: scripted or compiled code, or a backward pass."""
        tape = self.tape
        index = len(tape.events)
        if not tape.is_forward:
            tape.events.append((ATEN, kind, given, named, result, -1, tape.call, *self._node()))
            return
        tape.events.append((ATEN, kind, given, named, result, -1, tape.call, sequence_nr()))
        if self.keeper is not None:
            for _, tensor in named_tensors(out):
                self.keeper.offer(index, kind, tape.ref(tensor), tensor)
        tape.num_ops += 1

    def _fresh(self, out: Any) -> Any:
        tape = self.tape
        if isinstance(out, Tensor):
            entry = tape.live.get(id(out))
            return entry[1] if entry is not None and entry[0]() is out else tape.register(out, FRESH)
        if isinstance(out, (tuple, list)):
            return tuple(self._fresh(item) for item in out)
        return tape.convert(out)

    def _node(self) -> tuple[int | None, str | None]:
        """Sequence number and name of the autograd node that is being evaluated."""
        node = current_node()
        if node is None:
            return None, None
        if type(node).__name__ != "AccumulateGrad":
            return node._sequence_nr(), type(node).__name__
        if self.tape.at_leaf is not None:
            self.tape.at_leaf()
        # A leaf's node has no number of its own; it is told by the leaf.
        return -1 - self.tape.ref(node.variable), "AccumulateGrad"


hide_from_dynamo(
    *(
        value
        for level in (FunctionLevel, AtenLevel, Tape)
        for value in vars(level).values()
        if inspect.isfunction(value)
    )
)
