"""Functions that are a few ATen calls, always the same ones: what they do at ATen level is known without looking.

``F.linear`` of a matrix is ``aten.t`` of the weight and ``aten.addmm``, and nothing else. The tensors in between never
come to Python; their shapes, strides and memory follow from those of the arguments. Each function here has a test for
the arguments it holds for (``is_…``), and writes what the ATen level would have seen (``write_…``).
``leaves.py`` says when they are not asked; the same tests and the same proof as for leaves look after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torcheer.capture.torch.events import ATEN
from torcheer.capture.torch.kinds import describe
from torcheer.capture.torch.private import TorchDispatchMode, no_function_mode, storage_id
from torcheer.capture.torch.tape import DERIVED, FRESH, Tape, shared_ref
from torcheer.record.model import Ref

Tensor = torch.Tensor
Given = tuple[Any, ...]
_is_inference_mode_enabled = torch.is_inference_mode_enabled
_is_grad_enabled = torch.is_grad_enabled

_aten = torch.ops.aten
_T = describe(_aten.t.default)
_VIEW = describe(_aten.view.default)
_UNSAFE_VIEW = describe(_aten._unsafe_view.default)
_MM = describe(_aten.mm.default)
_ADDMM = describe(_aten.addmm.default)
_EMPTY = describe(_aten.empty.memory_format)
_BATCH_NORM = describe(_aten.native_batch_norm.default)
_LAYER_NORM = describe(_aten.native_layer_norm.default)
_DETACH = describe(_aten.detach.default)

# Everything that stands between these functions and the kernels.
NAMES = frozenset(
    "aten/linear aten/matmul aten/t aten/view aten/_unsafe_view aten/mm aten/addmm aten/batch_norm"
    " aten/_batch_norm_impl_index aten/empty.memory_format aten/native_batch_norm aten/layer_norm"
    " aten/native_layer_norm aten/detach aten/transpose.int aten/reshape".split()
)


def holds_here(func: Callable[..., Any]) -> bool:
    """Is it these ATen calls in the PyTorch that is installed? Tried on a few numbers."""
    x, weight, bias = torch.ones(2, 3), torch.ones(2, 3), torch.ones(2)
    batch, channel = x[None], torch.ones(3)
    with no_function_mode(), torch.no_grad(), _Calls() as calls:
        if func is torch.batch_norm:
            func(x, channel, channel, channel, channel, False, 0.1, 1e-5, True)
            expected = [_EMPTY, _BATCH_NORM]
        elif func is torch.layer_norm:
            func(x, (3,), channel, channel, 1e-5, True)
            expected = [_LAYER_NORM]
        else:
            for given in ((x, weight), (x, weight, bias), (batch, weight), (batch, weight, bias)):
                func(*given)
            expected = [_T, _MM, _T, _ADDMM, _T, _VIEW, _MM, _UNSAFE_VIEW, _VIEW, _T, _ADDMM, _VIEW]
    seen: list[str] = calls.names
    return seen == [kind.name for kind in expected]


class _Calls(TorchDispatchMode):
    """Names of the ATen calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Given = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _between(tape: Tape, row: Given) -> Ref:
    """The number of a tensor that Python never saw; the row's storage None: its memory is its own."""
    ref = shared_ref(len(tape.values))
    tape.values.append(row if row[5] is not None else (*row[:5], ref))
    if row[5] is not None and _is_grad_enabled():
        tape.unseen.append(ref)
    return ref


# -- linear ------------------------------------------------------------------------------------------------


def linear_arguments(given: Given) -> Given | None:
    """A tensor, a weight, and a bias or None."""
    num = len(given)
    if not 2 <= num <= 3 or type(given[0]) is not Ref or type(given[1]) is not Ref:
        return None
    return given if num == 2 or given[2] is None or type(given[2]) is Ref else None


def is_plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """One matrix product: of a matrix, or of a batch that is a matrix once it is viewed as one."""
    if (
        not (x.is_cpu or x.is_cuda)
        or weight.dim() != 2
        or _is_inference_mode_enabled()
        or x.is_inference()
        or weight.is_inference()
        or (bias is not None and (bias.dim() != 1 or not bias.is_contiguous() or bias.is_inference()))
    ):
        return False
    if x.dim() == 2:
        return True
    if x.dim() != 3 or not x.numel() or not weight.numel():
        return False
    _, rows, width = x.shape
    return x.stride() == (rows * width, width, 1)


def write_linear(tape: Tape, given: Given, out: Tensor, index: int) -> Ref:
    """``t`` and ``addmm`` or ``mm``, between two views where a batch is given."""
    x, weight = given[:2]
    bias = given[2] if len(given) > 2 else None
    values, append, call = tape.values, tape.events.append, tape.call
    shape, stride, offset, dtype, device, storage = values[weight]
    turned = (shape[::-1], stride[::-1], offset, dtype, device, storage)
    if len(out.shape) == 2:
        t = _between(tape, turned)
        append((ATEN, _T, (weight,), None, t, index, call))
        result = tape.register(out, FRESH)
        product = (_MM, (x, t)) if bias is None else (_ADDMM, (bias, x, t))
        append((ATEN, *product, None, result, index, call))
        return result
    (batch, rows, width), _, offset, dtype, device, storage = values[x]
    flat = ((batch * rows, width), (width, 1), offset, dtype, device, storage)
    if bias is None:
        t, matrix = _between(tape, turned), _between(tape, flat)
        append((ATEN, _T, (weight,), None, t, index, call))
        append((ATEN, _VIEW, (x, [batch * rows, width]), None, matrix, index, call))
    else:
        matrix, t = _between(tape, flat), _between(tape, turned)
        append((ATEN, _VIEW, (x, [batch * rows, width]), None, matrix, index, call))
        append((ATEN, _T, (weight,), None, t, index, call))
    width = shape[0]
    made = _between(tape, ((batch * rows, width), (width, 1), 0, out.dtype, device, None))
    tape.storages[storage_id(out)] = made
    product = (_MM, (matrix, t)) if bias is None else (_ADDMM, (bias, matrix, t))
    append((ATEN, *product, None, made, index, call))
    result = tape.register(out, DERIVED)
    view = _UNSAFE_VIEW if bias is None else _VIEW
    append((ATEN, view, (made, [batch, rows, width]), None, result, index, call))
    return result


# -- norms -------------------------------------------------------------------------------------------------


def batch_norm_arguments(given: Given) -> Given | None:
    """As ``F.batch_norm`` calls it, with params and running statistics, in eval mode."""
    if len(given) != 9 or given[5] is not False:
        return None
    return given if all(type(tensor) is Ref for tensor in given[:5]) else None


def is_plain_batch_norm(*args: Any) -> bool:
    """On the CPU, in single precision, where autograd keeps nothing of it."""
    return _is_plain_norm(args[:5]) and args[0].dim() >= 2


def write_batch_norm(tape: Tape, given: Given, out: Tensor, index: int) -> Ref:
    """What cuDNN would save, which is empty, and the norm, whose own statistics are empty in eval mode."""
    device, call = tape.values[given[0]][4], tape.call
    nothing = ((0,), (1,), 0, torch.float32, device, None)
    reserve = _between(tape, ((0,), (1,), 0, torch.uint8, device, None))
    named = {"dtype": torch.uint8, "layout": torch.strided, "device": device}
    tape.events.append((ATEN, _EMPTY, ([0],), named, reserve, index, call))
    result = tape.register(out, FRESH)
    results = (result, _between(tape, nothing), _between(tape, nothing))
    tape.events.append((ATEN, _BATCH_NORM, given[:8], None, results, index, call))
    return result


def layer_norm_arguments(given: Given) -> Given | None:
    """As ``F.layer_norm`` calls it, with weight and bias."""
    if len(given) != 6 or type(given[1]) is not tuple:
        return None
    if type(given[0]) is not Ref or type(given[2]) is not Ref or type(given[3]) is not Ref:
        return None
    return (given[0], list(given[1]), *given[2:5])


def is_plain_layer_norm(*args: Any) -> bool:
    """On the CPU, in single precision, where autograd keeps nothing of it."""
    return _is_plain_norm((args[0], *args[2:4]))


def write_layer_norm(tape: Tape, given: Given, out: Tensor, index: int) -> Ref:
    """The norm, and the mean and deviation of every row."""
    shape, _, _, dtype, device, _ = tape.values[given[0]]
    num_normal = len(given[1])
    statistics = (*shape[: len(shape) - num_normal], *(1,) * num_normal)
    stride, step = [1] * len(statistics), 1
    for axis in reversed(range(len(statistics))):
        stride[axis] = step
        step *= statistics[axis]
    row = (statistics, tuple(stride), 0, dtype, device, None)
    result = tape.register(out, FRESH)
    results = (result, _between(tape, row), _between(tape, row))
    inner = (given[0], list(given[1]), *given[2:5])
    tape.events.append((ATEN, _LAYER_NORM, inner, None, results, index, tape.call))
    return result


def _is_plain_norm(tensors: tuple[Any, ...]) -> bool:
    if _is_grad_enabled() or _is_inference_mode_enabled() or not tensors[0].numel():
        return False
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype is not torch.float32 or tensor.is_inference():
            return False
    return True


# -- what autograd saves -----------------------------------------------------------------------------------


def write_saved(tape: Tape, result: Ref, index: int) -> None:
    """Autograd saves a function's own result without its graph, which a dispatch mode sees as a ``detach``."""
    tape.events.append((ATEN, _DETACH, (result,), None, _between(tape, tape.values[result]), index, tape.call))
