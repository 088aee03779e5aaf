"""A Paddle layer's run fills the same record."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import torcheer as tl
from tests.paddle import models
from torcheer.errors import CaptureError, LookupKeyError

# Said by Paddle whenever a BatchNorm trains.
pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track global mean:UserWarning")


def record_of(model: Any, *shape: int) -> tl.ModelHistory:
    paddle.seed(3)
    return tl.log_forward_pass(model, paddle.randn(list(shape)))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (models.Convolutional, (2, 3, 8, 8)),
        (models.Shared, (2, 4)),
        (models.Recurrent, (2, 3, 4)),
        (models.Attention, (2, 3, 8)),
        (models.Custom, (2, 4)),
    ],
)
def test_the_tables_agree_with_one_another(make: Any, shape: tuple[int, ...]) -> None:
    record = record_of(make(), *shape).record
    assert [op.index for op in record.ops] == list(range(len(record.ops)))
    assert [value.index for value in record.values] == list(range(len(record.values)))
    for op in record.ops:
        assert all(edge.op < op.index for edge in op.parents)
        assert op.owner is None or op.owner < op.index
        assert (op.layer == -1) == (op.owner is not None)
        for item in op.outputs:
            assert record.values[item.value].producer == op.index
        for edge in op.parents:
            owners = {record.ops[edge.op].owner}
            assert owners <= {None, op.owner}
    for call in record.calls:
        assert call.parent is None or call.parent < call.index
        assert 0 <= call.first_op <= call.end_op <= len(record.ops)
        assert call.outputs or call.error
    assert not record.diagnostics
    assert {value.kind for value in record.values} <= {"activation", "input", "param", "buffer", "constant"}
    assert record.run.framework == "paddle"


def test_ops_and_labels() -> None:
    history = record_of(models.Convolutional(), 2, 3, 8, 8)
    assert history.layer_labels == [
        "input_1_0", "conv2d_1_1", "reshape_1_2", "add_1_3", "batchnorm_1_4", "relu_1_5", "add_2_6", "maxpool2d_1_7",
        "mean_1_8", "dropout_1_9", "setitem_1_10", "linear_1_11", "output_1_12",
    ]  # fmt: skip
    assert history.layer_labels == record_of(models.Convolutional(), 2, 3, 8, 8).layer_labels
    assert [parent.label for parent in history["linear_1"].parents] == ["setitem_1_10"]


def test_contents_equal_what_the_layers_return() -> None:
    model = models.Convolutional()
    model.eval()
    x = paddle.rand([2, 3, 8, 8])
    history = tl.log_forward_pass(model, x)
    np.testing.assert_array_equal(history["conv"].tensor_contents.numpy(), model.conv(x).numpy())
    relu = F.relu(model.bn(model.conv(x)))
    np.testing.assert_array_equal(history["relu_1"].tensor_contents.numpy(), relu.numpy())
    np.testing.assert_array_equal(history["fc"].tensor_contents.numpy(), model(x).numpy())


def test_contents_are_those_of_the_moment() -> None:
    def overwrite(x: Any) -> Any:
        y = x * 2
        y.add_(paddle.ones([3]))
        y[0] = 9
        return y + 0

    history = tl.log_forward_pass(overwrite, paddle.to_tensor([1.0, 2.0, 3.0]))
    contents = {op.layer_label: op.tensor_contents.tolist() for op in history if not op.is_input}
    assert contents["mul_1_1"] == [2, 4, 6]
    assert [values for label, values in contents.items() if label.startswith("add")] == [[3, 5, 7], [9, 5, 7]]


def test_params_and_buffers() -> None:
    history = record_of(models.Convolutional(), 2, 3, 8, 8)
    kinds = {param.address: param.kind for param in history.record.params}
    assert kinds == {
        "conv.weight": "param", "conv.bias": "param", "bn.weight": "param", "bn.bias": "param",
        "bn._mean": "buffer", "bn._variance": "buffer", "fc.weight": "param", "fc.bias": "param",
    }  # fmt: skip
    op = next(op for op in history.record.ops if op.name == "batchnorm")
    read = {history.record.params[param].address for param in op.params}
    assert read == {"bn.weight", "bn.bias", "bn._mean", "bn._variance"}
    written = {history.record.values[value].param for value in op.writes}
    assert {history.record.params[param].address for param in written if param is not None} == {
        "bn._mean",
        "bn._variance",
    }
    module = next(module for module in history.record.modules if module.address == "bn")
    assert module.attributes["momentum"] == 0.9
    assert module.attributes["epsilon"] == 1e-5
    assert module.qualified_type == "paddle.nn.layer.norm.BatchNorm2D"


def test_calls_passes_and_blocks() -> None:
    history = record_of(models.Shared(), 2, 4)
    assert history["fc:1"].layer_label == history["fc:2"].layer_label
    assert history["fc:2"].pass_index == 2
    assert history["linear_1"].num_passes == 2
    sums = [label for label in history.layer_labels if label.startswith("add_")]
    assert len(sums) == 3, "each block has its own sum"
    assert [history.record.ops[-3 + i].outputs[0].path for i in range(3)] == ["out", "pair.0", "pair.1"]
    assert history.is_branching


def test_an_rnn_is_one_op_with_all_its_weights() -> None:
    history = record_of(models.Recurrent(), 2, 3, 4)
    op = next(op for op in history.record.ops if op.name == "rnn")
    read = {history.record.params[param].address.rsplit(".")[-1] for param in op.params}
    assert len(op.params) == 9, "8 weights and the state of its dropout"
    assert any("dropout" in name for name in read)
    assert [item.path for item in history.record.calls[0].outputs] == ["0", "1", "2"]


def test_names_bound_before_the_capture_are_seen() -> None:
    history = record_of(models.Attention(), 2, 3, 8)
    names = [op.name for op in history]
    assert names[-3:] == ["matmul", "sigmoid", "output"]
    assert not history.diagnostics


def test_an_op_that_escapes_is_reported() -> None:
    kept_in_a_list = [paddle._C_ops.matmul]

    def escaping(x: Any) -> Any:
        return kept_in_a_list[0](x, x, False, False) + 1

    x = paddle.rand([3, 3])
    x.stop_gradient = False
    history = tl.log_forward_pass(escaping, x)
    assert [op.name for op in history] == ["input", "add", "output"]
    (note,) = history.diagnostics
    assert note.code == "op-not-seen"
    assert "MatmulGradNode" in note.message


def test_a_pylayer_is_an_op_with_ops_inside() -> None:
    history = record_of(models.Custom(), 2, 4)
    outer = next(op for op in history.record.ops if op.name == "doubled")
    inside = [op.name for op in history.record.ops if op.owner == outer.index]
    assert inside == ["tanh", "add"]
    assert outer.function == "autograd.Doubled"


def test_writes_through_views_are_edges() -> None:
    history = record_of(models.Custom(), 2, 4)
    record = history.record
    total = [op for op in record.ops if op.name == "sum"][-1]
    parents = {record.ops[edge.op].name: edge.how for edge in total.parents}
    assert parents == {"mul": "argument", "scale": "memory", "add": "memory"}


def test_gradients() -> None:
    model = models.Convolutional()
    x = paddle.rand([2, 3, 8, 8])
    x.stop_gradient = False
    history = tl.log_forward_pass(model, x)
    history.log_backward(history.output.square().sum())
    assert history.record.run.num_backward == 1
    by_param = {history.record.params[g.param].address: g for g in history.record.gradients if g.param is not None}
    assert set(by_param) == {"conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias"}
    for address, gradient in by_param.items():
        param = dict(model.named_parameters())[address]
        np.testing.assert_array_equal(history.payloads[gradient.payload].numpy(), param.grad.numpy())
    np.testing.assert_array_equal(history["fc"].grad_contents.numpy(), 2 * history.output.numpy())
    inputs = [g for g in history.record.gradients if g.value == history.record.ops[0].outputs[0].value]
    np.testing.assert_array_equal(history.payloads[inputs[0].payload].numpy(), x.grad.numpy())


def test_sites_are_lines_of_the_user() -> None:
    history = record_of(models.Convolutional(), 2, 3, 8, 8)
    source = Path(models.__file__).read_text().splitlines()
    op = next(op for op in history.record.ops if op.name == "maxpool2d")
    frame = history.record.sites[op.site].frames[0]
    assert frame.file == models.__file__
    assert "F.max_pool2d" in source[frame.line - 1]
    call = next(call for call in history.record.calls if history.record.modules[call.module].address == "bn")
    assert "self.bn(" in source[history.record.sites[call.site].frames[-1].line - 1]
    assert "models.py" in str(history["maxpool2d_1"])


def test_save_and_load(tmp_path: Path) -> None:
    history = record_of(models.Convolutional(), 2, 3, 8, 8)
    history.log_backward(history.output.sum())
    history.save(tmp_path / "run")
    loaded = tl.load(tmp_path / "run")
    assert loaded.layer_labels == history.layer_labels
    assert loaded.record.run.framework == "paddle"
    np.testing.assert_array_equal(np.asarray(loaded["fc"].tensor_contents), history["fc"].tensor_contents.numpy())
    np.testing.assert_array_equal(np.asarray(loaded["fc"].grad_contents), history["fc"].grad_contents.numpy())


def test_save_to(tmp_path: Path) -> None:
    model, x = models.Shared(), paddle.rand([2, 4])
    history = tl.log_forward_pass(model, x, save_to=tmp_path / "run")
    history.log_backward(history.output["out"].sum())
    loaded = tl.load(tmp_path / "run")
    np.testing.assert_array_equal(
        np.asarray(loaded["blocks.2"].tensor_contents), np.asarray(history["blocks.2"].tensor_contents)
    )
    assert loaded.record.gradients


def test_bfloat16_survives_a_file(tmp_path: Path) -> None:
    history = tl.log_forward_pass(lambda x: x.astype("bfloat16") * 2, paddle.to_tensor([1.5, -3.0]))
    history.save(tmp_path / "run")
    assert tl.load(tmp_path / "run")[-1].tensor_contents.tolist() == [3.0, -6.0]


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ("none", set()),
        (["fc"], {"linear_1_11"}),
        (["relu_1", -2], {"relu_1_5", "linear_1_11"}),
        (lambda op: op.name == "relu", {"relu_1_5"}),
    ],
)
def test_layers_to_save(layers: Any, kept: set[str]) -> None:
    history = tl.log_forward_pass(models.Convolutional(), paddle.rand([2, 3, 8, 8]), layers_to_save=layers)
    saved = history.record.saved
    found = {op.layer_label for op in history if any(item.value in saved for item in op.op.outputs)}
    assert found == kept


def test_wrong_input_is_refused_before_the_run() -> None:
    with pytest.raises(CaptureError, match="Shared cannot be called with these inputs"):
        tl.log_forward_pass(models.Shared(), paddle.rand([2, 4]), paddle.rand([1]))
    with pytest.raises(LookupKeyError, match="'nothing' names nothing"):
        tl.log_forward_pass(models.Shared(), paddle.rand([2, 4]), layers_to_save=["nothing"])


@pytest.mark.parametrize("name", ["profile", "summary", "validate", "watch", "InspectorGadgets"])
def test_what_measures_pytorch_refuses_a_paddle_layer(name: str) -> None:
    given = (paddle.rand([2, 4]),) if name in {"profile", "summary", "validate"} else ()
    with pytest.raises(CaptureError, match=f"tl.{name} works on PyTorch models, and was given one of Paddle's"):
        getattr(tl, name)(models.Shared(), *given)


def test_metadata_alone_keeps_nothing_alive() -> None:
    alive: list[Any] = []

    def watched(x: Any) -> Any:
        y = x * 2
        alive.append(weakref.ref(y))
        return y.sum()

    history = tl.log_forward_pass(watched, paddle.rand([4]), layers_to_save="none")
    gc.collect()
    assert alive[0]() is None
    assert len(history) == 4


def test_without_paddle_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['paddle'] = None\n"
        "import torcheer, torch\n"
        "assert len(torcheer.log_forward_pass(torch.nn.Linear(2, 2), torch.rand(1, 2))) == 3\n"
        "from torcheer.errors import MissingExtraError\n"
        "try:\n    import torcheer.capture.paddle.session\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == (
        "Recording a Paddle layer needs the package 'paddlepaddle', which is not installed. "
        "Install it with: pip install 'torcheer[paddle]'"
    )
