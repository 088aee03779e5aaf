"""Every private or undocumented name of PyTorch that torcheer uses, and nothing else.

When PyTorch moves one of them, this is the only file to change; ``tests/torch/test_private.py`` has one
canary per name that says what breaks. Checked against torch 2.13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily

from torcheer.errors import CaptureError

__all__ = [
    "C_NAMESPACES",
    "FRAMEWORK_CODES",
    "DynamicOutputError",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "TorchDispatchMode",
    "all_operator_names",
    "any_autocast",
    "at_end_of_backward",
    "backward_runner",
    "current_node",
    "disabled_torch_function",
    "eager_branches",
    "hide_from_dynamo",
    "id_of_storage",
    "in_forward_ad",
    "is_autograd_key",
    "is_composite",
    "is_custom_operator",
    "is_functional_wrapper",
    "no_dispatch_mode",
    "no_function_mode",
    "num_dispatch_modes",
    "num_function_modes",
    "operators_replaced",
    "packed_tensors",
    "plain_kernel",
    "run_kernel",
    "saved_tensor_hooks",
    "sequence_nr",
    "storage_id",
    "transforms",
]

# Next sequence number autograd will give to a node of this thread. Fallback: none; backward ownership is lost.
sequence_nr: Callable[[], int] = torch._C._autograd._get_sequence_nr

# The autograd node that is being evaluated on this thread, or None.
current_node: Callable[[], Any] = torch._C._current_autograd_node

# Address of a tensor's StorageImpl. Raises for tensors without one (sparse, functorch wrappers).
storage_id: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]

# What fake tensors raise where a shape or a number depends on contents.
DynamicOutputError = (DataDependentOutputException, DynamicOutputShapeException)

# Where builtin functions live, by the public name of the module that offers them.
C_NAMESPACES: dict[str, Any] = {
    "torch.nn.functional": torch._C._nn,
    "torch.fft": torch._C._fft,  # type: ignore[attr-defined]
    "torch.linalg": torch._C._linalg,  # type: ignore[attr-defined]
    "torch.special": torch._C._special,  # type: ignore[attr-defined]
}


def id_of_storage(storage: torch.UntypedStorage) -> int:
    """The same of a storage."""
    return int(storage._cdata)


# A context in which an active TorchFunctionMode is not asked.
no_function_mode = torch._C.DisableTorchFunction

# A context in which an active TorchDispatchMode is not asked.
no_dispatch_mode = torch._C._DisableTorchDispatch

# How many dispatch modes are active on this thread.
num_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack

# How many function modes are active on this thread, not counting the one that is being asked.
num_function_modes: Callable[[], int] = torch._C._len_torch_function_stack

# The innermost function transform (vmap, grad, jvp) that is running, or None.
transforms: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack


def in_forward_ad() -> bool:
    """Is a level of forward-mode AD open (``dual_level``), on any thread?"""
    return torch.autograd.forward_ad._current_level >= 0


# The __torch_function__ of a subclass that has none.
disabled_torch_function: Any = torch._C._disabled_torch_function_impl

# Is autocast on, for any device?
any_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled

# The hooks that autograd runs on tensors it saves, or None.
saved_tensor_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks

# Names of all registered operators, "namespace::name.overload".
all_operator_names: Callable[[], list[str]] = torch._C._dispatch_get_all_op_names

# Frames of nn.Module's own call machinery; a call site ends where one of them begins.
FRAMEWORK_CODES: tuple[CodeType, ...] = (
    torch.nn.Module._call_impl.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
)


_replaced_kernels: tuple[int, bool] = (-1, False)  # of how many kernels defined in Python that was found


def operators_replaced(names: frozenset[str]) -> bool:
    """Has somebody put a kernel of his own behind one of these (``torch.library.Library("aten", "IMPL")``)?

    Names are as the library has them: ``"aten/relu"``, ``"aten/add.Tensor"``.
    """
    global _replaced_kernels  # noqa: PLW0603 - looking through all of them takes longer than a small model
    kernels = torch.library._impls
    if _replaced_kernels[0] != len(kernels):
        # PyTorch's own, for meta tensors, are among them.
        found = any(name.rpartition("/")[0] in names and not name.endswith("/Meta") for name in list(kernels))
        _replaced_kernels = (len(kernels), found)
    return _replaced_kernels[1]


def is_functional_wrapper(tensor: torch.Tensor) -> bool:
    """Is this a functorch wrapper (the inside of vmap, grad, jvp)?"""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def hide_from_dynamo(*functions: Callable[..., Any]) -> None:
    """Have Dynamo run these functions as they are when it meets them below a compiled call.

    ``torch._disable_dynamo`` would do it too, at 1.5 µs a call.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        frames.set_code_exec_strategy(function.__code__, skip)


def plain_kernel(operator: HigherOrderOperator) -> Callable[..., Any]:
    """What cond, while_loop and their like do when nobody traces them. Called again, they would ask the mode again."""
    keys = torch._C.DispatchKey
    for key in (keys.CompositeExplicitAutograd, keys.CompositeImplicitAutograd, keys.CPU, keys.CUDA):
        kernel = operator.py_kernels.get(key)
        if kernel is not None:
            return kernel
    raise CaptureError(
        f"The higher-order operator {operator} has no eager implementation that could be recorded. "
        "Record the model with this operator replaced by plain Python control flow."
    )


def is_autograd_key(key: Any) -> bool:
    """Is this one of the dispatch keys under which autograd sees an operator?"""
    return str(key).startswith("DispatchKey.Autograd")


def eager_branches(operator: HigherOrderOperator) -> Callable[..., Any] | None:
    """The eager kernel of cond, while_loop, map, …, the dispatch mode active in its functions only. None if none."""
    kernel = operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if kernel is None:
        return None

    def run(*args: Any, **kwargs: Any) -> Any:
        # The kernel refuses to run under a dispatch mode.
        with _pop_mode_temporarily() as mode:

            def inside(argument: Any) -> Any:
                if not callable(argument):
                    return argument

                def branch(*values: Any) -> Any:
                    with mode:
                        return argument(*values)

                return branch

            return kernel(*map(inside, args), **{name: inside(value) for name, value in kwargs.items()})

    return run


def is_custom_operator(func: OpOverload) -> bool:
    """Was it defined with ``torch.library.custom_op``?"""
    # PyTorch defines its own primitives in the same way.
    if func.namespace in {"prims", "rngprims", "debug_mode_ops"}:
        return False
    return f"{func.namespace}::{func._opname}" in OPDEFS


def is_composite(func: OpOverload) -> bool:
    """Is it made of other operators? In inference mode such an operator is seen as a whole."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def run_kernel(func: Any, tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator's kernel for ``tensor``'s device, so that modes which are active see inside it."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, tensor.device.type.upper()))
    return func.redispatch(keys, *args, **kwargs)


_packed_names: dict[type, tuple[str, ...]] = {}


def packed_tensors(node: Any) -> Iterator[torch.Tensor]:
    """The tensors an autograd node holds, as they are packed: hooks that unpack them are not run.

    Fallback where PyTorch does not show what is packed: none of them, and no memory is said to be held.
    """
    kind = type(node)
    names = _packed_names.get(kind)
    if names is None:
        names = _packed_names[kind] = tuple(name for name in dir(node) if name.startswith("_raw_saved_"))
    for name in names:
        packed = getattr(node, name)
        for one in packed if isinstance(packed, (tuple, list)) else (packed,):
            try:
                data = getattr(one, "data", None)
            except RuntimeError:
                continue  # it has been freed
            if isinstance(data, torch.Tensor):
                yield data


def at_end_of_backward(call: Callable[[], None]) -> bool:
    """Have ``call`` run when the backward pass that is running has ended, after all that others wait for there:
    DistributedDataParallel for the gradients of other processes. False: that cannot be had, nothing will run."""
    engine = getattr(torch.autograd.Variable, "_execution_engine", None)
    queue = getattr(engine, "queue_callback", None)
    if queue is None:
        return False
    # What is queued from there comes after what was queued in the meantime.
    queue(lambda: queue(call))
    return True


_Runner = Callable[..., Any]
_runners = threading.local()  # .stack: of this thread, innermost last
_all_runners: list[_Runner] = []
_plain_runner: list[_Runner] = []  # torch's own, while it is replaced
_runner_lock = threading.Lock()


@contextmanager
def backward_runner(wrap: Callable[[_Runner], _Runner]) -> Iterator[None]:
    """Replace the function through which ``backward()`` and ``autograd.grad`` start the engine, for this thread."""
    with _runner_lock:
        if not _all_runners:
            _plain_runner[:] = [torch.autograd._engine_run_backward]  # type: ignore[attr-defined]
            torch.autograd._engine_run_backward = _run_backward  # type: ignore[attr-defined]
        stack = _runners.__dict__.setdefault("stack", [])
        runner = wrap(stack[-1] if stack else _plain_runner[0])
        _all_runners.append(runner)
        stack.append(runner)
    try:
        yield
    finally:
        with _runner_lock:
            stack.remove(runner)
            _all_runners.remove(runner)
            if not _all_runners:
                torch.autograd._engine_run_backward = _plain_runner.pop()  # type: ignore[attr-defined]


def _run_backward(*args: Any, **kwargs: Any) -> Any:
    stack = getattr(_runners, "stack", None)
    if stack:
        return stack[-1](*args, **kwargs)
    if len(_all_runners) == 1 and current_node() is not None:
        # A backward pass within one, on a thread of the engine's.
        return _all_runners[0](*args, **kwargs)
    return (_plain_runner or [torch.autograd._engine_run_backward])[0](*args, **kwargs)  # type: ignore[attr-defined]


# What nn.Module.__call__ runs of a module that is not compiled: hooks and forward. It is replaced and not __call__:
# setting a slot walks through every subclass of nn.Module.
plain_module_call: Callable[..., Any] = torch.nn.Module._call_impl

# Who replaces it. A watched model may be under capture, or a model be captured while another thread watches one.
CAPTURES, WATCHES = 0, 1
_replacements: list[Callable[..., Any] | None] = [None, None]
_replacing = threading.Lock()
below_captures: list[Callable[..., Any]] = [plain_module_call]  # what a capture's replacement runs, in a list of one


def replace_module_call(place: int, replacement: Callable[..., Any] | None) -> None:
    """Have every module's call run ``replacement(module, *args, **kwargs)``; None takes it back."""
    with _replacing:
        _replacements[place] = replacement
        below_captures[0] = _replacements[WATCHES] or plain_module_call
        torch.nn.Module._call_impl = _replacements[CAPTURES] or below_captures[0]  # type: ignore[method-assign]


@contextmanager
def no_compiled_modules(note: Callable[[], None]) -> Iterator[None]:
    """Have modules that ``module.compile()`` has compiled run as if it had not; ``note()`` is told of each call."""
    name = "_compiled_call_impl"

    def found(module: torch.nn.Module) -> None:
        if module.__dict__.get(name) is not None:
            note()

    def put(module: torch.nn.Module, compiled: Any) -> None:
        module.__dict__[name] = compiled

    original = torch.nn.Module.__dict__[name]
    setattr(torch.nn.Module, name, property(found, put))
    try:
        yield
    finally:
        setattr(torch.nn.Module, name, original)


# Has Dynamo look at the functions called from now on with the callback it is given; None: at none. Returns the one
# before. The builtin itself, since a function around it would be looked at.
swap_compiling: Callable[[Any], Any] = torch._C._dynamo.eval_frame.set_eval_frame


@contextmanager
def without_compiled_calls(model: torch.nn.Module) -> Iterator[None]:
    """Within the block, modules that ``module.compile()`` has compiled run as if it had not been called."""
    compiled = [one for one in model.modules() if is_compiled(one)]
    # By __dict__: a capture on another thread has a property of that name on nn.Module.
    calls = [one.__dict__["_compiled_call_impl"] for one in compiled]
    for one in compiled:
        one.__dict__["_compiled_call_impl"] = None
    try:
        yield
    finally:
        for one, call in zip(compiled, calls, strict=True):
            one.__dict__["_compiled_call_impl"] = call


def is_compiled(module: torch.nn.Module) -> bool:
    """Was it compiled in place, by ``module.compile()``?"""
    return module.__dict__.get("_compiled_call_impl") is not None


def original_of(module: torch.nn.Module) -> torch.nn.Module:
    """The module that ``torch.compile(module)`` was given; any other as it is."""
    return getattr(module, "_orig_mod", module) if type(module).__name__ == "OptimizedModule" else module


def step_over_for_dynamo(function: Callable[..., Any]) -> None:
    """Have Dynamo run this function as it is and compile what it calls."""
    frames = torch._C._dynamo.eval_frame
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    frames.set_code_exec_strategy(function.__code__, strategy)
