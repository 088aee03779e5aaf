"""Equal models beyond the four networks: what people write, each in both frameworks, with no mistake in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
import torch

from tests.paddle import equal_models as nets

pnn, tnn = paddle.nn, torch.nn


def evaluated(model: Any) -> Any:
    model.eval()
    return model


def dropping(nn: Any, p: float) -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(p), nn.ReLU(), nn.Linear(8, 2))


class EqualPair(NamedTuple):
    """One model in both frameworks, and an input."""

    name: str
    paddle: Callable[[], Any]
    torch: Callable[[], Any]
    inputs: Any


_source = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return _source.standard_normal(shape).astype("float32")


EQUAL_PAIRS = [
    EqualPair("fused projections", nets.PaddleVit, nets.TorchVit, numbers(2, 5, 16)),
    EqualPair("attention", nets.PaddleAttended, nets.TorchAttended, numbers(2, 5, 16)),
    EqualPair("tied embedding", nets.PaddleTied, nets.TorchTied, _source.integers(0, 20, (3, 4))),
    EqualPair("inverted residual", nets.PaddleInverted, nets.TorchInverted, numbers(4, 4, 8, 8)),
    EqualPair("cell in a loop", nets.PaddleDecoder, nets.TorchDecoder, numbers(2, 4, 6)),
    EqualPair("dicts", nets.PaddleDicts, nets.TorchDicts, {"x": numbers(2, 4), "y": numbers(2, 5)}),
    EqualPair("no parameters", nets.PaddlePlain, nets.TorchPlain, numbers(2, 4)),
    EqualPair("frozen", nets.PaddleFrozen, nets.TorchFrozen, numbers(2, 4)),
    EqualPair(
        "dropout in eval", lambda: evaluated(dropping(pnn, 0.5)), lambda: evaluated(dropping(tnn, 0.5)), numbers(2, 4)
    ),
    EqualPair("dropout of nothing", lambda: dropping(pnn, 0.0), lambda: dropping(tnn, 0.0), numbers(2, 4)),
    EqualPair("shared layers", nets.PaddleLoop, nets.TorchLoop, numbers(4, 3, 6, 6)),
    EqualPair("other names", nets.PaddleMixer, nets.TorchMixer, numbers(2, 5, 8)),
    EqualPair("text", nets.PaddleTextCnn, nets.TorchTextCnn, _source.integers(0, 30, (3, 9))),
    EqualPair("own parameters", nets.PaddleOwn, nets.TorchOwn, numbers(2, 3, 4)),
    EqualPair(
        "double precision", nets.PaddleDouble, lambda: tnn.Sequential(tnn.Linear(4, 4)).double(), _source.random((2, 4))
    ),
    EqualPair("pixel shuffle", nets.PaddleShuffle, nets.TorchShuffle, numbers(2, 3, 4, 4)),
    EqualPair(
        "one level more",
        nets.PaddleOuter,
        lambda: tnn.Sequential(tnn.Linear(4, 4), tnn.ReLU(), tnn.Linear(4, 4)),
        numbers(2, 4),
    ),
    EqualPair("two recurrent layers", nets.PaddleTwoRecurrent, nets.TorchTwoRecurrent, numbers(2, 5, 4)),
]
