"""What fused ops of the reference compute on the way, so that a rewrite step by step can be followed through them.

One side's layer norm is the other's mean, difference, square, root and product. The formulas give the reference the
same steps, and the frontier moves past those that agree to the one that does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torcheer.diff.align import Alignment, Match
from torcheer.diff.arrays import Array
from torcheer.diff.graph import Graph, Node
from torcheer.diff.layout import find_layout
from torcheer.diff.sketch import Sketches, sketch

_FURTHEST = 60  # ops of B after the frontier that may be steps of one op of A

Steps = list[Array]


def follow(alignment: Alignment, node_a: Node, node_b: Node) -> bool:
    """Match values of B after a frontier with the steps of one op of A; whether any was found."""
    steps = steps_of(alignment.a, node_a)
    if not steps:
        return False
    close = alignment.close(node_a.outputs[0])
    table = Sketches({place: sketch(step) for place, step in enumerate(steps)})
    found = False
    for node in alignment.b.nodes[node_b.index : node_b.index + _FURTHEST]:
        for value in node.outputs:
            cls = alignment.b.class_of(value)
            wanted = alignment.sketches[1].get(cls)
            if cls in alignment.by_b or wanted is None:
                continue
            member = alignment.b.content_member(cls)
            assert member is not None
            for place in table.like(wanted, close.rms):
                layout = find_layout(steps[place], alignment.b.array(member), close)
                if layout is not None:
                    source = alignment.a.class_of(node_a.inputs[0])
                    alignment.by_b[cls] = Match(source, cls, layout, (node_a.inputs[0], member))
                    found = True
                    break
    return found


def steps_of(graph: Graph, node: Node) -> Steps:
    """What a fused op computes on the way; nothing where no formula is known."""
    formula = _FORMULAS.get(node.name)
    if formula is None or node.op is None or not node.outputs:
        return []
    arrays = _arrays(graph, node)
    if arrays is None:
        return []
    with np.errstate(all="ignore"):
        return formula(arrays, node.op.args)


def without_bias(graph: Graph, node: Node) -> Steps:
    """What a linear op returns but for its bias, which the other side may add in a step of its own."""
    place = _BIASES.get(node.name)
    arrays = _arrays(graph, node) if place is not None and node.op is not None and node.outputs else None
    if arrays is None or place is None or len(arrays) <= place or not graph.has_contents(node.outputs[0]):
        return []
    result, bias = graph.array(node.outputs[0]), arrays[place]
    if bias is None or bias.ndim != 1:
        return []
    return [result - (bias.reshape(-1, *(1,) * (result.ndim - 2)) if "conv" in node.name else bias)]


_BIASES = {"addmm": 0, "linear": 2, "convolution": 2, "_convolution": 2, "mkldnn_convolution": 2}


def _arrays(graph: Graph, node: Node) -> list[Array | None] | None:
    """Contents of the arguments, in their places; None for those that are no tensors."""
    assert node.op is not None
    values = set(node.inputs)
    found: list[Array | None] = []
    for argument in node.op.args:
        is_tensor = type(argument).__name__ == "Ref" and int(argument) in values
        if is_tensor and not graph.has_contents(int(argument)):
            return None
        found.append(graph.array(int(argument)).astype(np.float64) if is_tensor else None)
    return found


def _norm(x: Array, axes: tuple[int, ...], eps: float, gain: Array | None, bias: Array | None) -> Steps:
    mean = x.mean(axes, keepdims=True)
    return [mean, *_scaled(x, mean, x.var(axes, keepdims=True), eps, gain, bias)]


def _scaled(x: Array, mean: Array, var: Array, eps: float, gain: Array | None, bias: Array | None) -> Steps:
    centred, root = x - mean, np.sqrt(var + eps)
    steps = [centred, centred**2, var, var + eps, root, 1 / root, centred / root]
    if gain is not None:
        steps += [centred / root * gain, gain / root, centred * gain, centred * (gain / root)]
        if bias is not None:
            steps += [bias - mean * gain / root, x * (gain / root)]
    return steps


def _layer_norm(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:
    x, shape, gain, bias, eps = arrays[0], args[1], arrays[2], arrays[3], args[4]
    assert x is not None
    return _norm(x, tuple(range(x.ndim - len(shape), x.ndim)), eps, gain, bias)


def _batch_norm(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:
    x, gain, bias, mean, var = arrays[:5]
    assert x is not None
    wide = (1, -1, *(1,) * (x.ndim - 2))
    shaped = [None if one is None else one.reshape(wide) for one in (gain, bias, mean, var)]
    eps = next((arg for arg in reversed(args) if isinstance(arg, float)), 1e-5)
    uses_batch = len(args) > 5 and args[5] is True
    if uses_batch or shaped[2] is None or shaped[3] is None:
        return _norm(x, (0, *range(2, x.ndim)), eps, shaped[0], shaped[1])
    return _scaled(x, shaped[2], shaped[3], eps, shaped[0], shaped[1])


def _group_norm(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:
    x, gain, bias = arrays[:3]
    assert x is not None
    groups, eps = args[6], args[7]
    flat = x.reshape(x.shape[0], groups, -1)
    steps = _norm(flat, (2,), eps, None, None)
    if gain is not None and bias is not None:
        wide = (1, -1, *(1,) * (x.ndim - 2))
        steps.append(steps[7].reshape(x.shape) * gain.reshape(wide))
    return steps


def _rms_norm(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:
    x, gain = arrays[0], arrays[2] if len(arrays) > 2 else None
    assert x is not None
    eps = args[3] if len(args) > 3 and args[3] is not None else 2.0**-23
    mean = (x**2).mean(-1, keepdims=True)
    root = np.sqrt(mean + eps)
    steps = [x**2, mean, mean + eps, root, 1 / root, x / root]
    return steps if gain is None else [*steps, x / root * gain]


def _softmax(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:
    x, axis = arrays[0], args[1]
    assert x is not None
    top = x.max(axis, keepdims=True)
    powers = np.exp(x - top)
    total = powers.sum(axis, keepdims=True)
    return [top, x - top, powers, total, np.exp(x), np.exp(x).sum(axis, keepdims=True), np.log(total)]


def _silu(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:  # noqa: ARG001 - formulas are called alike
    x = arrays[0]
    assert x is not None
    return [np.exp(-x), 1 + np.exp(-x), 1 / (1 + np.exp(-x))]


def _gelu(arrays: list[Array | None], args: tuple[Any, ...]) -> Steps:  # noqa: ARG001 - as above
    x = arrays[0]
    assert x is not None
    inner = x + 0.044715 * x**3
    return [x**2, x**3, 0.044715 * x**3, inner, (2 / np.pi) ** 0.5 * inner, x / 2**0.5]


_FORMULAS: dict[str, Callable[[list[Array | None], tuple[Any, ...]], Steps]] = {
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": _rms_norm,
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
    "silu": _silu,
    "gelu": _gelu,
}
