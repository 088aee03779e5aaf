"""What is known of a function before it is called.

Function level: which calls only read metadata, and are no operations.
ATen level: what an operator's schema says about memory: which arguments it writes, whether it returns views.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torcheer.capture.torch.direct import DIRECT
from torcheer.capture.torch.private import HigherOrderOperator, OpOverload, is_composite, is_custom_operator

_GETTERS = (
    "shape dtype device layout requires_grad is_leaf grad_fn grad _base names ndim itemsize nbytes is_cuda is_cpu"
    " is_meta is_sparse is_sparse_csr is_quantized is_mkldnn is_mps is_nested is_xla is_xpu is_vulkan is_ort"
    " is_ipu is_maia is_mtia output_nr _version _cdata retains_grad volatile name _grad _grad_fn _backward_hooks"
    " _post_accumulate_grad_hooks _has_symbolic_sizes_strides _python_dispatch is_hpu"
).split()
_METHODS = (
    "size dim ndimension numel nelement stride storage_offset is_contiguous is_floating_point is_complex is_signed"
    " is_conj is_neg is_inference is_pinned is_shared is_same_size is_set_to is_coalesced dense_dim sparse_dim"
    " element_size get_device data_ptr untyped_storage storage _typed_storage storage_type type __len__ __hash__"
    " __repr__ __dir__ __format__ has_names register_hook register_post_accumulate_grad_hook retain_grad"
    " requires_grad_ dim_order __dlpack_device__ _is_view _is_zerotensor _nested_tensor_size is_distributed"
    " _dimI _dimV qscheme __reduce_ex__ __deepcopy__ __contains__ backward"
).split()
_FUNCTIONS = (
    "is_tensor numel is_floating_point is_complex is_conj is_neg is_inference is_nonzero is_same_size is_signed"
    " is_storage result_type can_cast promote_types get_device typename"
).split()


def _metadata_calls() -> frozenset[object]:
    calls: list[object] = []
    for name in _GETTERS:
        descriptor = getattr(torch.Tensor, name, None)
        for accessor in ("__get__", "__set__", "__delete__"):
            calls.append(getattr(descriptor, accessor, None))
    for name in _METHODS:
        # These run Python code that reads elements or copies: they are looked into, not hidden.
        if name not in {"__repr__", "__format__", "__contains__", "__deepcopy__", "__reduce_ex__"}:
            calls.append(getattr(torch.Tensor, name, None))
    for name in _FUNCTIONS:
        if name != "is_nonzero":
            calls.append(getattr(torch, name, None))
    calls.append(getattr(torch.Tensor.grad, "__set__", None))
    # Marks of torch.profiler.record_function, which compute nothing.
    for name in ("_record_function_enter_new", "_record_function_enter", "_record_function_exit"):
        packet = getattr(torch.ops.profiler, name, None)
        if packet is not None:
            calls += [packet, *(getattr(packet, overload) for overload in packet.overloads())]
    return frozenset(call for call in calls if call is not None)


METADATA_CALLS: frozenset[object] = _metadata_calls()


# Calls that put other memory behind a tensor object: ``x.data = y``.
REPLACING_CALLS: frozenset[object] = frozenset({torch.Tensor.data.__set__})  # type: ignore[attr-defined]


@dataclass(slots=True, eq=False)
class AtenKind:
    """What an ATen operator's schema says about memory, and how to call it."""

    name: str  # "aten.addmm.default"
    writes: tuple[int | str, ...]  # argument positions (or keyword names) that are written in place
    is_view: bool  # returns tensors that share memory with an argument, or may
    may_copy: bool  # a view only where it can be one (reshape, to), or by what its schema leaves open
    changes_geometry: bool  # changes shape or strides of an argument (t_, resize_, set_)
    is_mark: bool  # marks time or memory for the profiler and computes nothing
    is_custom: bool  # has a kernel of the user's own, written in Python
    is_special: bool  # one of is_mark, is_custom, is_higher_order
    is_higher_order: bool  # cond, while_loop: takes functions, has no schema
    run: Callable[..., Any]  # calls it with positional arguments


# Operators that return the memory they were given without saying so in their schema.
_UNDECLARED_VIEWS = frozenset({"aten._unsafe_view.default"})

# Operators that write to arguments without saying so in their schema: the arguments, and the flag they obey.
_UNDECLARED_WRITES = {
    "aten.native_batch_norm.default": ((3, 4), 5),
    "aten.cudnn_batch_norm.default": ((3, 4), 5),
    "aten.miopen_batch_norm.default": ((3, 4), 5),
}


# Collectives that end in an underscore and write nothing.
_READS_ONLY = frozenset({"c10d.monitored_barrier_.default"})


def written_arguments(kind: AtenKind, args: tuple[Any, ...]) -> tuple[int | str, ...]:
    """Which arguments this call writes to."""
    undeclared = _UNDECLARED_WRITES.get(kind.name)
    if undeclared is None:
        return kind.writes
    places, flag = undeclared
    return places if len(args) > flag and args[flag] else ()


def describe(func: object) -> AtenKind:
    """Read an operator's schema."""
    if isinstance(func, HigherOrderOperator) or not isinstance(func, OpOverload):
        name = f"higher_order.{getattr(func, '__name__', func)}"
        return AtenKind(name, (), True, True, False, False, False, True, True, func)  # type: ignore[arg-type]
    schema = func._schema
    writes: list[int | str] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes.append(argument.name if argument.kwarg_only else position)
            if not argument.kwarg_only:
                writes.append(argument.name)
    if func.namespace == "c10d" and str(func).endswith("_.default") and str(func) not in _READS_ONLY:
        # Process groups write to their first argument, and their schemas say so of none.
        writes = [0]
    # A custom operator written in Python may return its argument without saying so in the schema.
    is_view = func.namespace != "aten" or any(result.alias_info is not None for result in schema.returns)
    is_view = is_view or str(func) in _UNDECLARED_VIEWS
    may_copy = is_view and (func.namespace != "aten" or is_composite(func))
    # An operator with out= resizes what it writes to.
    has_out = any(argument.is_out for argument in schema.arguments)
    changes_geometry = has_out or torch.Tag.inplace_view in func.tags
    is_mark, is_custom = func.namespace == "profiler", is_custom_operator(func)
    run = DIRECT.get(str(func), func._op)
    is_special = is_mark or is_custom
    return AtenKind(
        str(func), tuple(writes), is_view, may_copy, changes_geometry, is_mark, is_custom, is_special, False, run
    )
