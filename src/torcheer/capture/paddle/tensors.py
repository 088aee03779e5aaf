"""Tensors as the record knows them: a number per tensor object, its metadata, and who shares its memory.

A tensor object is known by its ``id()`` with a weak reference, so nothing is kept alive. Memory is known by its
address. An address may be given away once its tensors are gone, so what an op returns counts as new memory
unless an argument of that very call lies there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from torcheer.capture.paddle.private import (
    LEAF_NODE,
    PADDLE_ERRORS,
    Tensor,
    base_address,
    copied,
    element_offset,
    has_contents,
)
from torcheer.errors import NotSavedError
from torcheer.record.dataflow import Dataflow, Layout, Maker
from torcheer.record.model import Value


class Origin(NamedTuple):
    """What is known of a tensor object that nobody was seen making."""

    kind: str  # "param" | "buffer" | "constant"
    param: int | None  # index into Record.params


class Kept(dict[str, Any]):
    """Copies of tensors' contents, by name, and why some could not be had."""

    def __init__(self) -> None:
        super().__init__()
        self.unsaved: dict[str, str] = {}

    def put(self, name: str, tensor: Any) -> None:
        """Keep a tensor that nobody else has."""
        self[name] = tensor

    def skip(self, name: str, reason: str) -> None:
        """Say why contents are not kept."""
        self.unsaved[name] = reason

    def __missing__(self, name: str) -> Any:
        reason = self.unsaved.get(name) or "the recording does not have it"
        raise NotSavedError(f"{reason}. Print the layer for what is known of it.")


class Tensors:
    """The tensors of one run."""

    def __init__(self, flow: Dataflow, origins: dict[int, Origin]) -> None:
        self.flow = flow
        self.origins = origins  # id() of the model's params and buffers → what they are
        self.unseen_makers: dict[str, None] = {}  # autograd nodes of tensors that an op not seen has made
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._number = 0
        self._memory: dict[int, int] = {}  # address → number of the memory last seen there
        self._users: dict[int, list[weakref.ref[Any]]] = {}  # number of a memory → tensors seen in it

    def number_of(self, tensor: Any) -> int:
        """The number of a tensor object; one never seen is introduced as made outside."""
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        address = base_address(tensor)
        memory = self._memory.get(address)
        if not address or memory is None or not any(user() is not None for user in self._users[memory]):
            memory = None
        number = self._new(tensor, address, memory)
        origin = self.origins.get(id(tensor), Origin("constant", None))
        value, layout = self._described(tensor, origin.kind, address)
        value.param = origin.param
        if origin.param is None and not tensor.is_leaf:
            value.grad_function = node_name(tensor)
            if value.grad_function is not None:
                self.unseen_makers[value.grad_function] = None
        self.flow.arrive(number, value, layout)
        return number

    def alias(self, other: Any, tensor: Any) -> None:
        """Take note that another Python object stands for the same tensor."""
        self._known[id(other)] = (weakref.ref(other), self.number_of(tensor))

    def value_of(self, tensor: Any) -> int:
        """The present value of a tensor."""
        return self.flow.value_of(self.number_of(tensor))

    def made(self, tensor: Any, maker: Maker, arguments: Iterable[Any], kind: str = "activation") -> Value:
        """An op returns a tensor: a new one, or one that exists already."""
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            if self.flow.maker_of(known[1]) == maker:
                return self.flow.values[self.flow.value_of(known[1])]
            return self.flow.returned(known[1], maker)
        address = base_address(tensor)
        is_view = bool(address) and any(base_address(argument) == address for argument in arguments)
        number = self._new(tensor, address, self._memory.get(address) if is_view else None)
        value, layout = self._described(tensor, kind, address)
        return self.flow.introduce(number, value, layout, maker, is_view=is_view)

    def _new(self, tensor: Any, address: int, memory: int | None) -> int:
        number = self._number
        self._number += 1
        weak = weakref.ref(tensor)
        self._known[id(tensor)] = (weak, number)
        if address:
            if memory is None:
                memory = self._memory[address] = number
            self._users.setdefault(memory, []).append(weak)
        return number

    def _described(self, tensor: Any, kind: str, address: int) -> tuple[Value, Layout | None]:
        shape = tuple(int(size) for size in tensor.shape)
        is_dense = bool(tensor.is_dense())
        stride = tuple(int(step) for step in tensor.strides) if is_dense and has_contents(tensor) else None
        item_bytes = int(tensor.element_size()) if has_contents(tensor) else 0
        offset = element_offset(tensor) if stride is not None else 0
        size_bytes = int(tensor.size) * item_bytes if is_dense and has_contents(tensor) else None
        value = Value(
            -1,
            kind,
            None,
            shape,
            dtype_name(tensor),
            device_name(tensor),
            "strided" if is_dense else _layout_name(tensor),
            stride,
            offset,
            self._memory[address] if address else None,
            0,
            size_bytes,
            requires_grad=not tensor.stop_gradient,
        )
        return value, (shape, stride, offset, item_bytes) if address and item_bytes else None


def is_tensor(value: Any) -> bool:
    """Is this one of Paddle's tensors?"""
    return isinstance(value, Tensor)


def node_name(tensor: Any) -> str | None:
    """``MatmulGradNode``: the autograd node of a tensor that an op made.

    Paddle 3.3.1 never lets go of a node that it was asked for, nor of the tensors that the node keeps. So this is asked
    for once per kind of op, and not for every tensor.
    """
    node = tensor.grad_fn
    name = None if node is None else str(node.name())
    return None if name == LEAF_NODE else name


def dtype_name(tensor: Any) -> str:
    """``float32``"""
    return str(tensor.dtype).removeprefix("paddle.")


def device_name(tensor: Any) -> str:
    """``cpu``, ``gpu:0``"""
    if not has_contents(tensor):
        return "none"
    return str(tensor.place).removeprefix("Place(").removesuffix(")")


def keep(store: Any, name: str, tensor: Any) -> None:
    """Keep a copy of a tensor's contents, or the reason why there is none."""
    if not has_contents(tensor):
        store.skip(name, "it is a tensor without memory")
        return
    if not tensor.is_dense():
        # Paddle 3.3.1 raises on a copy of a sparse tensor, and ends the process when asked for it as an array.
        store.skip(name, f"it is {_layout_name(tensor)}, which Paddle does not copy; have its values() or to_dense()")
        return
    try:
        store.put(name, copied(tensor))
    except PADDLE_ERRORS as error:
        store.skip(name, f"Paddle could not copy it ({str(error).strip().splitlines()[-1]})")


def _layout_name(tensor: Any) -> str:
    for name in ("sparse_coo", "sparse_csr", "selected_rows"):
        if getattr(tensor, f"is_{name}")():
            return name
    return "other"
