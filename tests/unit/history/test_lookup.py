"""Every way to name an operation, and what is said when a name does not work."""

from __future__ import annotations

import numpy
import pytest

from tests.unit.history.make_history import (
    bare_history,
    build_net,
    nested_record,
    shared_record,
    split_record,
)
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.errors import LookupKeyError
from torcheer.history import LayerView, ModelHistory, OpView
from torcheer.record.model import Record, Run


def error_of(history: ModelHistory, key: object) -> str:
    with pytest.raises(LookupKeyError) as caught:
        history[key]  # type: ignore[call-overload]
    assert key not in history
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "conv2d_1_1",
        "conv2d_1",
        "conv2d_1_1:1",
        "conv2d_1:1",
        "features.0",
        "features.0:1",
        1,
        -6,
        numpy.int64(1),
    ],
)
def test_all_names_of_an_operation_give_the_same(key: object) -> None:
    history = bare_history(small_record())
    view = history[key]  # type: ignore[call-overload]
    assert isinstance(view, OpView)
    assert view == history["conv2d_1_1"]
    assert hash(view) == hash(history[1])
    assert key in history
    assert view != history[2]


def test_a_module_means_the_operation_that_made_its_output() -> None:
    history = bare_history(small_record())
    assert history["features"].label == "maxpool2d_1_3"
    assert history["features.2"] == history["features"]


@pytest.mark.parametrize("make", [small_record, loop_record, make_record, split_record, nested_record])
def test_every_key_shown_gives_back_its_operation(make: object) -> None:
    history = bare_history(make())  # type: ignore[operator]
    for view in history:
        assert view.lookup_keys
        for key in view.lookup_keys:
            assert history[key] == view
    for layer in history.layers:
        for key in layer.lookup_keys:
            assert history[key] == layer
    for key in history._ipython_key_completions_():
        assert key in history


def test_lookup_keys_are_listed_as_in_the_seed() -> None:
    assert bare_history(small_record())[1].lookup_keys == [
        -6,
        1,
        "conv2d_1",
        "conv2d_1:1",
        "conv2d_1_1",
        "conv2d_1_1:1",
        "features.0",
        "features.0:1",
    ]


def test_slices_give_lists() -> None:
    history = bare_history(small_record())
    assert [view.label for view in history[1:3]] == ["conv2d_1_1", "relu_1_2"]
    assert history[-1:] == [history["output_1_6"]]
    assert len(history[:]) == len(history) == 7


def test_a_layer_with_several_passes() -> None:
    history = bare_history(loop_record())
    layer = history["add_1"]
    assert isinstance(layer, LayerView)
    assert layer == history["add_1_1"] == history.layers[1] == history["add_1:2"].layer
    assert list(layer) == [history[1], history[2], history[3]]
    assert history["add_1_1:3"] == history[3]
    assert layer in history


def test_a_module_called_by_a_loop_is_its_layer() -> None:
    history = bare_history(shared_record())
    assert history["cell"] == history["linear_1"]
    assert history["tied"] == history["linear_1"]
    assert history["cell:2"] == history["linear_1:2"] == history["tied:2"]


def test_a_module_called_from_different_places_needs_a_call() -> None:
    history = bare_history(shared_record(num_calls=2, one_layer=False))
    assert error_of(history, "cell") == "Module 'cell' was called 2 times. Ask for one call: 'cell:1', 'cell:2'"
    assert history["cell:2"].label == "linear_2_2"


def test_a_module_whose_loop_gives_only_its_last_pass_is_not_the_layer() -> None:
    build, x = build_net()
    build.module("loop", "Loop", 0)
    for _ in range(2):
        build.enter(1, build.site(5))
        for _ in range(2):
            x = build.op("add", "torch.add", (2, 3), (x,), site=build.site(9))
        build.leave(x)
    build.output(x)
    build.leave(x)
    build.layers(((1, 2, 3, 4),))
    history = bare_history(build.record)
    assert history["loop:1"] == history["add_1:2"]
    assert error_of(history, "loop") == "Module 'loop' was called 2 times. Ask for one call: 'loop:1', 'loop:2'"


def test_several_outputs_of_one_operation_are_that_operation() -> None:
    history = bare_history(split_record())
    assert history["halves"] == history["chunk_1"]


def test_a_param_is_no_layer() -> None:
    record = small_record()
    record.params[1].kind, record.params[2].aliases = "buffer", ("tied.weight",)
    history = bare_history(record)
    assert error_of(history, "features.0.weight") == (
        "'features.0.weight' is a parameter, not a layer or module. Use history.params['features.0.weight']"
    )
    assert error_of(history, "features.0.bias").startswith("'features.0.bias' is a buffer, not a layer")
    assert error_of(history, "tied.weight").endswith("Use history.params['tied.weight']")
    assert history.params["tied.weight"] == history.params["classifier.weight"]
    assert "features.0.weight" not in history


def test_a_module_that_returns_tensors_of_several_operations() -> None:
    build, x = build_net()
    build.module("pair", "Pair", 0)
    build.enter(1, build.site(5))
    a = build.op("relu", "torch.relu", (2, 3), (x,))
    b = build.op("add", "torch.add", (2, 3), (x,))
    build.leave(a, b)
    build.leave(a)
    build.layers()
    assert error_of(bare_history(build.record), "pair") == (
        "Module 'pair' returns tensors of several operations. Ask for one of them: 'relu_1_1', 'add_1_2'"
    )


def test_a_short_label_that_is_also_a_module_is_refused() -> None:
    build, x = build_net()
    build.module("relu_1", "ReLU", 0)
    first = build.op("relu", "torch.relu", (2, 3), (x,))
    build.enter(1, build.site(5))
    second = build.op("relu", "torch.relu", (2, 3), (first,))
    build.leave(second)
    build.leave(second)
    build.layers()
    history = bare_history(build.record)
    assert error_of(history, "relu_1") == (
        "'relu_1' is short for the layer relu_1_1 and also the address of a module that ends in another "
        "operation. Ask for one of them: 'relu_1_1', 'relu_2_2'"
    )
    assert "relu_1" not in history["relu_1_1"].lookup_keys


def test_a_short_label_that_is_also_the_same_operations_module_works() -> None:
    build, x = build_net()
    build.module("relu_1", "ReLU", 0)
    build.enter(1, build.site(5))
    only = build.op("relu", "torch.relu", (2, 3), (x,))
    build.leave(only)
    build.leave(only)
    build.layers()
    assert bare_history(build.record)["relu_1"].label == "relu_1_1"


def test_a_misspelt_key_lists_near_misses() -> None:
    history = bare_history(small_record())
    assert error_of(history, "classifer") == (
        "No layer, operation or module of this run is called 'classifer'. Did you mean 'classifier'?"
    )
    assert error_of(history, "con2d_1") == (
        "No layer, operation or module of this run is called 'con2d_1'. Did you mean 'conv2d_1', 'conv2d_1_1'?"
    )
    assert error_of(history, "qqqqqq") == (
        "No layer, operation or module of this run is called 'qqqqqq'. "
        "Look in history.layer_labels, or in list(history.modules)"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("conv2d_1:2", "'conv2d_1' has one pass, there is no pass '2'. Ask for 'conv2d_1:1'"),
        ("conv2d_1:x", "'conv2d_1' has one pass, there is no pass 'x'. Ask for 'conv2d_1:1'"),
        ("features.0:2", "'features.0' has one call, there is no call '2'. Ask for 'features.0:1'"),
        ("add_1:4", "'add_1' has 3 passes, there is no pass '4'. Ask for 'add_1:1' to 'add_1:3'"),
        (99, "There is no operation 99. Give one from 0 to 9, or from -10 to -1."),
        (-11, "There is no operation -11. Give one from 0 to 9, or from -10 to -1."),
        (True, "True is no key. Give a layer's label, a module's address, a position or a slice"),
        (1.5, "1.5 is no key. Give a layer's label, a module's address, a position or a slice"),
        (None, "None is no key. Give a layer's label, a module's address, a position or a slice"),
    ],
)
def test_keys_that_do_not_work(key: object, message: str) -> None:
    assert error_of(bare_history(make_record()), key) == message


def test_numpy_bool_is_no_position() -> None:
    assert "is no key" in error_of(bare_history(small_record()), numpy.bool_(True))


def test_a_module_that_was_not_called() -> None:
    record = small_record()
    record.modules[1].address = "layers"
    record.calls = [call for call in record.calls if call.module != 1]
    for index, call in enumerate(record.calls):
        call.index, call.parent = index, None if call.parent is None else 0
    for op in record.ops:
        op.call = 0
    history = bare_history(record)
    assert error_of(history, "layers") == "Module 'layers' exists but was not called in this run. Take another module"
    record.modules[1].address = "features"
    assert error_of(bare_history(record), "features") == (
        "Module 'features' exists but was not called in this run. "
        "Ask for one of its modules that were: 'features.0', 'features.1', 'features.2'"
    )


def test_a_module_that_returned_no_tensor() -> None:
    build, x = build_net()
    build.module("count", "Count", 0)
    build.enter(1, build.site(5))
    build.leave()
    build.leave(x)
    build.layers()
    expected = (
        "Module 'count' was called but returned no tensor made by a recorded operation. See history.modules['count']"
    )
    assert error_of(bare_history(build.record), "count") == expected
    assert error_of(bare_history(build.record), "count:1") == expected


def test_an_operation_inside_another_has_a_name_but_no_position() -> None:
    history = bare_history(nested_record())
    inner = history["double_1_1"].inner
    assert [view.label for view in inner] == ["double_1_1/mul_1", "double_1_1/mul_2"]
    assert history["double_1_1/mul_2"] == inner[1]
    assert inner[1].lookup_keys == ["double_1_1/mul_2"]
    assert [view.label for view in history] == ["input_1_0", "double_1_1", "relu_1_2", "output_1_3"]


def test_an_empty_record() -> None:
    history = bare_history(Record(Run("Empty")))
    assert len(history) == 0
    assert (
        error_of(history, 0) == "There is no operation 0. This run recorded no operations. Record a call of the model."
    )
    assert "Layers:\n\t\tnone" in str(history)


def test_other_recordings_views_are_not_in_it() -> None:
    history, other = bare_history(small_record()), bare_history(small_record())
    assert history[0] in history
    assert other[0] not in history
    assert other[0] != history[0]
