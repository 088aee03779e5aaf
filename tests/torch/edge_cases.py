"""Programs whose edges are easy to get wrong, with the parents that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Runs(nn.Module):
    """A model made of one function."""

    def __init__(self, body: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


# In each case the ops are numbered from 1 in order of execution; 0 is the input. Expected is, per op, the set
# of its parents; an op that is not mentioned is not looked at. "out" are the parents of the outputs.
ROW = torch.tensor([1])

CASES: dict[str, tuple[Callable[[Tensor], Any], dict[Any, set[int]]]] = {}


def edge_case(**expected: set[int]) -> Callable[[Callable[[Tensor], Any]], None]:
    def add(body: Callable[[Tensor], Any]) -> None:
        keys: dict[Any, set[int]] = {
            key if key.startswith("out") else int(key[1:]): value for key, value in expected.items()
        }
        CASES[body.__name__] = (body, keys)

    return add


@edge_case(n1={0}, n2={1}, n3={1}, n4={2}, n5={3}, n6={1, 4, 5}, out0={6})
def two_views_written(x):
    y = x + 1
    a = y[0]
    b = y[1]
    a.mul_(2)
    b.add_(3)
    return y.sum(0)


@edge_case(n1={0}, n2={1}, n3={1}, n4={2, 3}, out0={4})
def base_written_then_view_read(x):
    y = x + 1
    v = y[:2]
    y.add_(5)
    return v.sum(0)


@edge_case(n1={0}, n2={1}, n3={1}, n4={0, 2, 3}, out0={4})
def base_written_then_transpose_read(x):
    y = x + 1
    t = y.t()
    y.mul_(2)
    return t @ x


@edge_case(n1={0}, n2={1}, n3={1}, n4={2}, n5={3}, out0={5})
def interleaved_columns(x):
    y = x + 1
    first = y[:, 0]
    second = y[:, 1]
    first.mul_(2)
    return second.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={1, 3}, n5={4}, out0={5})
def view_taken_after_write(x):
    y = x + 1
    y[:, 0].mul_(2)
    return y[:, :2].sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={2}, n5={3}, out0={5})
def chunk_written(x):
    y = x + 1
    a, b = y.chunk(2)
    a.mul_(2)
    b.sum()
    return a.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={2}, n5={1, 3}, out0={4}, out1={5})
def split_written(x):
    y = x + 1
    a, b = y.split(2)
    a.mul_(2)
    return b.sum(), y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={1, 3}, n5={4}, n6={1, 3}, out0={5}, out1={6})
def narrow_written(x):
    y = x + 1
    y.narrow(0, 0, 2).zero_()
    return y.narrow(0, 2, 2).sum(), y.sum()


@edge_case(n1={0}, n2={1}, n3={1}, n4={2, 3}, out0={4})
def expand_reads_written_base(x):
    y = x.sum(0)
    wide = y.expand(3, 4)
    y.add_(1)
    return wide.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def transpose_written(x):
    y = x + 1
    y.transpose(0, 1).mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, n5={4}, n6={1, 5}, out0={6})
def view_of_view_written(x):
    y = x + 1
    y.view(-1)[2:6][1:3].mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={1}, n4={2}, n5={3}, out0={4}, out1={5})
def as_strided_apart(x):
    y = x + 1
    even = y.as_strided((8,), (2,))
    odd = y.as_strided((8,), (2,), 1)
    out = even.mul_(2)
    return out, odd.sum()


@edge_case(n1={0}, n2={1}, n3={1}, n4={2}, n5={3, 4}, out0={5})
def as_strided_overlapping(x):
    y = x + 1
    first = y.as_strided((8,), (2,))
    second = y.as_strided((5,), (3,))
    first.mul_(2)
    return second.sum()


@edge_case(n1={0}, n2={0, 1}, n3={2}, out0={3})
def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={0, 2}, n4={1, 3}, out0={4})
def out_argument_is_a_view(x):
    y = torch.zeros_like(x)
    row = y[1]
    torch.sum(x, 0, out=row)
    return y.sum()


@edge_case(n1={0}, n2={0, 1}, n3={2}, out0={3})
def copied_into(x):
    y = torch.zeros_like(x)
    y.copy_(x)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={2}, n4={1}, n5={3, 4}, n6={1, 5}, out0={6})
def copied_into_part(x):
    y = torch.zeros_like(x)
    part = x[0]
    half = part * 2
    y[0].copy_(half)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def data_written(x):
    y = x + 1
    y.data.mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def detached_written(x):
    y = x + 1
    y.detach().mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={3}, out0={4})
def index_put(x):
    y = x + 1
    values = x[0]
    y.index_put_((ROW,), values)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={3}, out0={4})
def masked_filled(x):
    y = x + 1
    mask = x > 0
    y.masked_fill_(mask, 0.0)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={3}, out0={4})
def item_set(x):
    y = x + 1
    row = x.sum(0)
    y[1] = row
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={1}, n4={2}, out0={4})
def item_set_elsewhere(x):
    y = x + 1
    v = y[1]
    y[0] = 0.0
    return v.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={3}, out0={4})
def mask_set(x):
    y = x + 1
    mask = x > 0
    y[mask] = 0.0
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def dtype_view_written(x):
    y = x + 1
    y.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def real_view_written(x):
    y = x + 1j
    torch.view_as_real(y).mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def overwritten_whole(x):
    """What a write fully covers and does not read is no parent of the reader."""
    y = x + 1
    y.add_(1)
    y.zero_()
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={1}, n4={3}, n5={2, 3, 4}, out0={5})
def rows_written_then_all_read(x):
    y = x + 1
    v = y.view(-1)
    y[0] = 1.0
    y[1] = 2.0
    return v.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, n5={3}, n6={4, 5}, out0={6})
def in_place_chain(x):
    y = x + 1
    y.relu_()
    y += 2
    a = y * 2
    b = y * 3
    return a + b


@edge_case(n1={0}, n2={1}, n3={2}, out0={3})
def multiplied_by_itself(x):
    y = x + 1
    y.mul_(y)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, out0={3})
def residual_in_place(x):
    out = x * 2
    identity = x * 3
    out += identity
    return out


@edge_case(n1={0}, n2={1}, out0={2})
def input_written(x):
    x.mul_(2)
    return x.sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, out0={3})
def input_view_read_after_write(x):
    row = x[0]
    x.mul_(2)
    return row.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, n5={1}, out0={4}, out1={5})
def contiguous_copies(x):
    y = x + 1
    copied = y.t().contiguous()
    return copied.mul_(2), y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, out0={2}, out1={3})
def contiguous_returns_the_same_object(x):
    y = x + 1
    return y.contiguous(), y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, n5={1}, out0={4}, out1={5})
def reshape_copies(x):
    y = x + 1
    return y.t().reshape(-1).mul_(2), y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def flatten_aliases(x):
    y = x + 1
    y.flatten().mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def diagonal_and_corner(x):
    y = x + 1
    y.fill_diagonal_(0.0)
    y[0, 3] = 5.0
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, out0={3})
def parameter_made_inside(x):
    y = x + 1
    alias = nn.Parameter(y, requires_grad=False)
    alias.mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, out0={2})
def parameter_made_inside_read(x):
    y = x + 1
    return nn.Parameter(y, requires_grad=False).sum()


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={3}, n5={4}, n6={3, 5}, out0={6})
def foreach_written(x):
    y = x + 1
    z = x * 2
    y.add_(z)
    a = y[0]
    torch._foreach_mul_([a], 2.0)
    return y.sum()


@edge_case(n1={0}, n2={0}, n3={0}, n4={1, 2, 3}, out0={4})
def list_argument(x):
    return torch.stack([x + 1, x * 2, x * 3])


@edge_case(n1={0}, n2={0}, n3={1, 2}, n4={2}, n5={3, 4}, out0={5})
def data_replaced(x):
    y = x + 1
    z = x * 2
    y.data = z
    z.add_(1)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={1, 3}, out0={4})
def unbind_written(x):
    y = x + 1
    rows = y.unbind()
    rows[1].mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, n4={3}, out0={4})
def squeeze_in_place(x):
    y = x + 1
    y.unsqueeze_(0)
    y.mul_(2)
    return y.sum()


@edge_case(n1={0}, n2={1}, n3={2}, out0={3})
def transpose_in_place(x):
    y = x + 1
    y.t_()
    return y[0]
