"""Llama with grouped queries: Hugging Face's against one with complex rotary embeddings and fused gates."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

H, HEADS, KV, D, FF, LAYERS, VOCAB = 32, 4, 2, 8, 48, 2, 53
BUGS = {
    "eps": Label("eps"),
    "activation": Label("activation"),
    "norm_kind": Label("norm_kind eps"),
    "missing_scale": Label("missing_scale fill"),
    "causal_off_by_one": Label("causal_off_by_one fill"),
    "rotary_sign": Label("rotary rotary_table"),
    "rotary_base": Label("rotary_base rotary_table"),
    "rotary_on_v": Label("rotary"),
    "position_offset": Label("rotary_table"),
    "kv_repeat": Label("kv_repeat missing_scale"),
    "gate_swapped": Label("activation gate_swapped"),
    "missing_residual": Label("missing_residual", missing_in_a="add"),
    "missing_final_norm": Label("head", missing_in_a="mul mean pow"),
    "dropout_on": Label("dropout_on"),
    "wrong_reduction_axis": Label("eps"),
    "missing_key_rotary": Label("missing_key_rotary missing_scale", missing_in_a="mul"),
}


class Block(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.n1, self.n2 = nn.Parameter(torch.ones(H)), nn.Parameter(torch.ones(H))
        self.wqkv = nn.Parameter(torch.zeros(H, (HEADS + 2 * KV) * D))
        self.wo = nn.Parameter(torch.zeros(HEADS * D, H))
        self.w13 = nn.Parameter(torch.zeros(H, 2 * FF))
        self.w2 = nn.Parameter(torch.zeros(FF, H))

    def norm(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        eps = 1e-1 if self.bug == "eps" else 1e-6
        if self.bug == "norm_kind":
            return F.layer_norm(x, (H,), gain, None, eps)  # @norm_kind
        axis = 1 if self.bug == "wrong_reduction_axis" else -1
        return x / (x.pow(2).mean(axis, keepdim=True) + eps).sqrt() * gain  # @eps

    def rotate(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(torch.stack(x.float().chunk(2, -1), -1))
        turned = pairs * (turn.conj() if self.bug == "rotary_sign" else turn)  # @rotary
        return torch.cat((turned.real, turned.imag), -1)  # @rotary

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        h = self.norm(x, self.n1)
        q, k, v = (h @ self.wqkv).split((HEADS * D, KV * D, KV * D), -1)
        q, k, v = (one.view(b, t, -1, D).transpose(1, 2) for one in (q, k, v))
        q = self.rotate(q, turn)
        if self.bug != "missing_key_rotary":
            k = self.rotate(k, turn)
        if self.bug == "rotary_on_v":
            v = self.rotate(v, turn)
        if self.bug == "kv_repeat":
            k, v = k.repeat(1, HEADS // KV, 1, 1), v.repeat(1, HEADS // KV, 1, 1)  # @kv_repeat
        else:
            k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        scores = torch.matmul(q, k.transpose(2, 3))  # @missing_scale @missing_key_rotary
        if self.bug != "missing_scale":
            scores = scores * D**-0.5  # @missing_key_rotary
        late = torch.full((t, t), -torch.inf)
        late = torch.triu(late, 2 if self.bug == "causal_off_by_one" else 1)  # @causal_off_by_one
        scores = scores + late  # @fill
        probs = scores.softmax(-1)  # @softmax
        if self.bug == "dropout_on":
            probs = F.dropout(probs, 0.1)  # @dropout_on
        mixed = (probs @ v).transpose(1, 2).reshape(b, t, HEADS * D) @ self.wo
        x = mixed if self.bug == "missing_residual" else x + mixed
        gate, up = (self.norm(x, self.n2) @ self.w13).chunk(2, -1)  # @missing_residual
        if self.bug == "gate_swapped":
            gate, up = up, gate
        inner = F.gelu(gate) if self.bug == "activation" else gate * torch.sigmoid(gate)  # @activation
        return x + (inner * up) @ self.w2


class Llama(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.tok = nn.Embedding(VOCAB, H)
        self.blocks = nn.ModuleList([Block(bug if i == 0 else None) for i in range(LAYERS)])
        self.gain = nn.Parameter(torch.ones(H))
        self.head = nn.Linear(H, VOCAB, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        t = ids.shape[1]
        base = 500.0 if self.bug == "rotary_base" else 10000.0
        speed = 1.0 / base ** (torch.arange(0, D, 2).float() / D)  # @rotary_base @rotary_table
        places = torch.arange(t, dtype=torch.float32)
        if self.bug == "position_offset":
            places = places * 2  # @rotary_table
        angles = torch.outer(places, speed)  # @rotary_table
        turn = torch.polar(torch.ones_like(angles), angles)  # @rotary_table
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x, turn)
        if self.bug != "missing_final_norm":
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        return self.head(x)  # @head


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits


def make(bug: str | None, seed: int, attention: str = "sdpa") -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV, head_dim=D, max_position_embeddings=64, attn_implementation=attention,
    )  # fmt: skip
    a, b = lively(LlamaForCausalLM(config), seed), Llama(bug)
    s = a.state_dict()
    new = {
        "tok.weight": s["model.embed_tokens.weight"],
        "gain": s["model.norm.weight"],
        "head.weight": s["lm_head.weight"],
    }
    for i in range(LAYERS):
        old, mine = f"model.layers.{i}.", f"blocks.{i}."
        parts = [s[f"{old}self_attn.{name}_proj.weight"] for name in "qkv"]
        new[f"{mine}wqkv"] = torch.cat(parts).t()
        new[f"{mine}wo"] = s[f"{old}self_attn.o_proj.weight"].t()
        new[f"{mine}w13"] = torch.cat([s[f"{old}mlp.gate_proj.weight"], s[f"{old}mlp.up_proj.weight"]]).t()
        new[f"{mine}w2"] = s[f"{old}mlp.down_proj.weight"].t()
        new[f"{mine}n1"], new[f"{mine}n2"] = (
            s[f"{old}input_layernorm.weight"],
            s[f"{old}post_attention_layernorm.weight"],
        )
    b.load_state_dict(new)
    ids = torch.randint(0, VOCAB, (2, 7), generator=torch.Generator().manual_seed(seed + 100))
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(Wrapped(a), b, ids)
