"""Which ATen functions do the same job, and which steps an op is written out in."""

from __future__ import annotations

# Functions that do the same job: one side's may stand for the other's.
_FAMILIES = (
    "mm addmm bmm baddbmm matmul linear mv dot einsum addmv convolution mkldnn_convolution _convolution",
    "add add_ sub sub_ rsub",
    "mul mul_ div div_",
    "native_layer_norm native_group_norm _fused_rms_norm rms_norm native_batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_no_training cudnn_batch_norm _batch_norm_impl_index",
    "_softmax _safe_softmax softmax _log_softmax",
    "relu relu_ gelu silu silu_ tanh sigmoid leaky_relu elu hardtanh threshold clamp_min mish hardswish softplus prelu"
    " _prelu_kernel leaky_relu_ elu_ hardtanh_",
    "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d mean sum amax",
    "masked_fill masked_fill_ where",
    "embedding index_select index",
    "mkldnn_rnn_layer lstm gru _thnn_fused_lstm_cell",
)
_FAMILY = {name: place for place, names in enumerate(_FAMILIES) for name in names.split()}


# Steps that an op is written out in, any of which may come first.
_NORM_STEPS = ("mean", "var", "var_mean", "sub", "pow", "mul", "sum")
STEPS = {
    "native_layer_norm": _NORM_STEPS,
    "native_group_norm": _NORM_STEPS,
    "native_batch_norm": _NORM_STEPS,
    "_native_batch_norm_legit_no_training": _NORM_STEPS,
    "_fused_rms_norm": _NORM_STEPS,
    "_softmax": ("amax", "max", "sub", "exp"),
    "silu": ("sigmoid", "neg"),
    "gelu": ("mul", "pow", "div", "erf"),
}


def family(name: str) -> int | str:
    """What job a function does."""
    return _FAMILY.get(name, name.rstrip("_"))
