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


class Row:
    """One tensor at one moment."""

    __slots__ = ("dead", "inf", "nan", "num_elements", "saturating", "squares", "values")

    def __init__(self, values: Tensor, squares: Any, num_elements: int) -> None:
        self.values = values  # float32, one dimension; a copy
        self.squares = squares  # sum of the squares of all values: a float, or a tensor on another device
        self.num_elements = num_elements  # that values are a sample of
        self.nan = self.inf = 0  # in the whole tensor, where squares says that there are any; -1: not counted
        self.dead: Any = None  # share of units that are zero
        self.saturating: str | None = None  # key of store.summary.BOUNDS


class Sampler:
    """Takes rows. Strides are chosen once for each shape; no random number is drawn."""

    def __init__(self, sample_n: int | None) -> None:
        self.sample_n = sample_n
        self._strides: dict[tuple[int, ...], tuple[tuple[int], tuple[int], int]] = {}

    def row(self, tensor: Tensor) -> Row | None:
        """The row of a tensor's values; None for one without values that can be read."""
        plain = readable(tensor)
        if plain is None:
            return None
        shape = plain.shape
        plan = self._strides.get(shape)
        if plan is None:
            plan = self._strides[shape] = self._plan(shape)
        size, stride, num_elements = plan
        if num_elements == 0:
            return None
        if not plain.is_contiguous():
            plain = _in_memory_order(plain)
        values = plain.as_strided(size, stride).to(_FLOAT32, copy=True)
        whole = plain.as_strided((num_elements,), (1,))
        if plain.dtype is _FLOAT32:
            squares = torch.dot(whole, whole)
        elif plain.dtype.is_floating_point:
            squares = torch.linalg.vector_norm(whole, dtype=_FLOAT32 if plain.itemsize < 4 else None).square()
        else:
            return Row(values, None, num_elements)
        return _checked(Row(values, squares, num_elements), plain)

    def norms(self, gradient: Tensor) -> Row | None:
        """The row of a gradient: its L2 norm for each sample of the batch."""
        plain = readable(gradient)
        if plain is None or plain.numel() == 0:
            return None
        dtype = plain.dtype if plain.dtype in _EXACT else _FLOAT32
        if plain.dim() < 2:
            norms = plain.to(dtype).abs().reshape(-1)
        else:
            norms = torch.linalg.vector_norm(plain.reshape(len(plain), -1), dim=1, dtype=dtype)
        row = self.row(norms)
        if row is not None and (row.nan or row.inf):
            _count(row, plain)
        return row

    def _plan(self, shape: tuple[int, ...]) -> tuple[tuple[int], tuple[int], int]:
        num_elements = math.prod(shape)
        if self.sample_n is None or num_elements <= self.sample_n:
            return (num_elements,), (1,), num_elements
        stride = -(-num_elements // self.sample_n)
        # No common divisor with a dimension: else the same few channels would be met again and again.
        while any(length > 1 and math.gcd(stride, length) > 1 for length in shape) and stride < 2 * num_elements:
            stride += 1
        return ((num_elements - 1) // stride + 1,), (stride,), num_elements


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


def _checked(row: Row, plain: Tensor) -> Row:
    """Turn the sum of squares into a number and count what is not finite, where that needs no waiting."""
    if plain.device.type != "cpu":
        return row  # the writer's thread waits for it, and counts in the sample
    row.squares = float(row.squares)
    if not math.isfinite(row.squares):
        _count(row, plain)
        if row.nan == row.inf == 0:  # only the squares overflow
            row.squares = float(torch.linalg.vector_norm(plain, dtype=torch.float64)) ** 2
    return row


def _count(row: Row, plain: Tensor) -> None:
    row.nan = int(plain.isnan().sum())
    row.inf = int(plain.isinf().sum())
