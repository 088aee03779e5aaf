"""Paddle's private names, each with what it is used for. ``tests/paddle/test_private.py`` says when one moves.

Paddle 3 has no hook that tells of every operation. What Python calls are C functions in a few namespaces and C
methods of the tensor class; they are found here by what they are, not by a list of their names.
"""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import Any

import paddle
from paddle.base import core

Tensor = paddle.Tensor

# Where Paddle keeps its operators: the present ones, those of former releases, and the ones that choose between
# dynamic and static graph.
OPERATOR_SPACES = (
    ("paddle._C_ops", core.eager.ops),
    ("paddle._legacy_C_ops", core.eager.ops.legacy),
    ("paddle._C_ops", core.pir.ops),
)

# C methods of the tensor class that make or change tensors, and what a programmer would call them.
METHODS = {
    **{
        f"__{name}__": f"__{name}__"
        for name in (
            "add radd sub rsub mul rmul div truediv rdiv rtruediv floordiv rfloordiv pow rpow mod rmod matmul rmatmul "
            "gt ge lt le eq ne"
        ).split()
    },
    "_getitem_dygraph": "__getitem__",
    "_setitem_dygraph": "__setitem__",
    "_inplace_assign": "assign_",
    "_copy_to": "to",
    "clone": "clone",
    "detach": "detach",
    "contiguous": "contiguous",
    "copy_": "copy_",
    "detach_": "detach_",
    **{name: name for name in ("indices", "crows", "cols", "to_sparse_csr")},  # of sparse tensors
}
# Methods that give the same tensor as another Python object: memory, contents and place in the graph are one.
ALIASING = ("_tensor_use_gpudnn",)

# Functions of the engine that an op's name is found for here.
FUNCTIONS = {"run_partial_grad": "paddle.grad", "sparse_coo_tensor": "paddle.sparse.sparse_coo_tensor",
             "sparse_csr_tensor": "paddle.sparse.sparse_csr_tensor"}  # fmt: skip
LEAF_NODE = "GradNodeAccumulation"  # the node of a tensor that no op made
# What an operator of Paddle's raises, by the kind of its error: "external" and "unimplemented" come as OSError.
PADDLE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, OSError)

_detach = vars(Tensor)["detach"]
_clone = vars(Tensor)["clone"]
apply_function = core.eager.PyLayer.__dict__["apply"]


def operators() -> dict[int, tuple[str, BuiltinFunctionType]]:
    """Every operator by its ``id()``, with its full name."""
    return {
        id(function): (f"{space}.{name}", function)
        for space, names in OPERATOR_SPACES
        for name, function in vars(names).items()
        if type(function) is BuiltinFunctionType
    } | {
        id(function): (full_name, function)
        for name, full_name in FUNCTIONS.items()
        if (function := vars(core.eager).get(name)) is not None
    }


def methods() -> dict[str, Any]:
    """The C methods of the tensor class that this Paddle has, by attribute."""
    return {name: vars(Tensor)[name] for name in METHODS if name in vars(Tensor)}


def aliasing_methods() -> dict[str, Any]:
    """The C methods that give another object for the same tensor, by attribute."""
    return {name: vars(Tensor)[name] for name in ALIASING if name in vars(Tensor)}


def base_address(tensor: Any) -> int:
    """Address of the memory that a tensor and its views share; 0 where there is none."""
    if not (tensor.is_dense() and tensor._is_initialized()):
        return 0
    address = tensor.data_ptr()
    return int(address - tensor._offset()) if address else 0


def element_offset(tensor: Any) -> int:
    """Where a view begins in its memory, in elements."""
    return int(tensor._offset()) // max(int(tensor.element_size()), 1)


def copied(tensor: Any) -> Any:
    """A copy of a tensor outside every graph. Raises one of ``PADDLE_ERRORS`` where it cannot be had."""
    return _clone(_detach(tensor))


def watch_gradient(tensor: Any, hook: Any) -> None:
    """Have ``hook`` called with the gradient of a tensor that an op made, in every backward pass."""
    tensor._register_grad_hook(hook)


def has_contents(tensor: Any) -> bool:
    """Is there memory behind this tensor?"""
    if not tensor._is_initialized():
        return False
    return not tensor.is_dense() or tensor._holder_size() > 0 or 0 in tensor.shape


def initial_seed() -> int:
    """Seed of the default generator."""
    return int(core.default_cpu_generator().initial_seed())


class OptimizerState:
    """What an optimizer has gathered. Its ``set_state_dict`` cannot put back that it had nothing yet."""

    TABLES = ("_accumulators", "_master_weights", "_accumulators_holder")  # by name, or by name and parameter
    MADE = "_already_create_accumulator"  # names of the parameters that have entries

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.tables = {
            name: {key: dict(entry) if isinstance(entry, dict) else entry for key, entry in table.items()}
            for name in self.TABLES
            if isinstance(table := getattr(optimizer, name, None), dict)
        }
        self.made = set(getattr(optimizer, self.MADE, ()))
        tensors = [
            tensor
            for table in self.tables.values()
            for entry in table.values()
            for tensor in (entry.values() if isinstance(entry, dict) else (entry,))
            if isinstance(tensor, Tensor)
        ]
        self.contents = [(tensor, copied(tensor)) for tensor in tensors]

    def restore(self) -> None:
        """Put it all back."""
        for name, before in self.tables.items():
            table = getattr(self.optimizer, name)
            table.clear()
            table.update({key: dict(entry) if isinstance(entry, dict) else entry for key, entry in before.items()})
        if hasattr(self.optimizer, self.MADE):
            made = getattr(self.optimizer, self.MADE)
            made.clear()
            made.update(self.made)
        with paddle.no_grad():
            for tensor, before in self.contents:
                paddle.assign(before, output=tensor)
