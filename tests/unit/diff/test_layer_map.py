"""Which layer of one model is which of the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torcheer.diff import forms
from torcheer.diff.layer_map import Known, map_layers
from torcheer.diff.param_map import ParamMap
from torcheer.diff.side import Leaf
from torcheer.errors import ComparisonError

forms.register("other", "Linear", forms.Form("linear", transforms={"weight": "transpose"}))
forms.register(
    "other",
    "MultiHeadAttention",
    forms.Form("multiheadattention", transforms={f"{part}_proj.weight": "transpose" for part in "qkv"}),
)
forms.register("other", "LayerNorm", forms.Form("layernorm", transforms={"weight": "flatten"}))


def linear(address: str, given: int = 4, made: int = 4, framework: str = "torch", bias: bool = True) -> Leaf:
    shape = (made, given) if framework == "torch" else (given, made)
    return Leaf(address, "Linear", tensors={"weight": shape, **({"bias": (made,)} if bias else {})})


def known(framework: str, *leaves: Leaf, called: str | None = None, weights: Any = None) -> Known:
    order = None if called is None else lambda: called.split()
    return Known(framework, leaves, weights or {}, order)


def layers(found: ParamMap) -> dict[str, str]:
    return dict(found.layers)


def test_names_decide_whatever_the_order() -> None:
    a = known("torch", linear("fc1"), linear("fc2"))
    b = known("other", linear("fc2", framework="other"), linear("fc1", framework="other"))
    assert layers(map_layers(a, b)) == {"fc1": "fc1", "fc2": "fc2"}


def test_names_in_another_spelling_and_synonyms() -> None:
    a = known("torch", linear("norm_1"), linear("multihead_attn.out_proj"))
    b = known("other", linear("cross_attn.out_proj", framework="other"), linear("norm1", framework="other"))
    assert layers(map_layers(a, b)) == {"norm_1": "norm1", "multihead_attn.out_proj": "cross_attn.out_proj"}


def test_names_that_end_alike() -> None:
    a = known("torch", linear("encoder.0.query"), linear("encoder.0.key"))
    b = known("torch", linear("bert.encoder.0.key"), linear("bert.encoder.0.query"))
    assert layers(map_layers(a, b)) == {
        "encoder.0.query": "bert.encoder.0.query",
        "encoder.0.key": "bert.encoder.0.key",
    }


def test_values_decide_where_names_do_not() -> None:
    one, two = np.random.default_rng(0).standard_normal((2, 4, 4))
    bias = np.arange(4.0)
    a = known("torch", linear("p"), linear("q"), weights={
        "p.weight": one, "p.bias": bias, "q.weight": two, "q.bias": bias,
    })  # fmt: skip
    b = known("other", linear("x", framework="other"), linear("y", framework="other"), weights={
        "x.weight": two.T, "x.bias": bias, "y.weight": one.T, "y.bias": bias,
    })  # fmt: skip
    found = map_layers(a, b)
    assert layers(found) == {"p": "y", "q": "x"}
    np.testing.assert_array_equal(found.convert(a.weights)["y.weight"], one.T)


def test_numbers_that_every_layer_begins_with_decide_nothing() -> None:
    ones = {f"{name}.{own}": np.ones(shape) for name in "pqxy" for own, shape in (("weight", (4, 4)), ("bias", (4,)))}
    a = known("torch", linear("p"), linear("q"), called="p q", weights=ones)
    b = known("torch", linear("x"), linear("y"), called="x y", weights=ones)
    assert layers(map_layers(a, b)) == {"p": "x", "q": "y"}


def test_order_decides_where_definition_and_calls_agree() -> None:
    a, b = (
        known("torch", linear("p"), linear("q"), called="p q"),
        known("torch", linear("x"), linear("y"), called="x y"),
    )
    assert layers(map_layers(a, b)) == {"p": "x", "q": "y"}


def test_what_nothing_decides_is_an_error_with_the_candidates() -> None:
    a = known("torch", linear("p"), linear("q"), called="p q")
    b = known("other", linear("x", framework="other"), linear("y", framework="other"), called="y x")
    with pytest.raises(ComparisonError) as caught:
        map_layers(a, b)
    assert str(caught.value) == (
        "It cannot be told which of 2 layers Linear of one shape is which. "
        "Defined in the first model (torch): p, q. Defined in the second model (other): x, y. "
        "Called in the first model (torch): p, q. Called in the second model (other): y, x. "
        "The two orders do not agree, and neither names nor values decide. "
        "Pass layer_map={'p': 'y', ...}: layers of the first model to those of the second."
    )
    assert layers(map_layers(a, b, {"p": "y", "q": "x"})) == {"p": "y", "q": "x"}
    assert layers(map_layers(a, b, {"p": "x"})) == {"p": "x", "q": "y"}


def test_without_an_input_the_order_of_definition_is_not_enough() -> None:
    with pytest.raises(ComparisonError, match="Pass inp=, or layer_map="):
        map_layers(known("torch", linear("p"), linear("q")), known("torch", linear("x"), linear("y")))


def test_a_layer_map_names_blocks_too() -> None:
    a = known("torch", linear("enc.0.fc"), linear("enc.1.fc"))
    b = known("torch", linear("dec.1.fc"), linear("dec.0.fc"))
    assert layers(map_layers(a, b, {"enc.0": "dec.1", "enc.1": "dec.0"})) == {
        "enc.0.fc": "dec.1.fc",
        "enc.1.fc": "dec.0.fc",
    }


@pytest.mark.parametrize(
    ("layer_map", "text"),
    [
        ({"fc9": "fc1"}, "layer_map: the first model (torch) has no layer 'fc9'. Did you mean 'fc1'"),
        ({"fc1": "fd1"}, "layer_map: the second model (other) has no layer 'fd1'. Did you mean 'fc1'"),
    ],
)
def test_a_layer_map_with_a_wrong_name(layer_map: dict[str, str], text: str) -> None:
    with pytest.raises(ComparisonError) as caught:
        map_layers(known("torch", linear("fc1")), known("other", linear("fc1", framework="other")), layer_map)
    assert text in str(caught.value)


def test_one_tensor_of_three_projections_both_ways() -> None:
    joined = Leaf("attn", "MultiheadAttention", tensors={"in_proj_weight": (12, 4), "in_proj_bias": (12,)})
    split = Leaf(
        "attn",
        "MultiHeadAttention",
        tensors={f"{part}_proj.{own}": shape for part in "qkv" for own, shape in (("weight", (4, 4)), ("bias", (4,)))},
    )
    weights = {"attn.in_proj_weight": np.arange(48.0).reshape(12, 4), "attn.in_proj_bias": np.arange(12.0)}
    there = map_layers(known("torch", joined), known("other", split))
    assert there.is_complete
    converted = there.convert(weights)
    np.testing.assert_array_equal(converted["attn.k_proj.weight"], weights["attn.in_proj_weight"][4:8].T)
    back = map_layers(known("other", split), known("torch", joined)).convert(converted)
    for name, array in weights.items():
        np.testing.assert_array_equal(back[name], array)


def test_attention_against_projections_of_the_users_own() -> None:
    joined = Leaf("attn", "MultiheadAttention", tensors={"in_proj_weight": (12, 4), "in_proj_bias": (12,)})
    own = [linear(f"attn.{part}_proj", framework="other") for part in "qkv"]
    found = map_layers(known("torch", joined), known("other", *own))
    assert found.is_complete
    assert layers(found) == {f"attn.{part}_proj": f"attn.{part}_proj" for part in "qkv"}


def test_a_missing_bias_is_told_and_the_rest_is_mapped() -> None:
    a = known("torch", linear("fc1"), linear("fc2"))
    b = known("other", linear("fc1", framework="other"), linear("fc2", framework="other", bias=False))
    found = map_layers(a, b)
    assert found.is_complete
    assert found.uneven == ["torch's fc2.bias"]
    assert layers(found) == {"fc1": "fc1", "fc2": "fc2"}


def test_shapes_that_only_the_common_form_shares() -> None:
    a = known("torch", Leaf("norm", "LayerNorm", tensors={"weight": (3, 4), "bias": (3, 4)}))
    b = known("other", Leaf("norm", "LayerNorm", tensors={"weight": (12,), "bias": (12,)}))
    found = map_layers(a, b)
    assert [pair.target for pair in found.pairs] == ["norm.weight", "norm.bias"]
    weights = {"norm.weight": np.arange(12.0).reshape(3, 4), "norm.bias": np.zeros((3, 4))}
    np.testing.assert_array_equal(found.convert(weights)["norm.weight"], np.arange(12.0))
    back = map_layers(b, a).convert({"norm.weight": np.arange(12.0)}, {"norm.weight": (3, 4)})
    np.testing.assert_array_equal(back["norm.weight"], weights["norm.weight"])


def test_classes_of_the_users_own_are_known_by_their_tensors() -> None:
    a = known("torch", Leaf("", "MyModule", tensors={"token": (1, 4)}), linear("fc"))
    b = known("other", Leaf("", "MyLayer", tensors={"token": (1, 4)}), linear("fc", framework="other"))
    assert map_layers(a, b).is_complete


def test_what_has_no_counterpart_is_left_over() -> None:
    found = map_layers(
        known("torch", linear("fc1"), linear("fc2", 3)), known("other", linear("fc1", framework="other"))
    )
    assert (found.only_a, found.only_b) == (["fc2.weight", "fc2.bias"], [])


def test_a_map_survives_json() -> None:
    found = map_layers(known("torch", linear("fc1")), known("other", linear("fc1", framework="other", bias=False)))
    assert ParamMap.from_json(found.to_json()) == found
