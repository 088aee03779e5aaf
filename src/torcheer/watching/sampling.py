"""A row: what is taken of one tensor at one moment. A sample of its values, and what only all of them tell."""

from __future__ import annotations

import math
from typing import Any

import torch

from torcheer.capture.torch.private import is_functional_wrapper

Tensor = torch.Tensor
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
_EXACT = (torch.float32, torch.float64)
_FLOAT32 = torch.float32
_norm = torch.linalg.vector_norm


Plan = tuple[tuple[int], tuple[int], int]
IN_SAMPLE = "in sample"


class Row:
    """One tensor at one moment."""

    __slots__ = ("dead", "inf", "nan", "num_elements", "saturating", "squares", "values")

    def __init__(self, values: Tensor, squares: Any, num_elements: int) -> None:
        self.values = values  # float32, one dimension; a copy
        # Sum of the squares of all values: a float, or a tensor on another device. IN_SAMPLE: the sample has all
        # values, and tells it, and what is not finite.
        self.squares = squares
        self.num_elements = num_elements  # that values are a sample of
        self.nan = self.inf = 0  # in the whole tensor, where squares says that there are any; -1: not counted
        self.dead: Any = None  # share of units that are zero
        self.saturating: str | None = None  # key of store.summary.BOUNDS


class Sampler:
    """Takes rows. Strides are chosen once for each shape; no random number is drawn."""

    def __init__(self, sample_n: int | None) -> None:
        self.sample_n = sample_n
        self._plans: dict[tuple[int, ...], Plan] = {}

    def plan(self, shape: torch.Size) -> Plan:
        """Size and stride of the sample of a tensor of this shape, and how many values it has."""
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan(shape)
        return plan

    def row(self, tensor: Tensor) -> Row | None:
        """The row of a tensor's values; None for one without values that can be read."""
        plain = _plain(tensor)
        if plain is None:
            return None
        size, stride, num_elements = self.plan(plain.shape)
        if num_elements == 0:
            return None
        if not plain.is_contiguous():
            plain = _in_memory_order(plain)
        if plain.dtype is _FLOAT32:
            if size[0] == num_elements:
                return Row(torch.as_strided_copy(plain, size, stride), IN_SAMPLE, num_elements)
            # First the whole, which brings it near; then the sample.
            whole = plain.view(-1)
            squares = torch.dot(whole, whole)
            values = torch.as_strided_copy(plain, size, stride)
        else:
            whole = plain.view(-1)
            values = plain.as_strided(size, stride).to(_FLOAT32, copy=True)
            if not plain.dtype.is_floating_point:
                return Row(values, None, num_elements)
            squares = torch.linalg.vector_norm(whole, dtype=_FLOAT32 if plain.itemsize < 4 else None).square()
        row = Row(values, squares, num_elements)
        if squares.is_cpu:  # else the writer's thread waits for it, and counts in the sample
            row.squares = square = float(squares)
            if not math.isfinite(square):
                count_bad(row, plain)
        return row

    def norms(self, gradient: Tensor) -> Row | None:
        """The row of a gradient: its L2 norm for each sample of the batch."""
        plain = _plain(gradient)
        if plain is None or plain.numel() == 0:
            return None
        if plain.dtype not in _EXACT:
            plain = plain.to(_FLOAT32)
        dims = plain.dim()
        norms = plain.abs().view(-1) if dims < 2 else _norm(plain if dims == 2 else plain.flatten(1), dim=1)
        if norms.dtype is not _FLOAT32 or (self.sample_n is not None and norms.numel() > self.sample_n):
            row = self.row(norms)
        else:
            squares = torch.dot(norms, norms)
            row = Row(norms, float(squares) if squares.is_cpu else squares, norms.numel())
        if row is not None and isinstance(row.squares, float) and not math.isfinite(row.squares):
            count_bad(row, plain)
        return row

    def _plan(self, shape: tuple[int, ...]) -> Plan:
        num_elements = math.prod(shape)
        if self.sample_n is None or num_elements <= self.sample_n:
            return (num_elements,), (1,), num_elements
        stride = -(-num_elements // self.sample_n)
        # No common divisor with a dimension: else the same few channels would be met again and again.
        while any(length > 1 and math.gcd(stride, length) > 1 for length in shape) and stride < 2 * num_elements:
            stride += 1
        return ((num_elements - 1) // stride + 1,), (stride,), num_elements


def _plain(tensor: Tensor) -> Tensor | None:
    """``readable``, the short way for what most tensors are."""
    if tensor.dtype is not _FLOAT32 or not is_plain(tensor):
        return readable(tensor)
    return tensor.detach() if tensor.requires_grad else tensor


def is_plain(tensor: Tensor) -> bool:
    """Is it what it looks like: no subclass, in memory, its values the ones that are there?"""
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not (tensor.is_meta or tensor.is_quantized or tensor.is_neg() or is_functional_wrapper(tensor))
    )


def readable(tensor: Tensor) -> Tensor | None:
    """The tensor's own values, off the graph; None where there are none to read."""
    if type(tensor) not in _PLAIN:
        local = getattr(tensor, "to_local", None)  # DTensor: the part on this process
        if local is not None:
            tensor = local()
        elif type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            return None
    if is_functional_wrapper(tensor) or tensor.is_meta or tensor.is_quantized:
        return None
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            return tensor.coalesce().values()
        return None
    if tensor.is_complex():
        return tensor.abs()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _in_memory_order(tensor: Tensor) -> Tensor:
    """The same values with strides that begin at 1; a view where the memory has no gaps."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(order)
    return ordered if ordered.is_contiguous() else tensor.contiguous()


def count_bad(row: Row, plain: Tensor) -> None:
    """Count what is not finite in a tensor whose sum of squares is not."""
    row.nan = int(plain.isnan().sum())
    row.inf = int(plain.isinf().sum())
    if row.nan == row.inf == 0:  # only the squares overflow
        row.squares = float(torch.linalg.vector_norm(plain, dtype=torch.float64)) ** 2
