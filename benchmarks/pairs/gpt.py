"""GPT-2: Hugging Face's (Conv1D, fused) against one with separate projections and a causal mask of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

H, HEADS, LAYERS, VOCAB, LENGTH = 32, 4, 2, 61, 10
BUGS = {
    "eps": Label("eps"),
    "gelu_kind": Label("gelu_kind"),
    "activation": Label("gelu_kind"),
    "norm_order": Label("norm_order"),
    "missing_bias": Label("missing_bias"),
    "transposed_weight": Label("transposed_weight"),
    "missing_scale": Label("missing_scale fill", missing_in_a="mul"),
    "causal_off_by_one": Label("causal_off_by_one fill"),
    "mask_value": Label("fill mask_value"),
    "not_causal": Label("fill softmax", missing_in_a="masked_fill"),
    "dropout_on": Label("dropout_on"),
    "missing_residual": Label("missing_residual", missing_in_a="add"),
    "position_offset": Label("position_offset"),
    "swapped_kv": Label("missing_scale scores"),
    "missing_final_norm": Label("head missing_final_norm", missing_in_a="native_layer_norm"),
    "heads_merged_wrong": Label("heads_merged_wrong missing_bias transposed_weight"),
    "tied_broken": Label("", tensor="head"),
    "detached": Label("", tensor="pos"),
}


class Attention(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.q, self.k, self.v, self.proj = (nn.Linear(H, H) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, HEADS, H // HEADS).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.bug == "swapped_kv":
            k, v = v, k
        if self.bug != "missing_scale":
            q = q * (H // HEADS) ** -0.5
        scores = q @ k.mT  # @missing_scale @scores
        offset = 2 if self.bug == "causal_off_by_one" else 1
        future = torch.ones(t, t, dtype=torch.bool).triu(offset)  # @causal_off_by_one
        if self.bug != "not_causal":
            scores = scores.masked_fill(future, -5.0 if self.bug == "mask_value" else -torch.inf)  # @fill
        probs = F.softmax(scores, -1)  # @softmax
        if self.bug == "dropout_on":
            probs = F.dropout(probs, 0.2)  # @dropout_on
        mixed = probs @ v
        if self.bug == "heads_merged_wrong":
            mixed = mixed.reshape(b, t, H)  # @heads_merged_wrong
        if self.bug != "heads_merged_wrong":
            mixed = mixed.transpose(1, 2).reshape(b, t, H)
        if self.bug == "transposed_weight":
            return F.linear(mixed, self.proj.weight.t(), self.proj.bias)  # @transposed_weight
        return F.linear(
            mixed, self.proj.weight, None if self.bug == "missing_bias" else self.proj.bias
        )  # @missing_bias @transposed_weight


class Block(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.ln1 = nn.LayerNorm(H, eps=1e-2 if bug == "eps" else 1e-5)
        self.ln2 = nn.LayerNorm(H)
        self.attn = Attention(bug)
        self.fc, self.out = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bug == "norm_order":
            x = self.ln1(x + self.attn(x))  # @norm_order
        else:
            y = self.attn(self.ln1(x))  # @eps
            x = y if self.bug == "missing_residual" else x + y
        y = self.fc(self.ln2(x))  # @missing_residual
        if self.bug == "gelu_kind":
            y = F.gelu(y)  # @gelu_kind
        elif self.bug == "activation":
            y = F.silu(y)  # @gelu_kind
        else:
            y = 0.5 * y * (1 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
        return x + self.out(y)


class GPT(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.tok, self.pos = nn.Parameter(torch.zeros(VOCAB, H)), nn.Parameter(torch.zeros(32, H))
        self.blocks = nn.Sequential(Block(bug), Block(None))
        self.norm = nn.LayerNorm(H)
        if bug == "tied_broken":
            self.head = nn.Parameter(torch.zeros(VOCAB, H))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        start = 1 if self.bug == "position_offset" else 0
        spots = self.pos[start : start + ids.shape[1]]  # @position_offset
        if self.bug == "detached":
            spots = spots.data
        x = F.embedding(ids, self.tok) + spots  # @position_offset
        x = self.blocks(x)
        if self.bug != "missing_final_norm":
            x = self.norm(x)
        return x @ (self.head if self.bug == "tied_broken" else self.tok).t()  # @head


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits


def make(bug: str | None, seed: int, attention: str = "sdpa") -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB, n_positions=32, n_embd=H, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation=attention,
    )  # fmt: skip
    a, b = lively(GPT2LMHeadModel(config), seed), GPT(bug)
    s = a.state_dict()
    new = {"tok": s["transformer.wte.weight"], "pos": s["transformer.wpe.weight"]}
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"] = s[f"transformer.ln_f.{kind}"]
        for i in range(LAYERS):
            old = f"transformer.h.{i}."
            for at, name in enumerate("qkv"):
                new[f"blocks.{i}.attn.{name}.{kind}"] = (
                    s[f"{old}attn.c_attn.{kind}"].t().chunk(3)[at]
                    if kind == "weight"
                    else s[f"{old}attn.c_attn.{kind}"].chunk(3)[at]
                )
            for mine, theirs in (("attn.proj", "attn.c_proj"), ("fc", "mlp.c_fc"), ("out", "mlp.c_proj")):
                new[f"blocks.{i}.{mine}.{kind}"] = (
                    s[f"{old}{theirs}.{kind}"].t() if kind == "weight" else s[f"{old}{theirs}.{kind}"]
                )
            for mine, theirs in (("ln1", "ln_1"), ("ln2", "ln_2")):
                new[f"blocks.{i}.{mine}.{kind}"] = s[f"{old}{theirs}.{kind}"]
    if bug == "tied_broken":
        new["head"] = s["transformer.wte.weight"]
    b.load_state_dict(new)
    ids = torch.randint(0, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(seed + 100))
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(Wrapped(a), b, ids)
