"""T5: Hugging Face's encoder and decoder against one by hand with relative positions. Never used while developing."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

H, HEADS, D, FF, VOCAB, BUCKETS = 24, 3, 8, 40, 37, 8
BUGS = {
    "eps": Label("eps"),
    "norm_kind": Label("eps"),
    "activation": Label("activation"),
    "extra_scale": Label("scores"),
    "bias_missing": Label("bias_use softmax", missing_in_a="add"),
    "bias_transposed": Label("bias_use bias_make"),
    "buckets": Label("buckets bias_make"),
    "mask_value": Label("mask mask_use"),
    "not_causal": Label("mask mask_use softmax bias_use", missing_in_a="add"),
    "cross_swapped": Label("project"),
    "missing_residual": Label("eps", missing_in_a="add"),
    "missing_final_norm": Label("head", missing_in_a="mul"),
    "head_scale": Label("head", missing_in_a="mul"),
    "dropout_on": Label("dropout_on"),
    "memory_norm": Label("eps project"),
    "detached": Label("", tensor="encoder"),
}


class Stack(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor], name: str) -> None:
        super().__init__()
        self.bug, self.name = bug, name
        self.p = nn.ParameterDict(
            {
                k.removeprefix(f"{name}.").replace(".", "_"): v.clone()
                for k, v in state.items()
                if k.startswith(f"{name}.") and "embed_tokens" not in k
            }
        )

    def norm(self, x: torch.Tensor, name: str, bug: str | None = None) -> torch.Tensor:
        eps = 1e-2 if bug == "eps" else 1e-6
        if bug == "norm_kind":
            x = x - x.mean(-1, keepdim=True)  # @eps
        return x * (x.square().sum(-1, keepdim=True) / H + eps) ** -0.5 * self.p[f"{name}_weight"]  # @eps

    def bias(self, length: int) -> torch.Tensor:
        places = torch.arange(length)
        away = places[None, :] - places[:, None]
        away = away.T if self.bug == "bias_transposed" else away  # @bias_make
        count = BUCKETS
        if self.name == "encoder":
            count //= 2
            found = (away > 0).long() * count
            away = away.abs()
        else:
            found, away = torch.zeros_like(away), (-away).clamp(min=0)
        exact = count // 2
        far = 128 if self.bug != "buckets" else 8
        large = (
            exact + (torch.log(away.float().clamp(min=1e-9) / exact) / math.log(far / exact) * (count - exact)).long()
        )  # @buckets
        found = found + torch.where(away < exact, away, large.clamp(max=count - 1))  # @buckets
        return F.embedding(found, self.p["block_0_layer_0_SelfAttention_relative_attention_bias_weight"]).permute(
            2, 0, 1
        )[None]  # @bias_make

    def attend(
        self, x: torch.Tensor, memory: torch.Tensor, name: str, bias: torch.Tensor | None, bug: str | None
    ) -> torch.Tensor:
        b = len(x)
        sources = (memory, x) if bug == "cross_swapped" and "Enc" in name and memory.shape == x.shape else (x, memory)
        q = (sources[0] @ self.p[f"{name}_q_weight"].t()).view(b, -1, HEADS, D)  # @project
        k = (sources[1] @ self.p[f"{name}_k_weight"].t()).view(b, -1, HEADS, D)  # @project
        v = (sources[1] @ self.p[f"{name}_v_weight"].t()).view(b, -1, HEADS, D)  # @project
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)  # @scores
        if bug == "extra_scale":
            scores = scores / D**0.5  # @scores
        if bias is not None:
            scores = scores + bias  # @bias_use @mask_use
        probs = torch.softmax(scores, -1)  # @softmax @bias_use
        if bug == "dropout_on":
            probs = F.dropout(probs, 0.1)  # @dropout_on
        return torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2) @ self.p[f"{name}_o_weight"].t()

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        bias = None if self.bug == "bias_missing" else self.bias(x.shape[1])
        if memory is not None and self.bug != "not_causal":
            value = -0.5 if self.bug == "mask_value" else -1e9
            mask = torch.ones(x.shape[1], x.shape[1]).triu(1) * value  # @mask
            bias = mask if bias is None else bias + mask  # @mask
        for at in range(2):
            bug = self.bug if at == 0 else None
            y = self.norm(x, f"block_{at}_layer_0_layer_norm", bug)
            y = self.attend(y, y, f"block_{at}_layer_0_SelfAttention", bias, bug)
            x = y if bug == "missing_residual" else x + y
            last = 1
            if memory is not None:
                source = self.norm(memory, f"block_{at}_layer_1_layer_norm") if bug == "memory_norm" else memory
                y = self.norm(x, f"block_{at}_layer_1_layer_norm")
                x = x + self.attend(y, source, f"block_{at}_layer_1_EncDecAttention", None, bug)
                last = 2
            y = (
                self.norm(x, f"block_{at}_layer_{last}_layer_norm")
                @ self.p[f"block_{at}_layer_{last}_DenseReluDense_wi_weight"].t()
            )
            y = F.gelu(y) if bug == "activation" else y * (y > 0)  # @activation
            x = x + y @ self.p[f"block_{at}_layer_{last}_DenseReluDense_wo_weight"].t()
        if self.bug == "missing_final_norm" and memory is not None:
            return x
        return self.norm(x, "final_layer_norm")


class T5(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        self.words = nn.Parameter(state["shared.weight"].clone())
        self.encoder = Stack(
            bug if bug in ("eps", "norm_kind", "extra_scale", "buckets", "bias_transposed") else None, state, "encoder"
        )
        self.decoder = Stack(bug, state, "decoder")

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.words[source])
        if self.bug == "detached":
            memory = memory.detach()
        y = self.decoder(self.words[target], memory)
        if self.bug != "head_scale":
            y = y * H**-0.5  # @head
        return torch.einsum("btd,vd->btv", y, self.words)  # @head


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=source, decoder_input_ids=target, use_cache=False).logits


def make(bug: str | None, seed: int) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCAB, d_model=H, d_kv=D, d_ff=FF, num_layers=2, num_heads=HEADS, dropout_rate=0.0,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=128, tie_word_embeddings=True,
    )  # fmt: skip
    a = lively(T5ForConditionalGeneration(config), seed)
    b = T5(bug, a.state_dict())
    source = torch.Generator().manual_seed(seed + 100)
    ids = torch.randint(1, VOCAB, (2, 7), generator=source), torch.randint(1, VOCAB, (2, 7), generator=source)
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(Wrapped(a), b, ids)
