"""BERT: Hugging Face's against one written by hand with a fused qkv projection and batched matrix products."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

H, HEADS, FF, LAYERS, VOCAB = 32, 4, 64, 2, 50
BUGS = {
    "eps": Label("eps"),
    "gelu_kind": Label("gelu_kind"),
    "activation": Label("gelu_kind"),
    "norm_order": Label("norm_order"),
    "missing_bias": Label("missing_bias"),
    "transposed_weight": Label("transposed_weight"),
    "missing_scale": Label("missing_scale softmax"),
    "mask_value": Label("mask_value"),
    "mask_ignored": Label("mask_value mask_use softmax"),
    "dropout_on": Label("dropout_on"),
    "missing_residual": Label("missing_residual", missing_in_a="add"),
    "position_offset": Label("position_offset"),
    "swapped_qk": Label("swapped_qk missing_scale"),
    "softmax_axis": Label("softmax"),
    "token_types": Label("token_types token_sum", missing_in_a="add"),
    "pooled_token": Label("pooled_token"),
    "missing_embedding_norm": Label("eps missing_embedding_norm", missing_in_a="native_layer_norm"),
    "padding_idx": Label("", tensor="tok.weight"),
    "detached": Label("", tensor="pos.weight"),
}


class Layer(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.qkv = nn.Linear(H, 3 * H)
        self.out = nn.Linear(H, H)
        self.up = nn.Linear(H, FF)
        self.down = nn.Linear(FF, H)
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(H)) for _ in range(4)])

    def norm(self, x: torch.Tensor, first: int) -> torch.Tensor:
        eps = 1e-2 if self.bug == "eps" and first else 1e-12
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)  # @eps
        return scaled * self.norms[first] + self.norms[first + 1]  # @eps

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).unbind(2)
        if self.bug == "swapped_qk":
            q, k = k, q
        scores = torch.einsum("bihd,bjhd->bhij", q, k)  # @swapped_qk @missing_scale
        if self.bug != "missing_scale":
            scores = scores / math.sqrt(H // HEADS)  # @missing_scale
        if self.bug != "mask_ignored":
            scores = scores + mask  # @mask_use @missing_scale
        probs = scores.softmax(-2 if self.bug == "softmax_axis" else -1)  # @softmax
        if self.bug == "dropout_on":
            probs = F.dropout(probs, 0.1, training=True)  # @dropout_on
        mixed = torch.einsum("bhij,bjhd->bihd", probs, v).reshape(b, t, H)
        mixed = F.linear(
            mixed, self.weight(self.out), None if self.bug == "missing_bias" else self.out.bias
        )  # @missing_bias @transposed_weight
        if self.bug == "norm_order":
            x = x + self.norm(mixed, 0)  # @norm_order @eps
        else:
            x = self.norm(mixed if self.bug == "missing_residual" else x + mixed, 0)  # @missing_residual
        inner = self.up(x)
        if self.bug == "activation":
            inner = F.relu(inner)  # @gelu_kind
        else:
            inner = F.gelu(inner, approximate="tanh" if self.bug == "gelu_kind" else "none")  # @gelu_kind
        return self.norm(x + self.down(inner), 2)

    def weight(self, linear: nn.Linear) -> torch.Tensor:
        return linear.weight.t() if self.bug == "transposed_weight" else linear.weight  # @transposed_weight


class Bert(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.tok = nn.Embedding(VOCAB, H, padding_idx=3 if bug == "padding_idx" else 0)
        self.pos = nn.Embedding(40, H)
        self.typ = nn.Embedding(2, H)
        self.gain, self.bias = nn.Parameter(torch.ones(H)), nn.Parameter(torch.zeros(H))
        self.layers = nn.ModuleList([Layer(bug if i == 1 else None) for i in range(LAYERS)])
        self.pool = nn.Linear(H, H)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(ids.shape[1])
        if self.bug == "position_offset":
            places = places + 1  # @position_offset
        spots = self.pos(places)  # @position_offset
        if self.bug == "detached":
            spots = spots.detach()
        x = self.tok(ids) + spots  # @token_sum
        if self.bug != "token_types":
            x = x + self.typ.weight[0]  # @token_types
        if self.bug != "missing_embedding_norm":
            x = F.layer_norm(x, (H,), self.gain, self.bias, 1e-12)  # @token_types
        value = -1.0 if self.bug == "mask_value" else torch.finfo(x.dtype).min
        extended = (1.0 - mask[:, None, None, :].to(x.dtype)) * value  # @mask_value
        for _index, layer in enumerate(self.layers):
            x = layer(x, extended)  # @missing_embedding_norm
        first = x[:, 1 if self.bug == "pooled_token" else 0]  # @pooled_token
        return x, torch.tanh(self.pool(first))  # @pooled_token


def make(bug: str | None, seed: int, attention: str = "eager") -> Case:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCAB, hidden_size=H, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FF,
        max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    a, b = lively(BertModel(config), seed), Bert(bug)
    s = a.state_dict()
    new = {
        "tok.weight": s["embeddings.word_embeddings.weight"],
        "pos.weight": s["embeddings.position_embeddings.weight"],
    }
    new |= {"typ.weight": s["embeddings.token_type_embeddings.weight"], "gain": s["embeddings.LayerNorm.weight"]}
    new |= {"bias": s["embeddings.LayerNorm.bias"]}
    for kind in ("weight", "bias"):
        new[f"pool.{kind}"] = s[f"pooler.dense.{kind}"]
        for i in range(LAYERS):
            old = f"encoder.layer.{i}."
            names = [f"{old}attention.self.{part}.{kind}" for part in ("query", "key", "value")]
            new[f"layers.{i}.qkv.{kind}"] = torch.cat([s[name] for name in names])
            new[f"layers.{i}.out.{kind}"] = s[f"{old}attention.output.dense.{kind}"]
            new[f"layers.{i}.up.{kind}"] = s[f"{old}intermediate.dense.{kind}"]
            new[f"layers.{i}.down.{kind}"] = s[f"{old}output.dense.{kind}"]
            shift = kind == "bias"
            new[f"layers.{i}.norms.{0 + shift}"] = s[f"{old}attention.output.LayerNorm.{kind}"]
            new[f"layers.{i}.norms.{2 + shift}"] = s[f"{old}output.LayerNorm.{kind}"]
    b.load_state_dict(new)
    source = torch.Generator().manual_seed(seed + 100)
    ids = torch.randint(1, VOCAB, (3, 9), generator=source)
    ids[0, :2] = 3
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    training = seed % 2 == 1
    a.train(training)
    b.train(training)
    return Case(Wrapped(a), b, (ids, mask))


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.model(input_ids=ids, attention_mask=mask)
        return out.last_hidden_state, out.pooler_output
