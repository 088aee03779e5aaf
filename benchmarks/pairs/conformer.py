"""A conformer block and a gated recurrent tagger on top, against functions. Written after all others; scored once."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

C, HEADS, FF, K, CLASSES = 16, 2, 32, 3, 5
BUGS = {
    "eps": Label("norm_eps"),
    "half_step": Label("half"),
    "activation": Label("activation"),
    "glu_halves": Label("glu"),
    "conv_padding": Label("depthwise"),
    "conv_norm": Label("batch"),
    "missing_bias": Label("pointwise"),
    "attention_scale": Label("scores probs", missing_in_a="mul div"),
    "head_order": Label("heads scores merge"),
    "padding_mask": Label("masked probs"),
    "missing_residual": Label("block_end attend_norm", missing_in_a="add"),
    "missing_last_norm": Label("gates", missing_in_a="native_layer_norm"),
    "reset_gate": Label("candidate"),
    "update_gate": Label("update"),
    "reverse_direction": Label("walk gates"),
    "state_init": Label("start gates"),
    "pooling": Label("pool"),
    "dropout_on": Label("dropout_on"),
    "batch_swapped": Label("pool gates entry"),
    "detached": Label("", tensor="entry"),
}


class ModelA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(7, C)
        self.ff_norm, self.ff = nn.LayerNorm(C), nn.Sequential(nn.Linear(C, FF), nn.SiLU(), nn.Linear(FF, C))
        self.at_norm, self.attention = nn.LayerNorm(C), nn.MultiheadAttention(C, HEADS, batch_first=True)
        self.cv_norm, self.point = nn.LayerNorm(C), nn.Conv1d(C, 2 * C, 1)
        self.depth, self.batch, self.out = (
            nn.Conv1d(C, C, K, padding=1, groups=C),
            nn.BatchNorm1d(C),
            nn.Conv1d(C, C, 1),
        )
        self.norm, self.gru, self.head = nn.LayerNorm(C), nn.GRU(C, C, batch_first=True), nn.Linear(C, CLASSES)

    def forward(self, x: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        x = self.entry(x)
        x = x + 0.5 * self.ff(self.ff_norm(x))
        y = self.at_norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=padded, need_weights=False)[0]
        y = F.glu(self.point(self.cv_norm(x).transpose(1, 2)), dim=1)
        x = x + self.out(F.silu(self.batch(self.depth(y)))).transpose(1, 2)
        states, _ = self.gru(self.norm(x))
        return self.head(states.max(1).values)


class ModelB(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        for name, value in state.items():
            own = name.replace(".", "_")
            if "running" in name or "num_batches" in name:
                self.register_buffer(own, value.clone())
            else:
                self.register_parameter(own, nn.Parameter(value.clone()))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        eps = 1e-2 if self.bug == "eps" and name == "at_norm" else 1e-5
        weight, bias = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
        y = x - x.mean(-1, keepdim=True)
        return y * (y.square().mean(-1, keepdim=True) + eps).rsqrt() * weight + bias  # @norm_eps

    def attend(self, x: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (
            x @ w.t() + c
            for w, c in zip(self.attention_in_proj_weight.chunk(3), self.attention_in_proj_bias.chunk(3), strict=True)
        )
        split = (b, t, C // HEADS, HEADS) if self.bug == "head_order" else (b, t, HEADS, C // HEADS)
        q, k, v = (one.view(split) if self.bug != "head_order" else one.view(split).mT for one in (q, k, v))  # @heads
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)  # @scores
        if self.bug != "attention_scale":
            scores = scores * (C // HEADS) ** -0.5
        if self.bug != "padding_mask":
            scores = torch.where(padded[:, None, None], -torch.inf, scores)  # @masked @probs
        probs = scores.exp() / scores.exp().sum(-1, keepdim=True)  # @probs
        if self.bug == "dropout_on":
            probs = F.dropout(probs, 0.1)  # @dropout_on
        y = torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2)  # @merge
        return F.linear(y, self.attention_out_proj_weight, self.attention_out_proj_bias)

    def convolve(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(
            x, self.point_weight[..., 0], None if self.bug == "missing_bias" else self.point_bias
        )  # @pointwise
        left, right = y.split(C, -1)
        y = torch.sigmoid(left) * right if self.bug == "glu_halves" else left * torch.sigmoid(right)  # @glu
        pad = (0, 0, 2, 0) if self.bug == "conv_padding" else (0, 0, 1, 1)
        y = F.pad(y, pad).unfold(1, K, 1)  # @depthwise
        y = (y * self.depth_weight[:, 0]).sum(-1) + self.depth_bias  # @depthwise
        if self.training:
            mean, var = y.mean((0, 1)), y.var((0, 1), unbiased=False)
            with torch.no_grad():
                self.batch_running_mean.lerp_(mean, 0.1)
                self.batch_running_var.lerp_(y.var((0, 1)), 0.1)
                self.batch_num_batches_tracked += 1
        else:
            mean, var = self.batch_running_mean, self.batch_running_var
        power = 1.0 if self.bug == "conv_norm" else 0.5
        y = (y - mean) / (var + 1e-5) ** power * self.batch_weight + self.batch_bias  # @batch
        y = F.relu(y) if self.bug == "activation" else y * y.sigmoid()  # @activation
        return y @ self.out_weight[..., 0].t() + self.out_bias

    def recur(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.ones(len(x), C) if self.bug == "state_init" else torch.zeros(len(x), C)  # @start
        order = range(x.shape[1])
        states = []
        for t in reversed(order) if self.bug == "reverse_direction" else order:
            mine = F.linear(x[:, t], self.gru_weight_ih_l0, self.gru_bias_ih_l0).chunk(3, -1)  # @gates @walk
            past = F.linear(h, self.gru_weight_hh_l0, self.gru_bias_hh_l0).chunk(3, -1)  # @gates
            reset, keep = torch.sigmoid(mine[0] + past[0]), torch.sigmoid(mine[1] + past[1])
            new = torch.tanh(mine[2] + (past[2] if self.bug == "reset_gate" else reset * past[2]))  # @candidate
            h = keep * new + (1 - keep) * h if self.bug == "update_gate" else new + keep * (h - new)  # @update
            states.append(h)
        return torch.stack(states, 1)

    def forward(self, x: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        x = F.linear(x, self.entry_weight, self.entry_bias)
        if self.bug == "detached":
            x = x.detach()
        y = self.norm(x, "ff_norm") @ self.ff_0_weight.t() + self.ff_0_bias
        y = F.linear(F.silu(y), self.ff_2_weight, self.ff_2_bias)
        x = x + (y if self.bug == "half_step" else y / 2)  # @half
        y = self.attend(self.norm(x, "at_norm"), padded)
        x = y if self.bug == "missing_residual" else x + y
        x = x + self.convolve(self.norm(x, "cv_norm"))  # @block_end
        if self.bug == "batch_swapped":
            x = x[[1, 0, 2]]  # @entry
        if self.bug != "missing_last_norm":
            x = self.norm(x, "norm")
        states = self.recur(x)
        best = states.mean(1) if self.bug == "pooling" else states.amax(1)  # @pool
        return best @ self.head_weight.t() + self.head_bias  # @pool


def make(bug: str | None, seed: int) -> Case:
    a = lively(ModelA(), seed)
    b = ModelB(bug, a.state_dict())
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    x = torch.randn(3, 6, 7, generator=torch.Generator().manual_seed(seed + 100))
    padded = torch.zeros(3, 6, dtype=torch.bool)
    padded[1, 4:] = True
    return Case(a, b, (x, padded))
