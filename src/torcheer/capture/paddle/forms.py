"""How Paddle's layers name and lay out their tensors, told against the common form, which is PyTorch's.

A layer that is not here has the names and layouts of the PyTorch layer of the same name: Conv1D, 2D and 3D, Embedding,
GroupNorm, the cells, and all layers without tensors.
"""

from __future__ import annotations

from torcheer.diff.forms import Form, cell, register

FRAMEWORK = "paddle"
# The running variance: Paddle's is of the batch as it is, PyTorch's an estimate with n - 1.
_STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
_TURNED = {"weight": "transpose"}  # Paddle multiplies from the left: (in, out)
_STATE = ("_dropout_state",)  # random state of a fused recurrent layer
_PROJECTIONS = tuple(f"{part}_proj" for part in "qkv")

FORMS: dict[str, Form] = {
    "Linear": Form("linear", transforms=_TURNED),
    **{
        name: Form("batchnorm", names=_STATISTICS)
        for name in ("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D")
    },
    "SyncBatchNorm": Form("batchnorm", names=_STATISTICS),
    **{f"InstanceNorm{n}D": Form("instancenorm", names={"scale": "weight"}) for n in (1, 2, 3)},
    "LayerNorm": Form("layernorm", transforms={"weight": "flatten", "bias": "flatten"}),
    **{f"Conv{n}DTranspose": Form(f"convtranspose{n}d") for n in (1, 2, 3)},
    "PReLU": Form("prelu", names={"_weight": "weight"}),
    "Bilinear": Form("bilinear", transforms={"bias": "flatten"}),
    "LSTM": Form("lstm", skipped=_STATE),
    "GRU": Form("gru", skipped=_STATE),
    "SimpleRNN": Form("rnn", skipped=_STATE),
    "SimpleRNNCell": cell("rnn"),
    "LSTMCell": cell("lstm"),
    "GRUCell": cell("gru"),
    "MultiHeadAttention": Form(
        "multiheadattention", transforms={f"{name}.weight": "transpose" for name in _PROJECTIONS}
    ),
}
# Layers that are mapped with the named layers below them as one, since the other framework has one tensor for them.
ABSORBED = {"MultiHeadAttention": _PROJECTIONS}

for _type_name, _form in FORMS.items():
    register(FRAMEWORK, _type_name, _form)
