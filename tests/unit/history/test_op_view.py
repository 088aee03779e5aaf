"""What one operation tells."""

from __future__ import annotations

import numpy
import pytest

from tests.unit.history.make_history import (
    bare_history,
    build_net,
    nested_record,
    save_all,
    saved_history,
    shared_record,
    split_record,
)
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.errors import LookupKeyError, NotSavedError
from torcheer.history import ModelHistory
from torcheer.record.model import Edge, Frame, Gradient, Opaque, Ref, Site


def test_facts() -> None:
    history = bare_history(small_record())
    view = history["conv2d_1"]
    assert (view.label, view.layer_label, view.name) == ("conv2d_1_1", "conv2d_1_1", "conv2d")
    assert (view.function, view.shape, view.dtype, view.device) == (
        "torch.conv2d",
        (1, 4, 8, 8),
        "float32",
        "cpu",
    )
    assert (view.size_bytes, view.time_ns, view.backward_time_ns) == (1024, 1000, None)
    assert (view.pass_index, view.num_passes, view.passes, view.layer) == (1, 1, (view,), view)
    assert view.grad_function == "ConvolutionBackward0"
    assert view.parents == (history["input_1"],)
    assert view.children == (history["relu_1"],)
    assert [param.address for param in view.params] == ["features.0.weight", "features.0.bias"]
    assert view.module == "features.0"
    assert view.module_calls == ("features:1", "features.0:1")
    assert view.output_of == ("features.0:1",)
    assert view.bottom_output_of == "features.0:1"
    assert history["maxpool2d_1"].output_of == ("features.2:1", "features:1")
    assert history["flatten_1"].bottom_output_of is None
    assert [op.function for op in view.aten] == ["aten.convolution.default"]
    assert view.aten[0].owner == view
    assert view.aten[0].module == "features.0"
    assert history["relu_1"].aten[0].parents == view.aten
    assert (history[0].is_input, history[0].is_output) == (True, False)
    assert (history[-1].is_input, history[-1].is_output) == (False, True)


def test_an_output_of_a_module_with_modules_inside_is_not_bottom_level() -> None:
    build, x = build_net()
    outer = build.module("block", "Block", 0)
    inner = build.module("block.norm", "LayerNorm", outer)
    build.enter(outer, build.site(1))
    build.enter(inner, build.site(2))
    x = build.op("layernorm", "torch.layer_norm", (2, 3), (x,))
    build.leave(x)
    x = build.op("relu", "torch.relu", (2, 3), (x,))
    build.leave(x)
    build.leave(x)
    build.layers()
    history = bare_history(build.record)
    assert (history["block"].output_of, history["block"].bottom_output_of) == (("block:1",), None)
    assert history["block.norm"].bottom_output_of == "block.norm:1"


def test_contents() -> None:
    record = small_record()
    payloads = save_all(record)
    history = ModelHistory(record, payloads)
    assert history["conv2d_1"].tensor_contents is payloads["value.5"]
    assert history["conv2d_1"].has_contents
    assert history["output_1"].tensor_contents is history["linear_1"].tensor_contents


def test_save_all_several_outputs() -> None:
    record = split_record()
    payloads = save_all(record)
    view = ModelHistory(record, payloads)["chunk_1"]
    assert view.tensor_contents == (view.tensor(0), view.tensor(1))
    assert view.tensor(1) is payloads["value.2"]
    with pytest.raises(IndexError, match="chunk_1_1 has 2 output tensors, there is no number 2"):
        view.tensor(2)
    del record.saved[2]
    assert not view.has_contents
    with pytest.raises(NotSavedError) as caught:
        view.tensor_contents  # noqa: B018
    assert str(caught.value) == (
        "The contents of output '1' of chunk_1_1 were not saved. Keep it by recording with layers_to_save=['chunk_1_1']"
    )


def test_contents_that_were_not_saved() -> None:
    view = bare_history(small_record())["conv2d_1"]
    assert not view.has_contents
    with pytest.raises(NotSavedError) as caught:
        view.tensor_contents  # noqa: B018
    assert str(caught.value) == (
        "The contents of conv2d_1_1 were not saved. Keep it by recording with layers_to_save=['conv2d_1_1']"
    )


def test_an_inner_operation_cannot_be_asked_for_alone() -> None:
    view = bare_history(nested_record())["double_1_1/mul_1"]
    with pytest.raises(NotSavedError, match=r"recording with layers_to_save='all'$"):
        view.tensor_contents  # noqa: B018
    assert view.owner is not None
    assert view.owner.label == "double_1_1"
    assert (view.num_passes, view.passes, view.position) == (1, (view,), None)


def test_no_tensor_at_all() -> None:
    record = small_record()
    record.ops[4].outputs, record.ops[4].result = (), 3.5
    view = bare_history(record)[4]
    assert (view.shape, view.dtype, view.result, view.has_contents) == (None, None, 3.5, False)
    with pytest.raises(NotSavedError) as caught:
        view.tensor_contents  # noqa: B018
    assert str(caught.value) == "flatten_1_4 returned no tensor but 3.5. Read it from .result."


def test_gradient() -> None:
    record = make_record()
    for gradient in record.gradients:
        gradient.payload = "logits" if gradient.param is None else f"param {gradient.param}"
    history = ModelHistory(record, {"logits": "the gradient", "param 2": "of the weight"})
    view = history["linear_1"]
    assert view.has_gradient
    assert view.gradient == view.grad_contents == "the gradient"
    assert view.backward_time_ns == 2000
    assert [(op.function, op.phase, op.node) for op in view.aten] == [
        ("aten.addmm.default", "forward", None),
        ("aten.mm.default", "backward", "AddmmBackward0"),
    ]
    assert history.params["classifier.weight"].gradient == "of the weight"


def test_gradient_of_several_outputs() -> None:
    record = split_record()
    record.gradients.append(Gradient(1, 2, None, (2, 2), "float32", 16, "g"))
    history = ModelHistory(record, {"g": "second"})
    assert history["chunk_1"].gradient == (None, "second")


def test_a_later_backward_pass_is_seen() -> None:
    record = small_record()
    history = ModelHistory(record, {"a": "first", "b": "second"})
    value = record.ops[1].outputs[0].value
    assert not history["conv2d_1"].has_gradient
    for payload in ("a", "b"):
        record.gradients.append(Gradient(1, value, None, (1, 4, 8, 8), "float32", 1024, payload))
        assert history["conv2d_1"].gradient == history.payloads[payload]


def test_contents_that_could_not_be_kept() -> None:
    class Store(dict[str, object]):
        unsaved = {"value.5": "its layout is sparse_coo"}  # noqa: RUF012

    record = small_record()
    history = ModelHistory(record, Store(save_all(record)))
    del history.payloads["value.5"]  # type: ignore[attr-defined]
    with pytest.raises(NotSavedError) as caught:
        history["conv2d_1"].tensor_contents  # noqa: B018
    assert str(caught.value) == (
        "The contents of conv2d_1_1 are not kept: its layout is sparse_coo. Print the layer for what is known of it."
    )
    assert "\n\t\tnot saved: its layout is sparse_coo\n" in str(history["conv2d_1"])


def test_why_there_is_no_gradient() -> None:
    def why(history: ModelHistory, key: str) -> str:
        with pytest.raises(NotSavedError) as caught:
            history[key].gradient  # noqa: B018
        return str(caught.value)

    assert why(bare_history(small_record()), "conv2d_1") == (
        "conv2d_1_1 has no gradient: no backward pass was recorded. Call history.log_backward(loss)"
    )
    record = make_record()
    assert why(bare_history(record), "input_1") == (
        "input_1_0 has no gradient: none of its outputs requires grad. "
        "Call requires_grad_() on what it reads before the run"
    )
    assert why(bare_history(record), "conv2d_1") == (
        "conv2d_1_1 has no gradient: gradients are kept for saved outputs. "
        "Keep it by recording with layers_to_save=['conv2d_1_1']"
    )
    assert why(saved_history(record), "conv2d_1") == (
        "conv2d_1_1 has no gradient: the recorded backward pass did not reach it. Check that the loss depends on it"
    )


def test_arguments_are_readable() -> None:
    record = small_record()
    conv = record.ops[1]
    x, weight, bias = conv.inputs
    conv.args = (Ref(x), [Ref(weight), {"b": Ref(bias)}], slice(Ref(x), None), Opaque("Generator"), 3)
    conv.kwargs = {"out": Ref(x)}
    view = bare_history(record)[1]
    assert repr(view.args) == (
        "(input_1_0, [features.0.weight, {'b': features.0.bias}], slice(input_1_0, None, None), <Generator>, 3)"
    )
    assert repr(view.kwargs) == "{'out': input_1_0}"
    assert view.args[0].value == x
    assert bare_history(record)[2].kwargs == {}


def test_edges() -> None:
    record = small_record()
    conv = record.ops[1].outputs[0].value
    record.ops[4].parents += (Edge(1, conv, "memory", ""),)
    history = bare_history(record)
    edge = history["flatten_1"].edges[1]
    assert (edge.parent, edge.value.index, edge.how, edge.argument) == (history[1], conv, "memory", "")


def test_source_is_the_users_line() -> None:
    record = small_record()
    torch_frame = Frame("/env/lib/python3.11/site-packages/torch/nn/modules/conv.py", 554, "forward")
    record.sites[record.ops[1].site or 0] = Site((torch_frame,))
    history = bare_history(record)
    # Call of features.0 happens in Sequential at line 250, which this record has as the user's file.
    assert history["conv2d_1"].source == Frame("/home/user/net.py", 250, "forward")
    assert [frame.line for frame in history["conv2d_1"].stack] == [20, 20, 250, 554]
    assert history["input_1"].source is None


def test_source_of_a_model_from_an_installed_package_is_its_line_outside_torch() -> None:
    record = small_record()
    installed = "C:\\env\\Lib\\site-packages\\"
    model = Frame(installed + "transformers\\gpt2.py", 100, "forward")
    inside = Frame(installed + "torch\\nn\\modules\\conv.py", 554, "forward")
    record.sites = [Site((model, inside))] * len(record.sites)
    assert bare_history(record)["conv2d_1"].source == model
    record.sites = [Site((inside,))] * len(record.sites)
    assert bare_history(record)["conv2d_1"].source == inside


def test_a_layer_with_several_passes() -> None:
    history = saved_history(loop_record())
    layer = history["add_1"]
    assert (layer.label, layer.num_passes, len(layer), layer.name) == ("add_1_1", 3, 3, "add")
    assert (layer.shape, layer.dtype, layer.size_bytes, layer.time_ns) == ((2, 3), "float32", 72, 3000)
    assert (layer.function, layer.module, layer.has_contents) == ("torch.Tensor.add", "", True)
    assert [view.label for view in layer.parents] == ["input_1_0", "add_1_1:1", "add_1_1:2"]
    assert [view.label for view in layer.children] == ["add_1_1:2", "add_1_1:3", "output_1_2"]
    assert numpy.array_equal(layer.passes[2].tensor_contents, history[3].tensor_contents)
    for name in ("tensor_contents", "gradient", "grad_contents"):
        with pytest.raises(LookupKeyError) as caught:
            getattr(layer, name)
        assert str(caught.value) == "add_1_1 has 3 passes. Ask for one: history['add_1_1:1']."


def test_a_layer_whose_passes_differ_has_no_one_shape() -> None:
    record = loop_record()
    record.values[2].shape = (9, 9)
    assert bare_history(record)["add_1"].shape is None


def test_params_of_a_layer_are_listed_once() -> None:
    layer = bare_history(shared_record())["linear_1"]
    assert [param.address for param in layer.params] == ["cell.weight"]


def test_repr() -> None:
    history = saved_history(small_record())
    assert repr(history["conv2d_1"]) == "<OpView conv2d_1_1: (1, 4, 8, 8) float32, saved>"
    assert repr(bare_history(loop_record())["add_1"]) == "<LayerView add_1_1: 3 passes>"
    assert repr(bare_history(split_record())["chunk_1"]) == ("<OpView chunk_1_1: (2, 1), (2, 2) float32, not saved>")
    assert repr(history["conv2d_1"].aten[0]) == "<AtenView aten.convolution.default: (1, 4, 8, 8), forward>"
