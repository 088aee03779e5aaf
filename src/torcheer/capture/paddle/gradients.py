"""Gradients seen in backward passes.

A tensor that an op made gets a hook when it is made, since its Python object may be gone when backward runs. The
hook holds no tensor, returns nothing, and does nothing unless a backward pass is being recorded. Parameters and
inputs outlive the run: they get theirs for the time of a recorded pass only.

Paddle runs the operations of a backward pass in C++ and tells nobody, so of a backward pass the gradients are
recorded and not the operations.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torcheer.capture.paddle.private import watch_gradient
from torcheer.capture.paddle.tensors import dtype_name, keep
from torcheer.record.model import Gradient, Record


class _Leaf(NamedTuple):
    tensor: weakref.ref[Any]
    value: int | None
    param: int | None


class Gradients:
    """Collects the gradients of one run's values."""

    def __init__(self) -> None:
        self._leaves: list[_Leaf] = []
        self._take: Callable[[Any, int | None, int | None], None] | None = None

    def watch(self, tensor: Any, value: int) -> None:
        """See the gradients of a tensor that an op has just made."""
        if tensor.stop_gradient or tensor.is_leaf:
            return

        def see(gradient: Any) -> None:
            if self._take is not None:
                self._take(gradient, value, None)

        watch_gradient(tensor, see)

    def watch_leaf(self, tensor: Any, value: int | None = None, param: int | None = None) -> None:
        """See the gradients of a parameter or an input while a backward pass is recorded."""
        self._leaves.append(_Leaf(weakref.ref(tensor), value, param))

    @contextmanager
    def recorded(self, record: Record, store: Any, *, keeps: bool) -> Iterator[None]:
        """Add to the record the gradients of the backward pass that runs inside."""
        number = record.run.num_backward + 1

        def take(gradient: Any, value: int | None, param: int | None) -> None:
            if gradient is None:
                return  # nothing flows back into this output of an op
            name = None
            if keeps and (param is not None or value in record.saved):
                name = f"gradient.{len(record.gradients)}"
                keep(store, name, gradient)
            shape = tuple(int(size) for size in gradient.shape)
            size_bytes = int(gradient.size) * int(gradient.element_size()) if gradient.is_dense() else None
            record.gradients.append(Gradient(number, value, param, shape, dtype_name(gradient), size_bytes, name))

        hooks = []
        self._take = take
        try:
            for leaf in self._leaves:
                tensor = leaf.tensor()
                if tensor is not None and not tensor.stop_gradient:
                    hooks.append(tensor.register_hook(_leaf_hook(take, leaf)))
            yield
            record.run.num_backward = number
        finally:
            self._take = None
            for hook in hooks:
                hook.remove()


def _leaf_hook(take: Callable[[Any, int | None, int | None], None], leaf: _Leaf) -> Callable[[Any], None]:
    def see(gradient: Any) -> None:
        take(gradient, leaf.value, leaf.param)

    return see
