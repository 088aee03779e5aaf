"""The correspondence table: each kind of layer carried over both ways, with its gradients and a step of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import torcheer as tl
from tests.paddle.layer_pairs import LAYER_PAIRS, LayerPair, make

pytestmark = pytest.mark.filterwarnings(
    # Said by Paddle whenever a BatchNorm trains.
    "ignore:When training, we now always track global mean:UserWarning",
    # Said by PyTorch of an encoder of pre-norm layers.
    "ignore:enable_nested_tensor is True:UserWarning",
)


@pytest.mark.parametrize("pair", LAYER_PAIRS, ids=lambda pair: pair.name)
@pytest.mark.parametrize("order", ["paddle to torch", "torch to paddle"])
def test_a_layer_is_carried_over(pair: LayerPair, order: str) -> None:
    models = make(pair)
    if order == "torch to paddle":
        models = models[::-1]
    before = [[tensor.numpy().copy() for tensor in values_of(model)] for model in models]
    inputs = pair.inputs()
    report = tl.autodiff(*models, inputs if len(inputs) > 1 else inputs[0], options={"atol": 1e-5, "steps": 2})
    assert report, str(report)
    assert report.max_output_diff <= 1e-5
    assert report.num_forward > 0
    assert report.num_backward > 0
    after = [[tensor.numpy() for tensor in values_of(model)] for model in models]
    for old, new in zip(before, after, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(old, new, strict=True)), (
            "autodiff leaves the models as they were"
        )


def values_of(model: Any) -> list[Any]:
    return [tensor.detach() for tensor in model.state_dict().values()]


def test_the_table_has_at_least_25_kinds() -> None:
    kinds = {pair.name.split()[0] for pair in LAYER_PAIRS}
    assert len(kinds) >= 25, sorted(kinds)
