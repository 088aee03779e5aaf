"""Layers of Paddle and PyTorch that are the same: what the correspondence table must carry over both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
import torch

pnn, tnn = paddle.nn, torch.nn


class LayerPair(NamedTuple):
    """One kind of layer in both frameworks, and an input for it."""

    name: str
    paddle: Callable[[], Any]
    torch: Callable[[], Any]
    inputs: Callable[[], tuple[np.ndarray, ...]]
    call: str = ""  # how it is called where the frameworks do not agree: "cell", "attention"


class PaddleCall(pnn.Layer):
    """A layer with arguments and results as the pairs have them."""

    def __init__(self, layer: Any, call: str) -> None:
        super().__init__()
        self.inner = layer
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        if self.call == "cell":
            out, _ = self.inner(inputs[0])
            return out
        return self.inner(*inputs)


class TorchCall(tnn.Module):
    """The same for PyTorch."""

    def __init__(self, module: Any, call: str) -> None:
        super().__init__()
        self.inner = module
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        if self.call == "cell":
            out = self.inner(inputs[0])
            return out[0] if isinstance(out, tuple) else out
        if self.call == "attention":
            return self.inner(*inputs, need_weights=False)[0]
        return self.inner(*inputs)


def numbers(*shapes: tuple[int, ...]) -> Callable[[], tuple[np.ndarray, ...]]:
    """Inputs of these shapes, always the same."""

    def make() -> tuple[np.ndarray, ...]:
        source = np.random.default_rng(0)
        return tuple(source.standard_normal(shape).astype("float32") for shape in shapes)

    return make


def indices() -> tuple[np.ndarray, ...]:
    return (np.array([[0, 3, 2], [5, 1, 0]]),)


def _recurrent(kind: str, torch_kind: str, **options: Any) -> LayerPair:
    theirs = {"num_layers": options.get("num_layers", 1), "bidirectional": "direction" in options}
    name = " ".join([kind, *(f"{key}={value}" for key, value in options.items())])
    return LayerPair(
        name,
        lambda: getattr(pnn, kind)(4, 5, **options),
        lambda: getattr(tnn, torch_kind)(4, 5, batch_first=True, **theirs),
        numbers((2, 3, 4)),
    )


def _convolutions() -> list[LayerPair]:
    pairs = []
    for n in (1, 2, 3):
        space = (6,) * n
        for label, options in (("", {}), (" groups", {"groups": 2}), (" strided", {"stride": 2, "padding": 1})):
            pairs.append(
                LayerPair(
                    f"Conv{n}D{label}",
                    lambda n=n, o=options: getattr(pnn, f"Conv{n}D")(4, 6, 3, **o),
                    lambda n=n, o=options: getattr(tnn, f"Conv{n}d")(4, 6, 3, **o),
                    numbers((2, 4, *space)),
                )
            )
        pairs.append(
            LayerPair(
                f"Conv{n}DTranspose",
                lambda n=n: getattr(pnn, f"Conv{n}DTranspose")(4, 6, 3, stride=2, groups=2),
                lambda n=n: getattr(tnn, f"ConvTranspose{n}d")(4, 6, 3, stride=2, groups=2),
                numbers((2, 4, *(4,) * n)),
            )
        )
    pairs.append(
        LayerPair(
            "Conv2D no bias",
            lambda: pnn.Conv2D(4, 6, 3, bias_attr=False),
            lambda: tnn.Conv2d(4, 6, 3, bias=False),
            numbers((2, 4, 6, 6)),
        )
    )
    return pairs


def _norms() -> list[LayerPair]:
    pairs = []
    for n in (1, 2, 3):
        shape = (4, 3, *(5,) * n)
        pairs += [
            LayerPair(
                f"BatchNorm{n}D", lambda n=n: getattr(pnn, f"BatchNorm{n}D")(3),
                lambda n=n: getattr(tnn, f"BatchNorm{n}d")(3), numbers(shape),
            ),
            LayerPair(
                f"InstanceNorm{n}D", lambda n=n: getattr(pnn, f"InstanceNorm{n}D")(3),
                lambda n=n: getattr(tnn, f"InstanceNorm{n}d")(3, affine=True), numbers(shape),
            ),
        ]  # fmt: skip
    return [
        *pairs,
        LayerPair("BatchNorm", lambda: pnn.BatchNorm(3), lambda: tnn.BatchNorm2d(3), numbers((4, 3, 5, 5))),
        LayerPair("LayerNorm", lambda: pnn.LayerNorm(6), lambda: tnn.LayerNorm(6), numbers((2, 3, 6))),
        LayerPair("LayerNorm 2 axes", lambda: pnn.LayerNorm([3, 6]), lambda: tnn.LayerNorm([3, 6]), numbers((2, 3, 6))),
        LayerPair("GroupNorm", lambda: pnn.GroupNorm(2, 4), lambda: tnn.GroupNorm(2, 4), numbers((2, 4, 5, 5))),
    ]


def _attention() -> list[LayerPair]:
    x = (2, 3, 8)
    plain = {"dropout": 0.0, "batch_first": True}
    return [
        LayerPair(
            "MultiHeadAttention", lambda: pnn.MultiHeadAttention(8, 2),
            lambda: tnn.MultiheadAttention(8, 2, batch_first=True), numbers(x, x, x), "attention",
        ),
        LayerPair(
            "MultiHeadAttention kdim, vdim", lambda: pnn.MultiHeadAttention(8, 2, kdim=6, vdim=4),
            lambda: tnn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True),
            numbers(x, (2, 5, 6), (2, 5, 4)), "attention",
        ),
        LayerPair(
            "TransformerEncoderLayer", lambda: pnn.TransformerEncoderLayer(8, 2, 16, dropout=0.0),
            lambda: tnn.TransformerEncoderLayer(8, 2, 16, **plain), numbers(x),
        ),
        LayerPair(
            "TransformerEncoderLayer pre-norm gelu",
            lambda: pnn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", normalize_before=True),
            lambda: tnn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True, **plain),
            numbers(x),
        ),
        LayerPair(
            "TransformerEncoder",
            lambda: pnn.TransformerEncoder(pnn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2),
            lambda: tnn.TransformerEncoder(tnn.TransformerEncoderLayer(8, 2, 16, **plain), 2),
            numbers(x),
        ),
        LayerPair(
            "TransformerDecoderLayer", lambda: pnn.TransformerDecoderLayer(8, 2, 16, dropout=0.0),
            lambda: tnn.TransformerDecoderLayer(8, 2, 16, **plain), numbers(x, (2, 5, 8)),
        ),
        LayerPair(
            "Transformer", lambda: pnn.Transformer(8, 2, 1, 1, 16, dropout=0.0),
            lambda: tnn.Transformer(8, 2, 1, 1, 16, **plain), numbers(x, (2, 5, 8)),
        ),
    ]  # fmt: skip


LAYER_PAIRS: list[LayerPair] = [
    LayerPair("Linear", lambda: pnn.Linear(6, 4), lambda: tnn.Linear(6, 4), numbers((2, 6))),
    LayerPair("Linear square", lambda: pnn.Linear(6, 6), lambda: tnn.Linear(6, 6), numbers((2, 6))),
    LayerPair(
        "Linear no bias",
        lambda: pnn.Linear(6, 4, bias_attr=False),
        lambda: tnn.Linear(6, 4, bias=False),
        numbers((2, 3, 6)),
    ),
    LayerPair("Bilinear", lambda: pnn.Bilinear(3, 4, 5), lambda: tnn.Bilinear(3, 4, 5), numbers((2, 3), (2, 4))),
    LayerPair("Embedding", lambda: pnn.Embedding(6, 4), lambda: tnn.Embedding(6, 4), indices),
    # Not on the input itself: Paddle 3.3.1 crashes in the backward of a PReLU whose input needs no gradient.
    LayerPair(
        "PReLU",
        lambda: pnn.Sequential(pnn.Linear(4, 4), pnn.PReLU(3)),
        lambda: tnn.Sequential(tnn.Linear(4, 4), tnn.PReLU(3)),
        numbers((2, 3, 4)),
    ),
    *_convolutions(),
    *_norms(),
    _recurrent("SimpleRNN", "RNN"),
    _recurrent("LSTM", "LSTM"),
    _recurrent("LSTM", "LSTM", num_layers=2, direction="bidirect"),
    _recurrent("GRU", "GRU"),
    _recurrent("GRU", "GRU", num_layers=2, direction="bidirect"),
    LayerPair("SimpleRNNCell", lambda: pnn.SimpleRNNCell(4, 5), lambda: tnn.RNNCell(4, 5), numbers((2, 4)), "cell"),
    LayerPair("LSTMCell", lambda: pnn.LSTMCell(4, 5), lambda: tnn.LSTMCell(4, 5), numbers((2, 4)), "cell"),
    LayerPair("GRUCell", lambda: pnn.GRUCell(4, 5), lambda: tnn.GRUCell(4, 5), numbers((2, 4)), "cell"),
    *_attention(),
]


def make(pair: LayerPair) -> tuple[Any, Any]:
    """The pair as models that are called alike."""
    layer, module = pair.paddle(), pair.torch()
    if pair.call not in {"cell", "attention"}:
        return layer, module
    return PaddleCall(layer, pair.call), TorchCall(module, pair.call)
