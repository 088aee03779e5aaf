"""What is printed: the texts of the TorchLens seed, with real values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.history.make_history import (
    bare_history,
    build_net,
    nested_record,
    saved_history,
    split_record,
)
from tests.unit.make_record import loop_record, make_record, small_record
from tests.unit.record_builder import RecordBuilder
from torcheer.history import ModelHistory
from torcheer.history.frames import frame_text
from torcheer.record.model import Frame, Item, Record, Run, Site


def tabbed(text: str) -> str:
    """The text as written here, with each 4 leading spaces as the tab that is printed."""
    lines = dedent(text).strip("\n").split("\n")
    out = []
    for line in lines:
        body = line.lstrip(" ")
        tabs, rest = divmod(len(line) - len(body), 4)
        out.append("\t" * tabs + " " * rest + body)
    return "\n".join(out)


def test_history() -> None:
    record = small_record()
    record.run.seed, record.run.time_ns = 3210097511, 288_000_000
    text = str(saved_history(record))
    assert text == tabbed(
        """
        Log of SmallNet forward pass:
            Model structure: purely feedforward, without branching; 5 total modules.
            7 tensors (3.3 KiB) computed in forward pass; 7 tensors (3.3 KiB) saved.
            4 parameter operations (762 params total; 3.0 KiB).
            Random seed: 3210097511
            Time elapsed: 0.288s
            Module Hierarchy:
                features:
                    features.0, features.1, features.2
                classifier
            Layers:
                0: input_1_0
                1: conv2d_1_1
                2: relu_1_2
                3: maxpool2d_1_3
                4: flatten_1_4
                5: linear_1_5
                6: output_1_6
        """
    ).replace("\t\t\tfeatures.0", "\t\t    features.0")


def test_history_without_contents() -> None:
    text = str(bare_history(small_record()))
    assert "7 tensors (3.3 KiB) computed in forward pass; 0 tensors (0 B) saved.\n" in text


def test_history_of_a_loop() -> None:
    text = str(bare_history(loop_record()))
    assert "Model structure: recurrent, without branching; 0 total modules." in text
    assert "Module Hierarchy" not in text
    assert "\t\t1: add_1_1:1\n\t\t2: add_1_1:2\n\t\t3: add_1_1:3\n\t\t4: output_1_2" in text


def test_lines_that_appear_where_they_matter() -> None:
    record = make_record()
    record.run.error = "ValueError: no"
    record.run.time_ns = 5_000
    text = str(bare_history(record))
    assert "\tThe run raised ValueError: no; what ran before is recorded.\n" in text
    assert "\t1 backward pass recorded; gradients of 1 tensor and 4 parameters.\n" in text
    assert "\t2 remarks on this recording: history.diagnostics\n" in text
    assert "\tTime elapsed: 5.000E-06s\n" in text
    assert "2 operations inside other operations, not listed: history[label].inner" in str(
        bare_history(nested_record())
    )
    record.params.append(record.params[0])
    assert "\t1 parameter of the model not used in this run.\n" in str(bare_history(record))


def long_history(num_ops: int) -> ModelHistory:
    build, x = build_net("Long")
    for _ in range(num_ops - 2):
        x = build.op("add", "torch.add", (2, 3), (x,))
    build.output(x)
    build.layers()
    return bare_history(build.record)


def test_long_listings_are_cut_in_the_middle() -> None:
    assert "more: history.layer_labels" not in str(long_history(60))
    lines = str(long_history(1200)).split("\n\t\t")[1:]
    assert lines[39:42] == ["39: add_39_39", "… 1,150 more: history.layer_labels", "1190: add_1190_1190"]
    assert len(lines) == 51


def test_deep_and_wide_hierarchies() -> None:
    build, _ = build_net("Deep")
    for block in range(2):
        parent = build.module(f"block{block}", "Block", 0)
        build.module(f"block{block}.norm", "LayerNorm", parent)
        inner = build.module(f"block{block}.mlp", "Sequential", parent)
        for part in range(13):
            build.module(f"block{block}.mlp.{part}", "Linear", inner)
    build.layers()
    lines = str(bare_history(build.record)).split("\n")
    start = lines.index("\t\tblock0:")
    assert lines[start : start + 5] == [
        "\t\tblock0:",
        "\t\t    block0.norm",
        "\t\t    block0.mlp:",
        "\t\t        block0.mlp.0, block0.mlp.1, block0.mlp.2, block0.mlp.3, block0.mlp.4, block0.mlp.5,",
        "\t\t        block0.mlp.6, block0.mlp.7, block0.mlp.8, block0.mlp.9, block0.mlp.10, block0.mlp.11,",
    ]
    for block in range(100):
        build.module(f"layer{block}", "Linear", 0)
    assert "\t\t… all modules: list(history.modules)\n" in str(bare_history(build.record))


def test_op() -> None:
    text = str(saved_history(small_record())["features.0"])
    assert text == tabbed(
        """
        Layer conv2d_1_1, operation 2/7:
            Output tensor: shape=(1, 4, 8, 8), dtype=torch.float32, size=1.0 KiB
                array([[ 5.,  6.,  7.,  8.,  9.],
                       [13., 14., 15., 16., 17.],
                       [21., 22., 23., 24., 25.],
                       [29., 30., 31., 32., 33.],
                       [37., 38., 39., 40., 41.]], dtype=float32)...
            Params: Computed from params with shape (4,), (4, 3, 3, 3); 112 params total (448 B)
            Parent Layers: input_1_0
            Child Layers: relu_1_2
            Function: conv2d (gradfunc=ConvolutionBackward0)
            ATen ops: aten.convolution.default
            Computed inside module: features.0
            Source: /home/user/net.py:554 in forward
            Time elapsed:  1.000E-06s
            Output of modules: features.0
            Output of bottom-level module: features.0
            Lookup keys: -6, 1, conv2d_1, conv2d_1:1, conv2d_1_1, conv2d_1_1:1, features.0, features.0:1
        """
    ).replace("\t\t\t" + "   " + " ", "\t\t       ").replace("\t\t\t   [", "\t\t       [")


def test_op_that_was_not_saved() -> None:
    text = str(bare_history(small_record())["conv2d_1"])
    assert "\n\t\tnot saved. Keep it by recording with layers_to_save=['conv2d_1_1']\n" in text


def test_op_without_params_parents_or_source() -> None:
    text = str(bare_history(small_record())["input_1"])
    assert "\n\tParams: no params used\n\tParent Layers: no parent layers\n" in text
    assert "\n\tFunction: none, an input of the model (gradfunc=none)\n" in text
    assert "\n\tComputed inside module: the model itself\n\tSource: not known\n" in text
    assert "\n\tTime elapsed:  not known\n" in text
    assert "\n\tOutput of modules: none\n\tOutput of bottom-level module: none\n" in text


def test_op_with_a_gradient() -> None:
    history = bare_history(make_record())
    assert "\n\tGradient: shape=(1, 10), dtype=torch.float32, size=40 B\n" in str(history["linear_1"])
    assert "\n\tATen ops in backward: aten.mm.default\n" in str(history["linear_1"])
    assert "\n\tTime elapsed in backward:  2.000E-06s\n" in str(history["linear_1"])
    assert "\n\tGradient: none\n" in str(history["conv2d_1"])
    assert "Gradient" not in str(bare_history(small_record())["conv2d_1"])


def test_op_with_several_outputs() -> None:
    text = str(saved_history(split_record())["chunk_1"])
    assert (
        "\tOutput tensors: 2\n"
        "\t\t0: shape=(2, 1), dtype=torch.float32, size=8 B\n"
        "\t\t\tarray([[1.],\n\t\t\t       [2.]], dtype=float32)\n"
        "\t\t1: shape=(2, 2), dtype=torch.float32, size=16 B\n"
    ) in text


def test_op_without_a_tensor() -> None:
    record = small_record()
    record.ops[4].outputs, record.ops[4].result = (), True
    assert "\n\tOutput: no tensor but True\n" in str(bare_history(record)[4])


def test_op_with_buffers() -> None:
    record = small_record()
    record.params[1].kind = "buffer"
    record.params[1].address = "features.0.running_mean"
    text = str(bare_history(record)[1])
    assert "with shape (4, 3, 3, 3); 108 params total (432 B); buffer running_mean\n" in text


def test_op_that_writes_a_buffer() -> None:
    record = small_record()
    count = RecordBuilder(record).value("buffer", (), param=1)
    record.params[1].kind, record.params[1].address = "buffer", "bn.num_batches_tracked"
    relu = record.ops[2]
    assert "Writes:" not in str(bare_history(record)[2])
    relu.writes += (count,)
    history = bare_history(record)
    assert "\n\tParams: no params used\n\tWrites: buffer bn.num_batches_tracked\n" in str(history[2])
    assert history[2].written_params == (history.params["bn.num_batches_tracked"],)


def test_op_that_writes_a_view_of_a_param() -> None:
    record = small_record()
    build = RecordBuilder(record)
    view, weight = build.value("activation", (3,)), record.values[0]
    assert weight.param == 0
    record.values[view].storage = weight.storage
    record.ops[2].writes += (view,)
    assert "\n\tWrites: param features.0.weight\n" in str(bare_history(record)[2])
    # Two params in one storage: which one is written cannot be told.
    record.values[1].storage = weight.storage
    assert "Writes:" not in str(bare_history(record)[2])


def test_inputs_and_outputs_say_which_they_are() -> None:
    record = small_record()
    record.ops[0].outputs = (Item("q.0", record.ops[0].outputs[0].value),)
    record.ops[-1].outputs = (Item("logits", record.ops[-1].inputs[0]),)
    history = bare_history(record)
    assert "\n\tFunction: none, input 'q.0' of the model (gradfunc=none)\n" in str(history[0])
    assert "\n\tFunction: none, output 'logits' of the model (gradfunc=" in str(history[-1])


def test_aten_ops_of_a_backward_pass_and_of_a_recomputation() -> None:
    record = make_record()
    linear = next(op for op in record.ops if op.name == "linear")
    again = replace(record.aten[linear.aten[0]], index=len(record.aten), phase="recompute")
    record.aten.append(again)
    linear.aten += (again.index,)
    history = bare_history(record)
    assert [op.phase for op in history["linear_1"].aten] == ["forward", "backward", "recompute"]
    text = str(history["linear_1"])
    assert "\n\tATen ops: aten.addmm.default\n\tATen ops in backward: aten.mm.default, aten.addmm.default\n" in text


def test_source_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = small_record()
    frame = Frame(str(tmp_path / "models" / "net.py"), 7, "Net.forward")
    record.sites = [Site((frame,)) for _ in record.sites]
    view = bare_history(record)["conv2d_1"]
    assert f"\n\tSource: {frame.file}:7 in Net.forward\n" in str(view)
    monkeypatch.chdir(tmp_path)
    assert f"\n\tSource: {Path('models', 'net.py')}:7 in Net.forward\n" in str(view)
    monkeypatch.chdir(tmp_path.anchor)
    assert f"\n\tSource: {frame.file}:7 in Net.forward\n" in str(view)


@pytest.mark.parametrize("file", ["<string>", "net.py", "<frozen runpy>"])
def test_source_that_is_no_absolute_path(file: str) -> None:
    assert frame_text(Frame(file, 3, "forward")) == f"{file}:3 in forward"


def test_one_of_each_is_singular() -> None:
    record = Record(Run("Tiny"))
    build = RecordBuilder(record)
    build.param("scale", (1,))
    build.module("", "Tiny", None, params=(0,))
    build.enter(0, None)
    build.op("ones", "torch.ones", (1,), (), params=(0,))
    build.leave()
    build.layers()
    history = bare_history(record)
    assert repr(history) == "<ModelHistory of Tiny: 1 operation in 1 layer>"
    assert repr(history.calls[0]) == "<CallView the model itself: 1 operation, 1.0 µs>"
    assert (repr(history.params), repr(history.modules)) == ("<1 param: 'scale'>", "<1 module: ''>")
    assert "\t1 tensor (4 B) computed in forward pass; 0 tensors (0 B) saved.\n" in str(history)
    assert "\t1 parameter operation (1 param total; 4 B).\n" in str(history)
    assert "Computed from params with shape (1,); 1 param total (4 B)\n" in str(history[0])


def test_inner_op() -> None:
    history = bare_history(nested_record())
    assert "\n\tOperations inside: double_1_1/mul_1, double_1_1/mul_2\n" in str(history["double_1"])
    assert str(history["double_1_1/mul_1"]).startswith("Operation double_1_1/mul_1, inside double_1_1:\n")


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("torch.nn.functional.relu", "relu"),
        ("torch.Tensor.add_", "add_"),
        ("torch.ops.mylib.myop.default", "mylib.myop.default"),
        ("autograd.MyFunction", "autograd.MyFunction"),
    ],
)
def test_function_as_people_write_it(function: str, shown: str) -> None:
    record = small_record()
    record.ops[2].function = function
    assert f"\n\tFunction: {shown} (gradfunc=" in str(bare_history(record)[2])


def test_pass_of_a_layer() -> None:
    text = str(bare_history(loop_record())["add_1:2"])
    assert text.startswith("Layer add_1_1 (pass 2/3), operation 3/5:\n")
    assert "\n\tParent Layers: add_1_1:1\n\tChild Layers: add_1_1:3\n" in text


def test_layer() -> None:
    assert str(bare_history(loop_record())["add_1"]) == tabbed(
        """
        Layer add_1_1, 3 passes:
            Function: add (gradfunc=none)
            Params: no params used
            Computed inside module: the model itself
            Source: /home/user/net.py:12 in forward
            Time elapsed:  3.000E-06s in all passes
            Passes:
                1: operation 2, shape=(2, 3), not saved, from input_1_0
                2: operation 3, shape=(2, 3), not saved, from add_1_1:1
                3: operation 4, shape=(2, 3), not saved, from add_1_1:2
            Lookup keys: add_1, add_1_1
        """
    )


def test_many_names_on_a_line_are_cut() -> None:
    build, x = build_net()
    for _ in range(20):
        build.op("relu", "torch.relu", (2, 3), (x,))
    build.layers()
    text = str(bare_history(build.record)[0])
    assert "relu_7_7, relu_8_8 and 12 more\n" in text
