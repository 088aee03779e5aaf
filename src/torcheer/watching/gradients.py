"""Gradients at logged steps: of activations through autograd nodes, of parameters when they are accumulated.

A hook on a node is handed the gradient of what the node made. Module backward hooks would put a node of their own
around every module, which in-place operations do not survive; a tensor's hook would make the tensor warn when
it is saved. Nodes go with their graph, and so do their hooks.
"""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.private import at_end_of_backward
from torcheer.watching.sampling import Sampler
from torcheer.watching.step import GRADIENT, LoggedStep

Tensor = torch.Tensor


class OfActivation:
    """Takes the gradient of one tensor, each time a backward pass comes by, for the series that show it."""

    __slots__ = ("output", "sampler", "series", "step")

    def __init__(self, step: LoggedStep, sampler: Sampler, output: int) -> None:
        self.step, self.sampler, self.output = step, sampler, output
        self.series: list[int] = []

    def __call__(self, gradients: tuple[Tensor | None, ...]) -> None:
        step = self.step
        if not step.is_open:
            return
        gradient = gradients[self.output]
        if gradient is None:
            return
        row = self.sampler.norms(gradient)
        if row is not None:
            number = step.add(row, GRADIENT)
            step.series.extend((series, number) for series in self.series)


def follow(tensor: Tensor, hook: OfActivation) -> Any:
    """Have ``hook`` called with the gradient of the tensor as it is now.

    Returns the node. That of a leaf is to be kept until the forward has used it: nothing else holds it.
    """
    node = tensor.grad_fn
    if node is None:  # a leaf: what adds up its gradient
        node = torch.autograd.graph.get_gradient_edge(tensor).node
    hook.output = tensor.output_nr
    node.register_prehook(hook)
    return node


class OfParameters:
    """Takes ``.grad`` of parameters as soon as it is complete for a backward pass, while it is in the cache.

    Where several processes train together, ``.grad`` becomes the mean of theirs only when the backward pass ends; so it
    is taken then.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._step: LoggedStep | None = None
        self._hooked: dict[int, tuple[Tensor, list[int]]] = {}  # id → a parameter with a hook, its series
        self._handles: list[Any] = []
        self._rows: dict[int, int] = {}  # id of a parameter → the row of its gradient
        self._is_shared = False  # with other processes
        self._came: dict[int, Tensor] = {}  # parameters whose gradient is to be taken when the backward pass ends

    def start(self, step: LoggedStep, parameters: dict[int, tuple[Tensor, list[int]]]) -> None:
        """parameters: by id, each with the series that show its gradient."""
        self._step, self._rows = step, {}
        self._came.clear()
        self._is_shared = _trains_with_others()
        wanted = {number: one for number, one in parameters.items() if one[0].requires_grad and one[0].is_leaf}
        if wanted.keys() == self._hooked.keys():
            for number, (_, series) in wanted.items():
                self._hooked[number][1][:] = series
            return
        self.stop()
        self._step, self._hooked = step, wanted
        for parameter, _ in wanted.values():
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._hook))

    def take_present(self) -> None:
        """Take what is there: this was started in the middle of a backward pass."""
        for parameter, _ in self._hooked.values():
            self._hook(parameter)

    def _hook(self, parameter: Tensor) -> None:
        if not self._is_shared:
            self._take(parameter)
            return
        is_first = not self._came
        self._came[id(parameter)] = parameter
        if is_first and not at_end_of_backward(self._take_all):
            self._take_all()

    def _take_all(self) -> None:
        came = list(self._came.values())
        self._came.clear()
        for parameter in came:
            self._take(parameter)

    def _take(self, parameter: Tensor) -> None:
        step, gradient = self._step, parameter.grad
        if step is None or not step.is_open or gradient is None:
            return
        row = self._sampler.row(gradient)
        if row is None:
            return
        known = self._rows.get(id(parameter))
        if known is None:
            self._rows[id(parameter)] = number = step.add(row, GRADIENT)
            step.series.extend((one, number) for one in self._hooked[id(parameter)][1])
        else:
            step.rows[known] = row  # a further backward pass has added to the same .grad

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hooked.clear()
        self._came.clear()
        self._step = None


def _trains_with_others() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
