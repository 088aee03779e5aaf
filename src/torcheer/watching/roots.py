"""Calls of a watched model, and of its modules while a step is logged, without a hook on any of them.

A hook would be pickled and copied with the module. So the class of the watched model gets a ``__call__`` for as
long as one of its objects is watched; for others of that class it adds a look into a dict. The calls of modules
inside are seen by replacing what ``nn.Module.__call__`` runs, only for the length of a forward that is logged, so
that quiet steps run PyTorch's own code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from torcheer.capture.torch.private import (
    WATCHES,
    plain_module_call,
    replace_module_call,
    step_over_for_dynamo,
    swap_compiling,
)

Module = torch.nn.Module


class Call:
    """The plain call of a watched model, ready to be made."""

    __slots__ = ("_compiler", "_run")

    def __init__(self, run: Callable[[], Any], compiler: Any) -> None:
        self._run, self._compiler = run, compiler

    @property
    def is_compiled(self) -> bool:
        """Does Dynamo compile what it runs?"""
        return bool(self._compiler)

    def plain(self) -> Call:
        """The same call, not compiled."""
        return Call(self._run, None)

    def __call__(self) -> Any:
        if self._compiler is None:
            return self._run()
        swap_compiling(self._compiler)
        try:
            return self._run()
        finally:
            swap_compiling(None)


Forward = Callable[[Call, Module, tuple[Any, ...], dict[str, Any]], Any]

_lock = threading.Lock()
_watched: dict[int, Forward] = {}  # id of a watched model → what runs its calls
_classes: dict[type, list[Any]] = {}  # class → [how many of it are watched, its own __call__ or None]


def watch_calls(model: Module, forward: Forward) -> None:
    """From now on ``forward(call, model, args, kwargs)`` runs the model's calls; ``call()`` is the plain one."""
    with _lock:
        kind = type(model)
        if kind not in _classes:
            _classes[kind] = [0, kind.__dict__.get("__call__")]
            kind.__call__ = _replacement(kind)  # type: ignore[method-assign]
        _classes[kind][0] += 1
        _watched[id(model)] = forward


def unwatch_calls(model: Module) -> None:
    """Undo it. Leaves the class as it was."""
    forget_calls(id(model), type(model))


def forget_calls(number: int, kind: type) -> None:
    """The same for a model that is gone: its ``id`` and its class."""
    with _lock:
        if _watched.pop(number, None) is None:
            return
        entry = _classes[kind]
        entry[0] -= 1
        if entry[0] == 0:
            del _classes[kind]
            if entry[1] is None:
                del kind.__call__
            else:
                kind.__call__ = entry[1]  # type: ignore[method-assign]


def is_watched(model: Module) -> bool:
    return id(model) in _watched


def _replacement(kind: Any) -> Callable[..., Any]:
    own = kind.__dict__.get("__call__")

    def plain(model: Any, args: Any, kwargs: Any) -> Any:
        if own is not None:
            return own(model, *args, **kwargs)
        # Found anew each time: a capture replaces what nn.Module has.
        return super(kind, model).__call__(*args, **kwargs)

    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it takes the place of that method
        if torch.compiler.is_compiling():
            return plain(self, args, kwargs)
        forward = _watched.get(id(self))
        if forward is None:
            return plain(self, args, kwargs)
        compiler = swap_compiling(None)  # what watches is not to be compiled
        try:
            return forward(Call(partial(plain, self, args, kwargs), compiler), self, args, kwargs)
        finally:
            swap_compiling(compiler)

    step_over_for_dynamo(__call__)
    step_over_for_dynamo(plain)
    return __call__


# -- modules inside --------------------------------------------------------------------------------

_local = threading.local()
_num_seeing = 0

Inside = Callable[[Module, tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def seeing_modules(inside: Inside) -> Iterator[None]:
    """Within the block, ``inside(module, args, kwargs)`` runs each module's call on this thread."""
    global _num_seeing  # noqa: PLW0603 - the replacement is one for the process
    outer = getattr(_local, "inside", None)
    with _lock:
        if _num_seeing == 0:
            replace_module_call(WATCHES, _seen_call)
        _num_seeing += 1
    _local.inside = inside
    try:
        yield
    finally:
        _local.inside = outer
        with _lock:
            _num_seeing -= 1
            if _num_seeing == 0:
                replace_module_call(WATCHES, None)


def _seen_call(module: Module, *args: Any, **kwargs: Any) -> Any:
    inside = getattr(_local, "inside", None)
    if inside is None or torch.compiler.is_compiling():
        return plain_module_call(module, *args, **kwargs)
    return inside(module, args, kwargs)
