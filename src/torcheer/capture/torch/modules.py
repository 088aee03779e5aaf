"""Module calls and autograd.Function calls, seen by replacing what ``nn.Module.__call__`` runs and ``Function.apply``.

The replacements are in place only while a capture runs somewhere in the process, and on a thread that is not
recording they pass straight through. Module hooks are not used: they would show up on the user's modules and
send every call down ``nn.Module``'s slow path.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import Function

from torcheer.capture.torch.compiled import eager_source
from torcheer.capture.torch.events import CALL, OP
from torcheer.capture.torch.modes import FunctionLevel
from torcheer.capture.torch.overrides import plain_override_checks
from torcheer.capture.torch.private import (
    CAPTURES,
    HigherOrderOperator,
    below_captures,
    eager_branches,
    is_autograd_key,
    replace_module_call,
    sequence_nr,
)
from torcheer.capture.torch.tape import Tape

_local = threading.local()
_lock = threading.Lock()
_installed: list[Any] = []  # [number of captures, the ExitStack that undoes the replacements]
_all_tapes: list[Tape] = []  # of every thread, for telling a module's owner about calls on other threads

Recorded = tuple[Tape, "FunctionLevel | None"]


def _levels() -> list[Recorded]:
    levels: list[Recorded] | None = getattr(_local, "levels", None)
    if levels is None:
        levels = _local.levels = []
    return levels


def is_recording() -> bool:
    """Is a capture running on this thread?"""
    return bool(getattr(_local, "levels", None))


@contextmanager
def recording(tape: Tape, level: FunctionLevel) -> Iterator[None]:
    """Send this thread's module calls to ``tape``. Captures nest; each sees the calls inside it."""
    _install()
    _levels().append((tape, level))
    _all_tapes.append(tape)
    try:
        yield
    finally:
        _levels().pop()
        _all_tapes.remove(tape)
        _uninstall()


def _install() -> None:
    with _lock:
        if not _installed:
            undo = ExitStack()
            undo.enter_context(plain_override_checks(is_recording))
            undo.enter_context(eager_source(_note_compiled))
            undo.enter_context(_replaced(threading.Thread, "start", _noted_start))
            undo.enter_context(_replaced(ThreadPoolExecutor, "submit", _noted_submit))
            undo.callback(replace_module_call, CAPTURES, None)
            replace_module_call(CAPTURES, _recorded_call)
            undo.enter_context(_replaced(torch.UntypedStorage, "resize_", _recorded_resize))
            undo.enter_context(_replaced(HigherOrderOperator, "dispatch", _recorded_dispatch))
            undo.enter_context(_replaced(Function, "apply", classmethod(_recorded_apply)))
            _installed.extend((0, undo))
        _installed[0] += 1


def _uninstall() -> None:
    with _lock:
        _installed[0] -= 1
        if _installed[0] == 0:
            undo = _installed[1]
            _installed.clear()
            undo.close()


@contextmanager
def _replaced(owner: type, name: str, replacement: Any) -> Iterator[None]:
    inherited = name not in owner.__dict__
    original = getattr(owner, name) if inherited else owner.__dict__[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


_plain_resize: Callable[..., Any] = torch.UntypedStorage.resize_
_plain_dispatch: Callable[..., Any] = HigherOrderOperator.dispatch
_plain_apply: Callable[..., Any] = Function.__dict__["apply"].__func__


def _recorded_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    levels = getattr(_local, "levels", None)
    if not levels:
        _note_other_thread(module)
        return below_captures[0](module, *args, **kwargs)
    # Between the caller and this is nn.Module.__call__.
    if len(levels) == 1:
        return call_on_tape(levels[0][0], module, args, kwargs, sys._getframe(2), below_captures[0])
    return _call_on_all(levels, len(levels) - 1, module, args, kwargs, sys._getframe(2))


def _call_on_all(
    levels: list[Recorded], depth: int, module: Any, args: Any, kwargs: Any, frame: FrameType | None
) -> Any:
    """Nested captures: the call goes on every tape, innermost capture first."""

    def outer(_module: Any, *inner_args: Any, **inner_kwargs: Any) -> Any:
        if depth == 0:
            return below_captures[0](module, *inner_args, **inner_kwargs)
        return _call_on_all(levels, depth - 1, module, inner_args, inner_kwargs, frame)

    return call_on_tape(levels[depth][0], module, args, kwargs, frame, outer)


def call_on_tape(
    tape: Tape, module: Any, args: Any, kwargs: Any, frame: FrameType | None, call: Callable[..., Any]
) -> Any:
    """Run a module's call and write it on the tape."""
    outer = tape.call
    if outer == 0 and module is tape.root and not tape.root_entered:
        # The session has written the model's own call; this is nn.Module.__call__ inside it.
        tape.root_entered = True
        return call(module, *args, **kwargs)
    costs = tape.call_costs
    entered = 0 if costs is None else tape.host_now()
    events = tape.events
    index = len(events)
    events.append(module)
    given = tape.template(args)
    named = tape.template_dict(kwargs) if kwargs else None
    site = tape.site(frame)
    outer_op = tape.op
    tape.call = index
    training = getattr(module, "training", False)
    result = error = None
    start = tape.now()
    try:
        out = call(module, *args, **kwargs)
        end = tape.now()
        result = tape.convert(out)
        if tape.keep_outputs is not None:
            tape.keep_outputs(index, module, out)
        return out
    except BaseException as raised:
        end = tape.now()
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        tape.call, tape.op = outer, outer_op
        events[index] = (
            CALL, module, given, named, result, outer, site, start, end, len(events), training, error,
        )  # fmt: skip
        if costs is not None:
            costs[index] = tape.host_now() - entered - (end - start)


def _recorded_apply(function: type[Function], *args: Any, **kwargs: Any) -> Any:
    """autograd.Function: an op under its own name; what its forward does is recorded inside it."""
    levels = getattr(_local, "levels", None)
    if not levels:
        return _plain_apply(function, *args, **kwargs)
    tape, level = levels[-1]
    events = tape.events
    index = len(events)
    events.append(None)
    given, named = tape.template(args), tape.template_dict(kwargs) if kwargs else None
    site = tape.site(sys._getframe(1))
    outer, tape.op = tape.op, index
    seq = sequence_nr()
    start = tape.now()
    out, nodes, result, error = None, (), None, None
    try:
        out = _plain_apply(function, *args, **kwargs)
        return out
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        end = tape.now()
        tape.op = outer
        if error is None:
            result = tape.convert(out)
            nodes = level.results(index, function, out)
        events[index] = (
            OP, function, given, named, result, nodes, outer, tape.call, site, start, end,
            seq, sequence_nr(), len(events), error,
        )  # fmt: skip


def _recorded_dispatch(operator: HigherOrderOperator, key: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run cond, while_loop and their like as they are, before autograd sees them as a whole.

    Compiled, they would be given what their functions close over as operands. Run eagerly as a whole, they would
    lose the gradients of it.
    """
    if is_recording() and is_autograd_key(key):
        run = eager_branches(operator)
        if run is not None:
            return run(*args, **kwargs)
    return _plain_dispatch(operator, key, *args, **kwargs)


def _recorded_resize(storage: torch.UntypedStorage, size: int) -> Any:
    """FSDP gives back the memory of gathered params this way, which no operator tells of."""
    for _, level in getattr(_local, "levels", None) or ():
        if level.keeper is not None:
            level.keeper.before_resize(storage)
    return _plain_resize(storage, size)


def _note_compiled() -> None:
    for tape, _ in getattr(_local, "levels", None) or ():
        tape.has_compiled_code = True


def _note_other_thread(module: torch.nn.Module) -> None:
    """A module of a model under capture is called on a thread that the capture does not see."""
    for tape in list(_all_tapes):
        if tape.owns(module):
            tape.unseen_threads[threading.current_thread().name] = None


_plain_start = threading.Thread.start
_plain_submit = ThreadPoolExecutor.submit


def _noted_start(thread: threading.Thread) -> None:
    for tape, _ in getattr(_local, "levels", None) or ():
        tape.unseen_threads[thread.name] = None
    _plain_start(thread)


def _noted_submit(pool: ThreadPoolExecutor, /, *args: Any, **kwargs: Any) -> Any:
    for tape, _ in getattr(_local, "levels", None) or ():
        tape.unseen_threads[getattr(pool, "_thread_name_prefix", "") or "a thread pool"] = None
    return _plain_submit(pool, *args, **kwargs)
