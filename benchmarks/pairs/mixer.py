"""MLP-Mixer: modules on tokens against einsums on an image grid. Never used while the comparison was developed."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

C, TOKENS, T_HID, C_HID, CLASSES = 20, 16, 24, 40, 6
BUGS = {
    "eps": Label("eps"),
    "gelu_kind": Label("gelu"),
    "activation": Label("gelu"),
    "missing_bias": Label("", tensor="tokens_2_bias"),  # the norm after it takes it away again
    "transposed_mix": Label("mix"),
    "missing_residual": Label("channel_norm", missing_in_a="add"),
    "norm_order": Label("norm_order"),
    "missing_final_norm": Label("pool", missing_in_a="native_layer_norm"),
    "pool_kind": Label("pool"),
    "pool_axis": Label("pool"),
    "dropout_on": Label("dropout_on"),
    "patch_order": Label("patches embed"),
    "reused_block": Label("reused blocks_loop mix eps"),
    "detached": Label("", tensor="embed"),
}


class BlockA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.tokens = nn.Sequential(nn.Linear(TOKENS, T_HID), nn.GELU(), nn.Linear(T_HID, TOKENS))
        self.channels = nn.Sequential(nn.Linear(C, C_HID), nn.GELU(), nn.Linear(C_HID, C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MixerA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, C, 4, 4)
        self.blocks = nn.Sequential(BlockA(), BlockA(), BlockA())
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class MixerB(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        self.p = nn.ParameterDict({name.replace(".", "_"): value.clone() for name, value in state.items()})
        self.embed = nn.Parameter(state["stem.weight"].reshape(C, -1).t().clone())
        del self.p["stem_weight"]

    def norm(self, x: torch.Tensor, name: str, *, eps: float = 1e-5) -> torch.Tensor:
        spread, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        x = (x - mean) / (spread + eps).sqrt()  # @eps
        return torch.addcmul(self.p[f"{name}_bias"], x, self.p[f"{name}_weight"])

    def mlp(self, x: torch.Tensor, name: str, plan: str) -> torch.Tensor:
        first, last = self.p[f"{name}_0_weight"], self.p[f"{name}_2_weight"]
        if self.bug == "transposed_mix" and name == "blocks_1_tokens":
            last = last.flip(0)  # @mix
        y = torch.einsum(plan, x, first)  # @mix
        bias = self.p[f"{name}_0_bias"]
        y = y + (bias if plan.endswith("bth") else bias[:, None])  # @mix
        if self.bug == "activation":
            y = F.elu(y)  # @gelu
        else:
            y = F.gelu(y, approximate="tanh" if self.bug == "gelu_kind" else "none")  # @gelu
        if self.bug == "dropout_on":
            y = F.dropout(y, 0.1)  # @dropout_on
        if plan.endswith("bth"):
            return torch.einsum("bth,ch->btc", y, last) + self.p[f"{name}_2_bias"]
        y = torch.einsum("bhc,th->btc", y, last)  # @mix
        return y if self.bug == "missing_bias" else y + self.p[f"{name}_2_bias"][:, None]  # @mix

    def block(self, x: torch.Tensor, at: int) -> torch.Tensor:
        name, eps = f"blocks_{at}", 1e-2 if self.bug == "eps" else 1e-5
        if self.bug == "norm_order":
            x = self.norm(x + self.mlp(x, f"{name}_tokens", "btc,ht->bhc"), f"{name}_norm1")  # @norm_order
        else:
            y = self.mlp(self.norm(x, f"{name}_norm1", eps=eps), f"{name}_tokens", "btc,ht->bhc")  # @reused
            x = y if self.bug == "missing_residual" else x + y
        y = self.norm(x, f"{name}_norm2")  # @channel_norm
        return x + self.mlp(y, f"{name}_channels", "btc,hc->bth")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, _, h, w = x.shape
        grid = x.view(b, 3, h // 4, 4, w // 4, 4)
        order = (0, 4, 2, 1, 3, 5) if self.bug == "patch_order" else (0, 2, 4, 1, 3, 5)
        grid = grid.permute(order).reshape(b, TOKENS, 48)  # @patches
        x = grid @ self.embed + self.p["stem_bias"]  # @embed
        if self.bug == "detached":
            x = x.detach()
        for at in (0, 1, 1) if self.bug == "reused_block" else (0, 1, 2):
            x = self.block(x, at)  # @blocks_loop
        if self.bug != "missing_final_norm":
            x = self.norm(x, "norm")
        if self.bug == "pool_kind":
            x = x.amax(1)  # @pool
        elif self.bug == "pool_axis":
            x = x[:, 0]  # @pool
        else:
            x = x.sum(1) / TOKENS  # @pool
        return torch.addmm(self.p["head_bias"], x, self.p["head_weight"].t())  # @pool


def make(bug: str | None, seed: int) -> Case:
    a = lively(MixerA(), seed)
    b = MixerB(bug, a.state_dict())
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(a, b, torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(seed + 100)))
