"""What is replaced for the time of a capture, so that ops and layer calls are seen.

Paddle's Python code calls C functions that it looks up in its namespaces at the time of each call. So for as long
as a capture runs, and never longer, every name that stands for one of them, in whatever loaded module or layer,
stands for a function that records the call and makes it. The same for the C methods of the tensor class,
``Layer.__call__`` and ``PyLayer.apply``. Hooks on layers are not used: they would show, and send every call down
Paddle's slower path. On a thread that records nothing the replacements pass straight through.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import BuiltinFunctionType
from typing import Any

import paddle

from torcheer.capture.paddle.private import METHODS, Tensor, aliasing_methods, apply_function, methods, operators
from torcheer.capture.paddle.recorder import Function, Recorder

_local = threading.local()
_lock = threading.Lock()
_installed: list[Any] = []  # [number of captures, the ExitStack that undoes the replacements]
_replacements: dict[int, Callable[..., Any]] = {}  # id() of an operator → what stands for it

_SHORT = {
    "radd": "add", "rmul": "mul", "truediv": "div", "rtruediv": "rdiv", "rmatmul": "matmul", "rand": "and",
}  # fmt: skip
# Arguments that an operator writes to, beside the first of one whose name ends in "_".
_WRITES = {
    "batch_norm": (1, 2), "sync_batch_norm_": (1, 2), "__setitem__": (0,), "assign_out_": (1,),
    "update_loss_scaling_": (0, 2, 3, 4), "check_finite_and_unscale_": (0,),
}  # fmt: skip


@contextmanager
def seen_by(recorder: Recorder) -> Iterator[None]:
    """Send this thread's ops and layer calls to ``recorder``. Of captures inside one another the inner one sees."""
    with _lock:
        if not _installed:
            undo = ExitStack()
            try:
                _install(undo, recorder.model)
            except BaseException:
                undo.close()
                raise
            _installed.extend((0, undo))
        _installed[0] += 1
    recorders = _recorders()
    recorders.append(recorder)
    try:
        yield
    finally:
        recorders.remove(recorder)
        with _lock:
            _installed[0] -= 1
            if _installed[0] == 0:
                undo = _installed[1]
                _installed.clear()
                undo.close()


def _recorders() -> list[Recorder]:
    found: list[Recorder] | None = getattr(_local, "recorders", None)
    if found is None:
        found = _local.recorders = []
    return found


def _present() -> Recorder | None:
    found = getattr(_local, "recorders", None)
    return found[-1] if found else None


def _install(undo: ExitStack, model: Any) -> None:
    if not _replacements:
        for number, (name, function) in operators().items():
            _replacements[number] = _seen(describe(name), function)
    for namespace in _namespaces(model):
        found = {
            name: _replacements[id(value)]
            for name, value in list(namespace.items())
            if type(value) is BuiltinFunctionType and id(value) in _replacements
        }
        if found:
            undo.callback(namespace.update, {name: namespace[name] for name in found})
            namespace.update(found)
    for attribute, method in methods().items():
        _replace(undo, Tensor, attribute, _seen(describe(f"paddle.Tensor.{METHODS[attribute]}"), method))
    for attribute, method in aliasing_methods().items():
        _replace(undo, Tensor, attribute, _seen_alias(method))
    _replace(undo, paddle.nn.Layer, "__call__", _seen_call)
    _replace(undo, paddle.autograd.PyLayer, "apply", classmethod(_seen_apply))


def _namespaces(model: Any) -> Iterator[dict[str, Any]]:
    """Every namespace whose names may stand for operators: modules, and layers that keep one as an attribute."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is dict:
            yield names
    if isinstance(model, paddle.nn.Layer):
        for layer in model.sublayers(include_self=True):
            yield vars(layer)


def _replace(undo: ExitStack, owner: type, name: str, replacement: Any) -> None:
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, replacement)


def describe(full_name: str) -> Function:
    """What is known of an operator by its name: what to call it, and what it writes to."""
    name = full_name.rsplit(".", 1)[-1]
    bare = name.strip("_")
    default = (0,) if name.endswith("_") and not name.endswith("__") else ()
    return Function(_SHORT.get(bare, bare).replace("_", "").lower(), full_name, _WRITES.get(name, default))


def _seen(description: Function, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def seen(*args: Any, **kwargs: Any) -> Any:
        recorder = _present()
        if recorder is None or recorder.is_paused:
            return function(*args, **kwargs)
        return recorder.operation(description, function, args, kwargs, sys._getframe(1))

    return seen


def _seen_alias(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def seen(tensor: Any, *args: Any) -> Any:
        out = method(tensor, *args)
        recorder = _present()
        if recorder is not None and not recorder.is_paused:
            recorder.tensors.alias(out, tensor)
        return out

    return seen


_plain_call: Callable[..., Any] = paddle.nn.Layer.__call__


def _seen_call(layer: paddle.nn.Layer, *inputs: Any, **kwargs: Any) -> Any:
    recorder = _present()
    if recorder is None or recorder.is_paused:
        return _plain_call(layer, *inputs, **kwargs)
    return recorder.layer_call(_plain_call, layer, inputs, kwargs, sys._getframe(1))


def _seen_apply(function: type, *args: Any, **kwargs: Any) -> Any:
    apply = apply_function.__get__(None, function)
    recorder = _present()
    # Paddle's own (recomputation) wrap layers: what they wrap are the ops.
    if recorder is None or recorder.is_paused or function.__module__.startswith("paddle."):
        return apply(*args, **kwargs)
    name = function.__qualname__.rsplit(".", 1)[-1]
    description = Function(name.replace("_", "").lower(), f"autograd.{name}", ())
    return recorder.operation(description, apply, args, kwargs, sys._getframe(1))


# A call site reaches from the forward of a layer down: these frames are above it.
CALLING_CODES = (
    paddle.nn.Layer.__call__.__code__,
    paddle.nn.Layer._dygraph_call_func.__code__,
    _seen_call.__code__,
    Recorder.layer_call.__code__,
)
