"""Layers that do more inside than one call shows: recurrent, attention, einsum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory

_NESTED = pytest.mark.filterwarnings(r"ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")


class Packed(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.rnn = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True)[0]


def packed(kind: type) -> Any:
    return model_of(lambda: (Packed(kind), torch.randn(3, 5, 3), torch.tensor([5, 2, 3])))


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(3, 4)
        self.gru = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        hidden = torch.zeros(x.shape[1], 4)
        for step in x:
            state = self.lstm(step, state)
            hidden = self.gru(state[0], hidden)
        return hidden


def encoder(training: bool, **kwargs: Any) -> Any:
    def build() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).train(training)
        return model, (torch.randn(2, 5, 8),), {name: make() for name, make in kwargs.items()}

    return build


def padding() -> Tensor:
    return torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def causal() -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(5)


def float_padding() -> Tensor:
    return torch.zeros(2, 5).masked_fill_(padding(), float("-inf"))


class Attention(nn.Module):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **kwargs)

    def forward(self, x: Tensor, **kwargs: Any) -> Any:
        return self.attention(x, x, x, **kwargs)


def attention(training: bool, options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    return lambda: (Attention(**(options or {})).train(training), (torch.randn(2, 5, 8),), kwargs)


class Sdpa(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5).tril().bool())
        return causal + dropped + masked


class Einsum(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.einsum("ij,jk->ik", a, b) @ c + torch.einsum("ij,jk,kl->il", a, b, c)


def check_sdpa(history: ModelHistory) -> None:
    found = [op for op in history if op.name == "scaleddotproductattention"]
    assert len(found) == 3
    assert all(op.aten and len(op.parents) == 1 for op in found[:2])
    assert {parent.name for parent in found[2].parents} == {"unbind", "bool"} or len(found[2].parents) == 2


def check_einsum(history: ModelHistory) -> None:
    first, second = (op for op in history if op.name == "einsum")
    assert first.parents == history.inputs[:2]
    assert second.parents == history.inputs
    assert any(inner.function.startswith("aten.bmm") or inner.function.startswith("aten.mm") for inner in first.aten)


def check_fast_path(history: ModelHistory) -> None:
    functions = {op.function for op in history.record.aten}
    assert "aten._transformer_encoder_layer_fwd.default" in functions
    assert "aten.native_layer_norm.default" not in functions


def check_slow_path(history: ModelHistory) -> None:
    functions = {op.function for op in history.record.aten}
    assert "aten._transformer_encoder_layer_fwd.default" not in functions
    assert "aten.native_layer_norm.default" in functions
    names = [op.name for op in history]
    assert names.count("scaleddotproductattention") == 2
    assert names.count("linear") == 8


CASES = [
    Case(
        "lstm", model_of(lambda: (nn.LSTM(3, 4, 2, bidirectional=True, dropout=0.2), torch.randn(5, 2, 3))),
        names=("lstm",),
        check=lambda history: _assert_inside(history, "lstm", 10),
    ),
    Case(
        "gru", model_of(lambda: (nn.GRU(3, 4, 2), torch.randn(5, 2, 3), torch.randn(2, 2, 4))), names=("gru",),
        check=lambda history: _assert_inside(history, "gru", 10),
    ),
    Case(
        "rnn", model_of(lambda: (nn.RNN(3, 4), torch.randn(5, 2, 3))), names=("rnntanh",),
        check=lambda history: _assert_inside(history, "rnntanh", 10),
    ),
    Case("packed_lstm", packed(nn.LSTM), names=("lstm", "packpaddedsequence"), min_ops=3),
    Case("packed_gru", packed(nn.GRU), names=("gru", "padpackedsequence"), min_ops=3),
    Case("rnn_cells", model_of(lambda: (Cells(), torch.randn(4, 2, 3))), names=("lstmcell", "grucell"), min_ops=9),
    Case("multihead_attention", attention(True), min_ops=3),
    Case("multihead_attention_eval", attention(False), min_ops=3),
    Case(
        "multihead_attention_fast_path", attention(False), torch.no_grad, names=("nativemultiheadattention",),
        aten=("aten._native_multi_head_attention",),
    ),
    Case("multihead_attention_no_weights", attention(True, need_weights=False), names=("scaleddotproductattention",)),
    Case("multihead_attention_options", attention(True, {"dropout": 0.3, "add_bias_kv": True, "add_zero_attn": True})),
    Case(
        "multihead_attention_padding", attention(False, key_padding_mask=padding()), torch.no_grad,
        names=("nativemultiheadattention",),
    ),
    Case("transformer_encoder_train", encoder(True), names=("linear", "layernorm"), min_ops=20, check=check_slow_path),
    Case("transformer_encoder_eval", encoder(False), min_ops=20, check=check_slow_path),
    Case(
        "transformer_encoder_fast_path", encoder(False), torch.no_grad, names=("transformerencoderlayerfwd",),
        min_ops=2, check=check_fast_path,
    ),
    Case(
        "transformer_encoder_inference", encoder(False), torch.inference_mode, names=("transformerencoderlayerfwd",),
        min_ops=2, check=check_fast_path,
    ),
    Case(
        "transformer_encoder_padding", encoder(False, src_key_padding_mask=padding), torch.no_grad,
        names=("transformerencoderlayerfwd",), min_ops=2, check=check_fast_path, marks=(_NESTED,),
    ),
    Case(
        "transformer_encoder_causal", encoder(False, mask=causal, is_causal=lambda: True), torch.no_grad,
        names=("transformerencoderlayerfwd",), min_ops=2, check=check_fast_path,
    ),
    Case("transformer_encoder_both_masks", encoder(False, mask=causal, src_key_padding_mask=float_padding), min_ops=2),
    Case("sdpa", model_of(lambda: (Sdpa(), torch.randn(2, 5, 8))), min_ops=8, check=check_sdpa),
    Case(
        "einsum", model_of(lambda: (Einsum(), torch.randn(2, 3), torch.randn(3, 4), torch.randn(4, 2))),
        names=("einsum", "add"), min_ops=3, check=check_einsum,
    ),
]  # fmt: skip


def _assert_inside(history: ModelHistory, name: str, least: int) -> None:
    (found,) = (op for op in history if op.name == name)
    assert len(found.aten) >= least
    assert found.params
