"""How many floating-point operations an ATen call takes: a registry of formulas of shapes.

Counted are matrix products, convolutions, attention and recurrent layers, a multiply-add as two. What only moves,
adds or compares numbers counts as none, as everywhere in the field. An operator that multiplies matrices and has no
formula is *uncounted*: it is listed, and a sum it belongs to is partial. Formulas see shapes and nothing else, so
they hold for runs without contents (fake execution) too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from torcheer.errors import TorcheerError
from torcheer.record.model import Op, Record, Ref, Shape


class Flops(NamedTuple):
    """Floating-point operations of one call."""

    model: int  # what the mathematics asks for
    hardware: int  # what the kernel does, recomputation included


class Call:
    """An ATen call as a formula sees it: shapes in place of tensors."""

    def __init__(
        self, record: Record, op: Op, is_used: Callable[[int], bool], parts: Mapping[int, Shape] | None = None
    ) -> None:
        self._values = record.values
        self._parts = parts or {}  # of tensors spread over processes: the shapes that this one computes with
        self._op = op
        self._is_used = is_used

    @property
    def name(self) -> str:
        """``aten.mm.default``"""
        return self._op.function

    def arg(self, position: int, name: str = "", default: Any = None) -> Any:
        """An argument as it was given: by position, or else by its name."""
        if position < len(self._op.args):
            return self._op.args[position]
        return (self._op.kwargs or {}).get(name, default)

    def shape(self, position: int, name: str = "") -> Shape:
        """The shape of a tensor it was given."""
        given = self.arg(position, name)
        if not isinstance(given, Ref):
            raise UncountedError(f"argument {position} of {self._op.function} is no tensor")
        return self._shape(given)

    def shapes(self, position: int) -> list[Shape]:
        """The shapes of a list of tensors it was given."""
        return [self._shape(item) for item in self.arg(position) or () if isinstance(item, Ref)]

    def out(self, position: int = 0) -> Shape:
        """The shape of a tensor it returned."""
        outputs = self._op.outputs
        if position >= len(outputs):
            raise UncountedError(f"{self._op.function} returned no tensor {position}")
        return self._shape(outputs[position].value)

    def uses(self, path: str) -> bool:
        """Did anybody read the output at that path (``"0"`` is the first of several)?"""
        return any(item.path == path and self._is_used(item.value) for item in self._op.outputs)

    def _shape(self, value: int) -> Shape:
        shape = self._parts.get(value) or self._values[value].shape
        if any(size < 0 for size in shape):
            raise UncountedError(f"a tensor of {self._op.function} has no fixed shape (it is nested)")
        return shape


class UncountedError(Exception):
    """Raised by a formula that cannot count a call, which is then listed as uncounted; nobody else sees it."""


Formula = Callable[[Call], "int | Flops"]
FORMULAS: dict[str, Formula] = {}


def register_formula(*operators: str) -> Callable[[Formula], Formula]:
    """Register how many FLOPs calls of these operators take: ``@register_formula("mylib.attention")``.

    An operator is named as PyTorch prints it, ``namespace.name`` or with its overload, ``namespace.name.overload``.
    The formula is given a ``Call`` and returns a number, or ``Flops(model=…, hardware=…)`` where the kernel does
    more than the mathematics asks for.
    """

    def register(formula: Formula) -> Formula:
        for operator in operators:
            if not _NAME.fullmatch(operator):
                raise TorcheerError(
                    f"{operator!r} does not name an operator. Write namespace.name or namespace.name.overload, as "
                    "print(op.function) of a recorded ATen op shows it: 'aten.mm.default'."
                )
            FORMULAS[operator] = formula
        return formula

    return register


_NAME = re.compile(r"\w+\.\w+(\.\w+)?")

# ATen operators whose names say that they multiply matrices. Without a formula they are uncounted.
_HEAVY = re.compile(
    r"aten\.(?!.*(pack|im2col|col2im|weight_norm|comm))"
    r"(.*(mm|matmul|conv|convolution|attention|rnn|lstm|gru|multi_head|encoder_layer)(_|\.|$)"
    r"|_*linalg_|_*fft|cholesky|qr\b|svd|_*cdist|_trilinear|inverse|ormqr|lu_|tensordot|chain_)"
)
# Whose other operators take no work that is counted: PyTorch's own, and those that move tensors between processes.
_COUNTED = frozenset(
    {"aten", "prims", "prim", "profiler", "c10d", "_c10d_functional", "_c10d_functional_autograd", "fsdp"}
)
_LIGHT = frozenset({"aten._thnn_fused_lstm_cell", "aten._thnn_fused_gru_cell", "aten._fused_rms_norm"})


def is_heavy(function: str) -> bool:
    """Might this operator do work that is counted?"""
    if function.rpartition(".")[0] in _LIGHT:
        return False
    return _is_own(function) or _HEAVY.match(function) is not None


def count(call: Call) -> Flops | None:
    """FLOPs of a call; None where it may take some and nobody knows how many."""
    formula = FORMULAS.get(call.name) or FORMULAS.get(call.name.rpartition(".")[0])
    if formula is None:
        return None if is_heavy(call.name) else Flops(0, 0)
    try:
        counted = formula(call)
    except UncountedError:
        return None
    return counted if isinstance(counted, Flops) else Flops(counted, counted)


def inside_of_formulas(record: Record) -> Iterator[int]:
    """ATen calls that a kernel written in Python made, where a formula counts the whole operator already."""
    for op in record.ops:
        # The operator's own call is written when it returns, after those inside it.
        forward = [index for index in op.aten if record.aten[index].phase == "forward"]
        last = record.aten[forward[-1]] if len(forward) > 1 else None
        if last is not None and _is_own(last.function) and last.function.startswith(op.function) and _formula_of(last):
            yield from forward[:-1]


def _is_own(function: str) -> bool:
    return function.partition(".")[0] not in _COUNTED


def _formula_of(op: Op) -> Formula | None:
    return FORMULAS.get(op.function) or FORMULAS.get(op.function.rpartition(".")[0])


# -- products of matrices ------------------------------------------------------------------------------


@register_formula("aten.mm", "aten._int_mm", "aten._scaled_mm")
def _mm(call: Call) -> int:
    return 2 * prod(call.shape(0)) * call.shape(1)[-1]


@register_formula("aten.addmm", "aten._addmm_activation")
def _addmm(call: Call) -> int:
    return 2 * prod(call.shape(1)) * call.shape(2)[-1]


@register_formula("aten.bmm")
def _bmm(call: Call) -> int:
    return 2 * prod(call.shape(0)) * call.shape(1)[-1]


@register_formula("aten.baddbmm", "aten.addbmm")
def _baddbmm(call: Call) -> int:
    return 2 * prod(call.shape(1)) * call.shape(2)[-1]


@register_formula("aten._grouped_mm", "aten._scaled_grouped_mm")
def _grouped_mm(call: Call) -> int:
    """Rows in groups, each with a matrix of its own; or groups of what is summed over. Padding rows count."""
    left, right = call.shape(0), call.shape(1)
    # Three axes by two: the columns are in groups, and each meets the rows of its own group only.
    return 2 * prod(left if len(right) == 3 else left[-2:]) * right[-1]


@register_formula("aten.mv", "aten.dot", "aten.vdot")
def _mv(call: Call) -> int:
    return 2 * prod(call.shape(0))


@register_formula("aten.addmv")
def _addmv(call: Call) -> int:
    return 2 * prod(call.shape(1))


@register_formula("aten.linear")
def _linear(call: Call) -> int:
    return 2 * prod(call.out()) * call.shape(1)[-1]


@register_formula("aten.matmul")
def _matmul(call: Call) -> int:
    return 2 * prod(call.out()) * call.shape(0)[-1]


@register_formula("aten.einsum")
def _einsum(call: Call) -> int:
    """Of two operands: every combination of indices is one multiply-add."""
    equation, shapes = call.arg(0), call.shapes(1)
    terms = str(equation).replace(" ", "").partition("->")[0].split(",")
    if len(terms) != 2 or "." in str(equation):
        raise UncountedError(f"einsum {equation!r} is not of two operands with named indices")
    sizes = {
        index: size for term, shape in zip(terms, shapes, strict=True) for index, size in zip(term, shape, strict=True)
    }
    return 2 * prod(sizes.values())


# -- convolutions --------------------------------------------------------------------------------------


def _convolved(x: Shape, weight: Shape, out: Shape, transposed: bool) -> int:
    """Each number of the output (transposed: of the input) meets each weight of one output channel."""
    return 2 * prod(x if transposed else out) * prod(weight[1:])


@register_formula("aten.convolution", "aten._convolution", "aten.convolution_overrideable")
def _convolution(call: Call) -> int:
    return _convolved(call.shape(0), call.shape(1), call.out(), bool(call.arg(6, "transposed")))


@register_formula("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.mkldnn_convolution", "aten.cudnn_convolution")
def _plain_convolution(call: Call) -> int:
    return _convolved(call.shape(0), call.shape(1), call.out(), transposed=False)


@register_formula("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def _transposed_convolution(call: Call) -> int:
    return _convolved(call.shape(0), call.shape(1), call.out(), transposed=True)


@register_formula("aten.convolution_backward")
def _convolution_backward(call: Call) -> int:
    """Each gradient, of the input and of the weight, takes what the forward took, whatever the groups."""
    gradient, x, weight = call.shape(0), call.shape(1), call.shape(2)
    wanted = call.arg(10, "output_mask") or (True, True, True)
    return _convolved(x, weight, gradient, bool(call.arg(7, "transposed"))) * (bool(wanted[0]) + bool(wanted[1]))


# -- attention -----------------------------------------------------------------------------------------


def _scores(query: Shape, key: Shape) -> int:
    """Multiply-adds of one product of queries and keys, ×2. Masked scores count: kernels differ in what they skip."""
    return 2 * prod(query[:-1]) * key[-2] * query[-1]


_FUSED = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")


@register_formula(
    *(f"aten._scaled_dot_product_{kind}" for kind in (*_FUSED, "fused_attention_overrideable", "attention_math")),
    "aten.scaled_dot_product_attention",
    "aten._scaled_dot_product_attention_math_for_mps",
)
def _attention(call: Call) -> int:
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    return _scores(query, key) + _scores((*query[:-1], value[-1]), key)


@register_formula(*(f"aten._scaled_dot_product_{kind}_backward" for kind in (*_FUSED, "fused_attention_overrideable")))
def _attention_backward(call: Call) -> Flops:
    """Gradients of query, key, value and of the weights; the kernel also computes the weights again."""
    query, key, value = call.shape(1), call.shape(2), call.shape(3)
    again = _scores(query, key)
    model = 2 * again + 2 * _scores((*query[:-1], value[-1]), key)
    return Flops(model, model + again)


def _multi_head(query: Shape, key: Shape, width: int) -> int:
    rows, keys = prod(query[:-1]), prod(key[:-1])
    projections = 2 * width * width * (rows + 2 * keys) + 2 * width * width * rows
    return projections + 4 * rows * key[-2] * width


@register_formula("aten._native_multi_head_attention")
def _native_multi_head(call: Call) -> int:
    return _multi_head(call.shape(0), call.shape(1), int(call.arg(3)))


@register_formula("aten._transformer_encoder_layer_fwd")
def _encoder_layer(call: Call) -> int:
    x = call.shape(0)
    feed_forward = 2 * prod(x[:-1]) * (prod(call.shape(14)) + prod(call.shape(16)))
    return _multi_head(x, x, int(call.arg(1))) + feed_forward


# -- recurrent layers ----------------------------------------------------------------------------------


@register_formula("aten.mkldnn_rnn_layer")
def _rnn_layer(call: Call) -> int:
    return 2 * prod(call.shape(0)[:-1]) * (prod(call.shape(1)) + prod(call.shape(2)))


@register_formula("aten.mkldnn_rnn_layer_backward")
def _rnn_layer_backward(call: Call) -> Flops:
    """Gradients of both weights, of the state, and of the input, which the kernel makes even if nobody wants it."""
    steps, of_input, of_state = 2 * prod(call.shape(0)[:-1]), prod(call.shape(1)), prod(call.shape(2))
    needed = 1 if call.uses("0") else 0
    return Flops(steps * (2 * of_state + (1 + needed) * of_input), steps * 2 * (of_state + of_input))


def _recurrent_weights(shapes: list[Shape]) -> int:
    return sum(prod(shape) for shape in shapes if len(shape) == 2)


@register_formula("aten._cudnn_rnn", "aten.miopen_rnn")
def _cudnn_rnn(call: Call) -> int:
    return 2 * prod(call.shape(0)[:-1]) * _recurrent_weights(call.shapes(1))


@register_formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward")
def _cudnn_rnn_backward(call: Call) -> int:
    return 4 * prod(call.shape(0)[:-1]) * _recurrent_weights(call.shapes(1))


@register_formula("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def _whole_recurrent(call: Call) -> int:
    return 2 * prod(call.shape(0)[:-1]) * _recurrent_weights(call.shapes(2))
