"""How much memory kernels of the CPU take of their own: what they take and give back within a call, which no tensor
holds and no event tells of.

Known by formulas of shapes, as FLOPs are, from what PyTorch's allocator reported for these kernels (torch 2.13 with
oneDNN): convolutions copy what they are given into layouts of their own, attention takes blocks per thread. They are
estimates, and no part of a figure: where such memory would change the peak, a note says so and by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from torcheer.profiling.flops import Call, UncountedError
from torcheer.record.model import Op, Record, Ref, Shape, Value

FLOAT_BYTES = 4
BLOCK = 16  # channels of oneDNN's layouts come in blocks of so many
FEW = 4  # of so few channels it reads the usual layout
LARGE_KERNEL = 256  # numbers in a kernel from which PyTorch does not use oneDNN
HALF_PRODUCT_BYTES = 2 << 20  # per thread, the most seen for products of matrices in half precision
NOTED_SHARE = 0.05  # of the peak: smaller ones are not worth a note


class Hidden(NamedTuple):
    """The call that would make the peak largest."""

    aten: int  # index into Record.aten
    scratch_bytes: int  # what its kernel takes of its own, about
    peak_bytes: int  # the most held at once with it, about


def hidden_peak(record: Record, held: list[int]) -> Hidden | None:
    """The call whose kernel's own memory makes the peak notably larger than what tensors hold; None: there is none.

    held: bytes held before each of ``record.memory``, and after the last.
    """
    after = _held_after(record, held)
    threads = record.run.num_threads or 1
    peak, found = max(held), None
    most = peak / (1 - NOTED_SHARE)
    for op in record.aten:
        scratch = scratch_of(record, op, threads)
        if scratch and after[op.index] + scratch > most:
            most = after[op.index] + scratch
            found = Hidden(op.index, scratch, most)
    return found


def _held_after(record: Record, held: list[int]) -> list[int]:
    """The most held while and right after each ATen call."""
    after = [0] * len(record.aten)
    place = level = 0
    events = record.memory
    for index in range(len(after)):
        while place < len(events) and events[place].aten < index:
            place += 1
            level = held[place]
        most = level
        while place < len(events) and events[place].aten == index:
            place += 1
            level = held[place]
            most = max(most, level)
        after[index] = most
    return after


def scratch_of(record: Record, op: Op, threads: int) -> int:
    """Bytes that the kernel of a call takes beyond what it returns, about; 0 where none is known of."""
    estimate = ESTIMATES.get(op.function.rpartition(".")[0])
    if estimate is None or not _is_on_cpu(record, op):
        return 0
    try:
        return max(0, estimate(Tensors(record, op), threads))
    except UncountedError:
        return 0


def _is_on_cpu(record: Record, op: Op) -> bool:
    return any(record.values[item.value].device == "cpu" for item in op.outputs)


class Tensors(Call):
    """A call with what its kernel's memory depends on."""

    def __init__(self, record: Record, op: Op) -> None:
        super().__init__(record, op, lambda _value: True)
        self._record = record

    def value(self, position: int) -> Value:
        """A tensor it was given."""
        given = self.arg(position)
        if not isinstance(given, Ref):
            raise UncountedError(f"argument {position} of {self.name} is no tensor")
        return self._record.values[given]

    def is_made(self, position: int) -> bool:
        """Does it return that tensor of several?"""
        return any(item.path == str(position) for item in self._op.outputs)


def _blocked(shape: Shape, *, is_weight: bool = False) -> int:
    """Bytes of a tensor in oneDNN's layout, its channels filled up to whole blocks."""
    whole = [-(-size // BLOCK) * BLOCK for size in shape[:2]]
    return FLOAT_BYTES * (whole[0] if is_weight else shape[0]) * whole[1] * prod(shape[2:])


def _weight(shape: Shape, groups: int) -> int:
    return FLOAT_BYTES * prod(shape) if groups > 1 or shape[1] <= FEW else _blocked(shape, is_weight=True)


def _is_usual_layout(value: Value) -> bool:
    """Channels are not last: oneDNN reads those where they are."""
    return value.stride is None or len(value.stride) < 3 or value.stride[1] != 1 or value.shape[1] == 1


def _convolution(call: Tensors, _threads: int) -> int:
    x, weight, out = call.value(0), call.shape(1), call.out()
    kernel = _weight(weight, int(call.arg(8) or 1))
    if prod(weight[2:]) >= LARGE_KERNEL or not _is_usual_layout(x):
        return FLOAT_BYTES * prod(weight)
    copy = 0 if x.shape[1] <= FEW else _blocked(x.shape)
    plain, blocked = FLOAT_BYTES * prod(out), _blocked(out)
    # First it computes in its own layout, then gives back what it read, and copies into the usual one.
    return max(copy + kernel + blocked, blocked + plain) - plain


def _convolution_backward(call: Tensors, threads: int) -> int:
    gradient, x, weight = call.shape(0), call.value(1), call.shape(2)
    groups = int(call.arg(9) or 1)
    given, copy, kernel = _blocked(gradient), _blocked(x.shape), _weight(weight, groups)
    plain, plain_kernel = FLOAT_BYTES * prod(x.shape), FLOAT_BYTES * prod(weight)
    if not _is_usual_layout(x):
        return 3 * plain_kernel
    to_input = call.is_made(0)
    most = max(given + _blocked(weight, is_weight=True) + copy, copy + plain) if to_input else 0
    if prod(weight[2:]) >= LARGE_KERNEL:
        columns = plain // max(1, x.shape[0])
        to_weight = plain_kernel + min(threads, x.shape[0] or 1) * (4 * plain_kernel + columns)
    else:
        to_weight = given + (0 if x.shape[1] <= FEW else copy) + kernel + (threads - 1) * kernel
    most = max(most, (plain if to_input else 0) + to_weight)
    return most - plain_kernel - (plain if to_input else 0)


def _attention_blocks(call: Tensors, query: int) -> tuple[int, int, int]:
    """Rows and columns of a block of scores, and the size of a head."""
    length, size = call.shape(query)[-2:]
    rows = 256 if length >= 768 else 64 if length >= 192 else 32
    return rows, min(call.shape(query + 1)[-2], 512), size


def _attention(call: Tensors, threads: int) -> int:
    rows, columns, size = _attention_blocks(call, 0)
    return threads * FLOAT_BYTES * rows * (columns + size + 2)


def _attention_backward(call: Tensors, threads: int) -> int:
    rows, columns, _ = _attention_blocks(call, 1)
    # A gradient that is not laid out as the kernel wants it is copied.
    return threads * FLOAT_BYTES * 2 * rows * columns + FLOAT_BYTES * prod(call.shape(0))


def _half_product(call: Tensors, threads: int) -> int:
    given = [call.value(place) for place in range(3 if "add" in call.name else 2)]
    is_half = all(value.dtype in ("bfloat16", "float16") for value in given)
    moved = sum(value.size_bytes or 0 for value in given) + 2 * prod(call.out())
    return threads * min(HALF_PRODUCT_BYTES, moved // 2) if is_half else 0


ESTIMATES: dict[str, Callable[[Tensors, int], int]] = {
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten.mm": _half_product,
    "aten.bmm": _half_product,
    "aten.addmm": _half_product,
    "aten.baddbmm": _half_product,
}
