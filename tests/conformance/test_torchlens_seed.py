"""The TorchLens seed: its code runs as written, and each thing it promises holds. One test per promise.

The seed takes AlexNet from torchvision; a stand-in with the same modules is put in its place, so that the
code runs word for word without it. Where the seed prints "KB" and "MB" torcheer prints the unit it means,
"KiB" and "MiB", and it groups the digits of large numbers.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.conformance.drawing import nodes_and_edges
from tests.conformance.torchlens_seed import SECOND_BLOCK, SOURCES, Seed

LISTED_IN_THE_SEED = (
    "input_1_0 conv2d_1_1 relu_1_2 maxpool2d_1_3 conv2d_2_4 relu_2_5 maxpool2d_2_6 conv2d_3_7 relu_3_8 conv2d_4_9"
).split()


@pytest.fixture(scope="module")
def printed_history(seed: Seed) -> list[str]:
    return seed.of("print(model_history)").printed.splitlines()


@pytest.fixture(scope="module")
def printed_layer(seed: Seed) -> list[str]:
    return seed.of("print(model_history['conv2d_3_7'])").printed.splitlines()


def shown_lines(seed: Seed, source: str) -> list[str]:
    shown = seed.of(source).shown
    assert shown is not None
    return [line.rstrip() for line in shown.splitlines()]


def in_our_units(line: str) -> str:
    """A line of the seed with the units and digits torcheer writes."""
    line = re.sub(r"\b([KM])B\b", r"\1iB", line)
    return re.sub(r"(?<![\d(-])\d{5,}(?= params)|(?<=\()\d{5,}", lambda match: f"{int(match[0]):,}", line)


# -- the code ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_statement_runs_as_written(seed: Seed, source: str) -> None:
    error = seed.of(source).error
    if error is not None:
        raise error


def test_every_statement_of_both_blocks_is_run() -> None:
    assert len(SOURCES) == 9
    assert "model_history = tl.log_forward_pass(alexnet, x, layers_to_save='all', vis_opt='unrolled')" in SOURCES


def test_stand_in_has_the_parameters_of_alexnet(seed: Seed) -> None:
    shapes = [tuple(param.shape) for param in seed.names["alexnet"].parameters()]
    assert sum(param.numel() for param in seed.names["alexnet"].parameters()) == 61_100_840
    assert shapes[:4] == [(64, 3, 11, 11), (64,), (192, 64, 5, 5), (192,)]
    assert shapes[-2:] == [(1000, 4096), (1000,)]


# -- print(model_history) ----------------------------------------------------------------------------------


def test_print_begins_with_the_name_of_the_model(printed_history: list[str]) -> None:
    assert printed_history[0] == "Log of AlexNet forward pass:"


def test_print_tells_the_structure_of_the_model(printed_history: list[str]) -> None:
    line = "\tModel structure: purely feedforward, without branching; 23 total modules."
    assert printed_history[1] == line


def test_print_tells_how_many_tensors_were_computed_and_saved(printed_history: list[str]) -> None:
    line = "\t24 tensors (4.8 MiB) computed in forward pass; 24 tensors (4.8 MiB) saved."
    assert printed_history[2] == line


def test_print_tells_the_parameters(printed_history: list[str]) -> None:
    # 61,100,840 × 4 bytes; the seed's 248.7 MB is another count of the same parameters.
    assert printed_history[3] == "\t16 parameter operations (61,100,840 params total; 233.1 MiB)."


def test_print_tells_the_random_seed(seed: Seed, printed_history: list[str]) -> None:
    assert printed_history[4] == f"\tRandom seed: {seed.random_seed}"


def test_print_tells_the_time_elapsed(printed_history: list[str]) -> None:
    assert re.fullmatch(r"\tTime elapsed: \d+\.\d{3}s", printed_history[5])


def test_print_shows_the_module_hierarchy(seed: Seed, printed_history: list[str]) -> None:
    shown = shown_lines(seed, "print(model_history)")
    start, end = shown.index("\tModule Hierarchy:"), shown.index("\tLayers:")
    assert end - start == 7
    assert printed_history[start : end + 1] == shown[start : end + 1]


def test_print_lists_the_layers_by_position(seed: Seed, printed_history: list[str]) -> None:
    shown = shown_lines(seed, "print(model_history)")
    assert shown[shown.index("\tLayers:") + 1 :] == [
        f"\t\t{position}: {label}" for position, label in enumerate(LISTED_IN_THE_SEED)
    ]
    assert printed_history[len(shown) - 10 : len(shown)] == shown[-10:]


def test_print_has_every_line_of_the_seed_in_its_order(seed: Seed, printed_history: list[str]) -> None:
    shown = shown_lines(seed, "print(model_history)")
    values = re.compile(r"(?<=Random seed: )\d+|(?<=Time elapsed: )[\d.]+|[\d.]+ MiB\)\.")
    ours = [values.sub("#", line) for line in printed_history[: len(shown)]]
    assert ours == [values.sub("#", in_our_units(line)) for line in shown]


def test_print_lists_all_24_layers(printed_history: list[str], history: tl.ModelHistory) -> None:
    start = printed_history.index("\tLayers:") + 1
    labels = [line.split(": ")[1] for line in printed_history[start:]]
    assert labels == [op.label for op in history]
    assert len(labels) == 24
    assert labels[-1] == "output_1_23"


# -- lookups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "label"), list(enumerate(LISTED_IN_THE_SEED)))
def test_label_at_position(history: tl.ModelHistory, position: int, label: str) -> None:
    assert history[position].label == label
    assert history[label].position == position


def test_label_says_which_conv_and_which_layer_overall(history: tl.ModelHistory) -> None:
    assert [op.label for op in history if op.name == "conv2d"][2] == "conv2d_3_7"
    assert list(history)[7].label == "conv2d_3_7"


def test_layer_is_found_by_name(history: tl.ModelHistory) -> None:
    layer = history["conv2d_3_7"]
    assert (layer.label, layer.name, layer.position) == ("conv2d_3_7", "conv2d", 7)


def test_layer_is_found_by_name_without_the_second_number(history: tl.ModelHistory) -> None:
    assert history["conv2d_3"] == history["conv2d_3_7"]


def test_layer_is_found_by_name_and_pass(history: tl.ModelHistory) -> None:
    assert history["conv2d_3_7:1"] == history["conv2d_3_7"]


def test_layer_is_found_by_module_for_which_it_is_an_output(history: tl.ModelHistory) -> None:
    assert history["features.6"] == history["conv2d_3_7"]
    assert history["classifier.3"] == history["dropout_2_19"]


def test_layer_is_found_by_module_that_holds_other_modules(history: tl.ModelHistory) -> None:
    assert history["features"] == history["features.12"] == history["maxpool2d_3_13"]
    assert history["classifier"] == history["classifier.6"] == history["linear_3_22"]


def test_layer_is_found_by_ordinal_position(history: tl.ModelHistory) -> None:
    assert history[7] == history["conv2d_3_7"]
    assert history[2] == history["relu_1_2"]


def test_negative_position_counts_from_the_end(history: tl.ModelHistory) -> None:
    assert history[-17] == history["conv2d_3_7"]
    assert history[-5] == history[24 - 5]
    assert history[-1].is_output


def test_inputs_and_outputs_count_as_layers(history: tl.ModelHistory) -> None:
    assert history[0].is_input
    assert history[23].is_output
    assert len(history) == 24


def test_commented_lookups_of_the_seed_pull_out_the_same_layer(seed: Seed) -> None:
    lookups = re.findall(r"^# (model_history\[.+?\])", SECOND_BLOCK, re.MULTILINE)
    assert len(lookups) == 5
    for lookup in lookups:
        assert eval(lookup, seed.names) == seed.history["conv2d_3_7"], lookup


def test_every_lookup_key_printed_works(history: tl.ModelHistory) -> None:
    for op in history:
        line = str(op).splitlines()[-1]
        assert line.startswith("\tLookup keys: ")
        for key in line.removeprefix("\tLookup keys: ").split(", "):
            assert history[int(key) if key.lstrip("-").isdecimal() else key] == op, key


# -- print(model_history['conv2d_3_7']) --------------------------------------------------------------------


def test_layer_print_tells_name_and_operation(printed_layer: list[str]) -> None:
    assert printed_layer[0] == "Layer conv2d_3_7, operation 8/24:"


def test_layer_print_tells_shape_dtype_and_size(printed_layer: list[str]) -> None:
    assert printed_layer[1] == "\tOutput tensor: shape=(1, 384, 13, 13), dtype=torch.float32, size=253.5 KiB"


def test_layer_print_shows_a_corner_of_the_tensor(seed: Seed, printed_layer: list[str]) -> None:
    corner = "".join(printed_layer[2:7])
    assert corner.strip().startswith("tensor([[")
    assert corner.endswith("]])...")
    # Small numbers are printed as -6.6766e-04.
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+(?:e[+-]\d+)?", corner)]
    expected = seed.history["conv2d_3_7"].tensor_contents[0, 0, :5, :5].flatten().tolist()
    assert numbers == pytest.approx(expected, abs=1e-4)


def test_layer_print_tells_the_parameters(printed_layer: list[str]) -> None:
    line = "\tParams: Computed from params with shape (384,), (384, 192, 3, 3); 663,936 params total (2.5 MiB)"
    assert line in printed_layer


@pytest.mark.parametrize(
    "line",
    [
        "Parent Layers: maxpool2d_2_6",
        "Child Layers: relu_3_8",
        "Function: conv2d (gradfunc=ConvolutionBackward0)",
        "Computed inside module: features.6",
        "Output of modules: features.6",
        "Output of bottom-level module: features.6",
    ],
)
def test_layer_print_has_the_line(seed: Seed, printed_layer: list[str], line: str) -> None:
    assert f"\t{line}" in shown_lines(seed, "print(model_history['conv2d_3_7'])")
    assert f"\t{line}" in printed_layer


def test_layer_print_tells_the_time_elapsed(history: tl.ModelHistory, printed_layer: list[str]) -> None:
    time_ns = history["conv2d_3_7"].time_ns
    assert time_ns is not None
    assert time_ns > 0
    assert f"\tTime elapsed:  {time_ns / 1e9:.3E}s" in printed_layer


def test_layer_print_lists_the_lookup_keys_of_the_seed(seed: Seed, printed_layer: list[str]) -> None:
    shown = shown_lines(seed, "print(model_history['conv2d_3_7'])")[-1].split(": ", 1)[1].split(", ")
    ours = printed_layer[-1].removeprefix("\tLookup keys: ").split(", ")
    assert set(shown) <= set(ours)
    assert [key for key in ours if key in shown] == shown


def test_layer_print_has_every_line_of_the_seed_in_its_order(seed: Seed, printed_layer: list[str]) -> None:
    starts = [
        line.split(":")[0]
        for line in shown_lines(seed, "print(model_history['conv2d_3_7'])")
        if re.match(r"\t[A-Z]|L", line)
    ]
    assert len(starts) == 11
    ours = [line.split(":")[0] for line in printed_layer]
    assert [start for start in ours if start in starts] == starts


# -- tensor_contents ---------------------------------------------------------------------------------------


def test_tensor_contents_are_the_activations(seed: Seed) -> None:
    contents = seed.history["conv2d_3_7"].tensor_contents
    assert type(contents) is Tensor
    assert contents.shape == (1, 384, 13, 13)
    assert seed.of("print(model_history['conv2d_3_7'].tensor_contents)").printed == f"{contents}\n"
    features = seed.names["alexnet"].features
    with torch.no_grad():
        assert torch.equal(contents, features[:7](seed.names["x"]))


def test_tensor_contents_are_from_before_a_relu_in_place(history: tl.ModelHistory) -> None:
    before, after = history["conv2d_3_7"].tensor_contents, history["relu_3_8"].tensor_contents
    assert (before < 0).any()
    assert torch.equal(before.clamp(min=0), after)


def test_every_intermediate_operation_is_extracted(seed: Seed) -> None:
    """Each activation is what the model's own modules compute, one after another."""
    history, alexnet = seed.history, seed.names["alexnet"]
    assert [op.label for op in history if not op.has_contents] == []
    x = seed.names["x"]
    position = 0
    with torch.no_grad():
        for module in (*alexnet.features, alexnet.avgpool, nn.Flatten(), *alexnet.classifier):
            assert torch.equal(history[position].tensor_contents, x), history[position].label
            if isinstance(module, nn.Dropout):
                position += 1
                dropped = history[position].tensor_contents
                assert torch.equal(dropped, torch.where(dropped == 0, 0.0, x / (1 - module.p)))
                x = dropped
            else:
                x = module(x.clone())
                position += 1
    assert torch.equal(history[22].tensor_contents, x)
    assert torch.equal(history[23].tensor_contents, x)
    assert torch.equal(history.output, x)


# -- "no modifications needed" -----------------------------------------------------------------------------


def test_output_and_random_numbers_are_those_of_a_plain_run(seed: Seed) -> None:
    alexnet, x = seed.names["alexnet"], seed.names["x"]
    state = torch.get_rng_state()
    plain = alexnet(x)
    after_plain = torch.get_rng_state()
    torch.set_rng_state(state)
    history = tl.log_forward_pass(alexnet, x, layers_to_save=None)
    assert torch.equal(history.output, plain)
    assert torch.equal(torch.get_rng_state(), after_plain)


# -- metadata and visualization ----------------------------------------------------------------------------


def test_log_forward_pass_returns_a_model_history(history: tl.ModelHistory) -> None:
    assert isinstance(history, tl.ModelHistory)


def test_metadata_of_every_operation_is_there(history: tl.ModelHistory) -> None:
    for op in history:
        assert op.shape is not None
        assert op.dtype == "float32"
        assert op.size_bytes == 4 * torch.Size(op.shape).numel()
        assert op.device == "cpu"
        if not (op.is_input or op.is_output):
            assert op.time_ns
            assert op.function.startswith("torch.")
            assert op.aten
            assert op.source is not None
            assert op.source.file.endswith("models.py")
            assert op.grad_function or not op.outputs[0].value.requires_grad


def test_computational_graph_is_understood(history: tl.ModelHistory) -> None:
    for op in history:
        assert list(op.parents) == ([] if op.is_input else [history[op.position - 1]])
        assert list(op.children) == ([] if op.is_output else [history[op.position + 1]])
    assert not history.is_branching
    assert not history.is_recurrent


def test_layers_are_linked_with_modules_and_params(history: tl.ModelHistory) -> None:
    layer = history["conv2d_3_7"]
    assert [param.address for param in layer.params] == ["features.6.weight", "features.6.bias"]
    assert history.modules["features.6"].type_name == "Conv2d"
    assert history.modules["features.6"].output_ops == (layer,)
    assert history.params["features.6.bias"].used_by == (layer,)


def test_unrolled_visualization_shows_every_operation(history: tl.ModelHistory) -> None:
    nodes, edges = nodes_and_edges(history.drawing.dot)
    assert sorted(nodes.values()) == sorted(op.label for op in history)
    labels = {(nodes[parent], nodes[child]) for parent, child in edges}
    assert labels == {(parent.label, op.label) for op in history for parent in op.parents}
    for label in nodes.values():
        assert f">{label}</text>" in history.drawing.svg
    for module in ("features", "avgpool · AdaptiveAvgPool2d", "classifier", "features.6 · Conv2d"):
        assert f">{module}</text>" in history.drawing.svg
