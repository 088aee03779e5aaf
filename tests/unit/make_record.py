"""Small records made by hand, consistent in every table: what the pure rooms are tested on.

Each function returns a fresh record, so a test may change it.
"""

from __future__ import annotations

from tests.unit.record_builder import OP_NS, RecordBuilder
from torcheer.record.model import Diagnostic, Gradient, Item, Op, Opaque, Record, Ref, Run


def _run(model: str, num_ops: int) -> Run:
    return Run(
        model,
        framework_version="2.13.0",
        torcheer_version="0.1.0",
        python_version="3.11.7",
        seed=0,
        time_ns=OP_NS * num_ops,
        output_structure="Tensor",
    )


def _features(build: RecordBuilder, x: int) -> int:
    """conv2d, relu (in place), maxpool2d inside the modules features.0 to features.2."""
    root_line = 20
    build.enter(1, build.site(root_line), inputs=(Item("", x),))
    build.enter(2, build.site(root_line, 250), inputs=(Item("", x),))
    conv = build.op(
        "conv2d",
        "torch.conv2d",
        (1, 4, 8, 8),
        (x,),
        params=(0, 1),
        site=build.site(554),
        extra_args=((1, 1), (1, 1), (1, 1), 1),
        grad_function="ConvolutionBackward0",
    )
    build.leave(conv)
    build.enter(3, build.site(root_line, 250), inputs=(Item("", conv),))
    relu = build.op(
        "relu",
        "torch.relu_",
        (1, 4, 8, 8),
        (conv,),
        over=conv,
        site=build.site(143),
        grad_function="ReluBackward0",
    )
    build.leave(relu)
    build.enter(4, build.site(root_line, 250), inputs=(Item("", relu),))
    pool = build.op(
        "maxpool2d",
        "torch.nn.functional.max_pool2d",
        (1, 4, 4, 4),
        (relu,),
        site=build.site(213),
        extra_args=(2, 2),
        kwargs={"ceil_mode": False, "return_indices": False},
        grad_function="MaxPool2DWithIndicesBackward0",
    )
    build.leave(pool)
    build.leave(pool)
    return pool


def _declare(build: RecordBuilder) -> tuple[int, int]:
    """The params and modules of SmallNet; return the model and its classifier."""
    for address, shape in (
        ("features.0.weight", (4, 3, 3, 3)),
        ("features.0.bias", (4,)),
        ("classifier.weight", (10, 64)),
        ("classifier.bias", (10,)),
    ):
        build.param(address, shape)
    root = build.module("", "SmallNet", None, attributes={"num_classes": 10, "rate": 0.5, "names": ("a", "b")})
    features = build.module("features", "Sequential", root)
    build.module("features.0", "Conv2d", features, params=(0, 1), extra="3, 4, kernel_size=(3, 3)")
    build.module("features.1", "ReLU", features, extra="inplace=True", attributes={"inplace": True})
    build.module("features.2", "MaxPool2d", features, extra="kernel_size=2, stride=2")
    classifier = build.module("classifier", "Linear", root, params=(2, 3), extra="in_features=64, out_features=10")
    return root, classifier


def _conv_net(num_turns: int) -> RecordBuilder:
    """SmallNet: features (conv2d, relu, maxpool2d), flatten, ``num_turns`` times ``x + 1``, linear."""
    build = RecordBuilder(Record(_run("SmallNet", 7 + num_turns)))
    root, classifier = _declare(build)
    build.enter(root, None)
    x = build.input((1, 3, 8, 8))
    build.record.calls[0].inputs = (Item("0", x),)
    pool = _features(build, x)
    flat = build.op(
        "flatten",
        "torch.flatten",
        (1, 64),
        (pool,),
        extra_args=(1,),
        site=build.site(21),
        grad_function="ViewBackward0",
    )
    turns = []
    for _ in range(num_turns):
        turns.append(len(build.record.ops))
        flat = build.op(
            "add",
            "torch.Tensor.add",
            (1, 64),
            (flat,),
            extra_args=(1,),
            site=build.site(23),
            grad_function="AddBackward0",
        )
    build.enter(classifier, build.site(24), inputs=(Item("", flat),))
    logits = build.op(
        "linear",
        "torch._C._nn.linear",
        (1, 10),
        (flat,),
        params=(2, 3),
        site=build.site(134),
        grad_function="AddmmBackward0",
    )
    build.leave(logits)
    build.output(logits)
    build.leave(logits)
    build.layers((tuple(turns),) if turns else ())
    return build


def _conv_net_aten(build: RecordBuilder) -> None:
    functions = {
        "conv2d": "aten.convolution.default",
        "relu": "aten.relu_.default",
        "maxpool2d": "aten.max_pool2d_with_indices.default",
        "flatten": "aten.view.default",
        "add": "aten.add.Tensor",
        "linear": "aten.addmm.default",
    }
    for op in build.record.ops:
        if op.kind == "op":
            extra = ()
            if op.name == "maxpool2d":
                extra = (build.value("activation", (1, 4, 4, 4), dtype="int64", producer=op.index),)
            build.aten(op.index, functions[op.name], extra)


def small_record() -> Record:
    """A feed-forward conv net: input, conv2d, relu, maxpool2d, flatten, linear, output."""
    build = _conv_net(0)
    _conv_net_aten(build)
    return build.record


def loop_record() -> Record:
    """``for _ in range(3): x = x + 1``: three ops, one layer with three passes, no submodules."""
    build = RecordBuilder(Record(_run("Loop", 5)))
    build.module("", "Loop", None)
    build.enter(0, None)
    x = build.input((2, 3))
    build.record.calls[0].inputs = (Item("0", x),)
    for _ in range(3):
        x = build.op("add", "torch.Tensor.add", (2, 3), (x,), extra_args=(1,), site=build.site(12))
    build.output(x)
    build.leave(x)
    build.layers(((1, 2, 3),))
    for op in build.record.ops[1:4]:
        build.aten(op.index, "aten.add.Tensor")
    return build.record


def make_record() -> Record:
    """The conv net with a loop of three passes, a recorded backward pass, saved values and diagnostics."""
    build = _conv_net(3)
    _conv_net_aten(build)
    record = build.record
    record.saved = {item.value: f"value.{item.value}" for op in record.ops for item in op.outputs}
    record.run.num_backward = 1
    linear = next(op for op in record.ops if op.name == "linear")
    linear.backward_time_ns = 2 * OP_NS
    logits = linear.outputs[0].value
    gradient = build.value("activation", (1, 10))
    record.aten.append(
        Op(
            len(record.aten),
            "op",
            "mm",
            "aten.mm.default",
            linear.call,
            None,
            args=(Ref(gradient), Opaque("Size")),
            owner=linear.index,
            phase="backward",
            node="AddmmBackward0",
        )
    )
    linear.aten = (*linear.aten, len(record.aten) - 1)
    record.gradients.append(Gradient(1, logits, None, (1, 10), "float32", 40, f"grad.{logits}"))
    record.gradients += [
        Gradient(1, None, index, param.shape, param.dtype, param.size_bytes, f"param_grad.{index}")
        for index, param in enumerate(record.params)
    ]
    record.diagnostics += [
        Diagnostic("unknown-origin", "The gradient's origin is not known.", op=linear.index),
        Diagnostic("thread-not-recorded", "One thread ran outside the capture.", module=1),
    ]
    return record
