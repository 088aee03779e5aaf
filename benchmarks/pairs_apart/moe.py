"""A transformer of experts: a router takes the best two of four for each token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

VOCAB, D, HEADS, FF, EXPERTS, TOP, LAYERS = 23, 16, 4, 20, 4, 2, 2


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.ModuleList((nn.Linear(D, FF), nn.Linear(FF, D))) for _ in range(EXPERTS))

    def forward(self, x):
        flat = x.reshape(-1, D)
        weights, chosen = self.router(flat).softmax(-1).topk(TOP, -1)
        weights = weights / weights.sum(-1, keepdim=True)  # @a_weights
        out = torch.zeros_like(flat)
        for number, (up, down) in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            made = down(F.gelu(up(flat[rows]))) * weights[rows, places, None]
            out = out.index_add(0, rows, made)
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention, self.mlp = nn.MultiheadAttention(D, HEADS, batch_first=True), Experts()

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))  # @a_residual


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, D), nn.Embedding(16, D)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D)

    def forward(self, ids):
        n = ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(n))
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return F.linear(self.norm(x), self.tokens.weight)  # @a_final


class B(nn.Module):
    """All experts on all tokens as one product, weighted by a dense matrix of gates; logits by the table of tokens."""

    def __init__(self):
        super().__init__()
        self.table, self.positions = nn.Parameter(torch.empty(VOCAB, D)), nn.Parameter(torch.empty(16, D))
        shapes = {
            "n1": (2, D), "n2": (2, D), "wqkv": (3, HEADS, D, D // HEADS), "bqkv": (3, HEADS, 1, D // HEADS),
            "wo": (D, D), "bo": (D,), "router": (D, EXPERTS), "w1": (EXPERTS, D, FF), "b1": (EXPERTS, FF),
            "w2": (EXPERTS, FF, D), "b2": (EXPERTS, D),
        }  # fmt: skip
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()})
            for _ in range(LAYERS)
        )
        self.last = nn.Parameter(torch.empty(2, D))

    def norm(self, x, weights):
        x = x - x.mean(-1, keepdim=True)  # @norm
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weights[0] + weights[1]  # @norm

    def attend(self, x, w):
        n = x.shape[1]
        q, k, v = torch.einsum("btd,phde->pbhte", x, w["wqkv"]) + w["bqkv"][:, None]  # @qkv
        seen = torch.ones(n, n, dtype=torch.bool).tril()  # @seen
        scores = q @ k.mT * (D // HEADS) ** -0.5  # @scores
        probs = torch.where(seen, scores, float("-inf")).softmax(-1)  # @probs
        y = torch.einsum("bhqk,bkhe->bqhe", probs, v.transpose(1, 2)).flatten(2)
        return y @ w["wo"] + w["bo"]

    def think(self, x, w):
        logits = x @ w["router"]  # @logits
        best, chosen = logits.topk(TOP, -1)  # @best
        shares = best.softmax(-1)  # @shares
        gates = torch.zeros_like(logits).scatter(-1, chosen, shares)  # @gates
        inner = torch.einsum("btd,edf->btef", x, w["w1"]) + w["b1"]  # @inner
        inner = 0.5 * inner * (1 + torch.erf(inner / 2**0.5))  # @gelu
        made = torch.einsum("btef,efd->bted", inner, w["w2"]) + w["b2"]  # @made
        return (gates[..., None] * made).sum(-2)  # @joined

    def forward(self, ids):
        x = self.table[ids] + self.positions[: ids.shape[1]]  # @embed
        for w in self.layers:
            x = x + self.attend(self.norm(x, w["n1"]), w)
            x = x + self.think(self.norm(x, w["n2"]), w)  # @residual
        x = self.norm(x, self.last)  # @final
        return x @ self.table.T  # @head


def transfer(a, b):
    b.table.copy_(a.tokens.weight)
    b.positions.copy_(a.places.weight)
    b.last.copy_(torch.stack((a.norm.weight, a.norm.bias)))
    for block, w in zip(a.blocks, b.layers, strict=True):
        for name, norm in (("n1", block.norm1), ("n2", block.norm2)):
            w[name].copy_(torch.stack((norm.weight, norm.bias)))
        w["wqkv"].copy_(block.attention.in_proj_weight.view(3, HEADS, D // HEADS, D).mT)
        w["bqkv"].copy_(block.attention.in_proj_bias.view(3, HEADS, 1, D // HEADS))
        w["wo"].copy_(block.attention.out_proj.weight.T)
        w["bo"].copy_(block.attention.out_proj.bias)
        w["router"].copy_(block.mlp.router.weight.T)
        for i, (up, down) in enumerate(block.mlp.experts):
            w["w1"][i].copy_(up.weight.T)
            w["b1"][i].copy_(up.bias)
            w["w2"][i].copy_(down.weight.T)
            w["b2"][i].copy_(down.bias)


def inputs():
    return (torch.randint(0, VOCAB, (2, 7), generator=torch.Generator().manual_seed(5)),)


# fmt: off
BUGS = {
    "shares not normalised": Bug("missing step", "shares = best.softmax(-1)", "shares = logits.softmax(-1).gather(-1, chosen)", "a_weights gates joined"),
    "best one only": Bug("index", "logits.topk(TOP, -1)", "logits.topk(1, -1)", "shares gates joined"),
    "worst two": Bug("flipped", "logits.topk(TOP, -1)", "logits.topk(TOP, -1, largest=False)", "shares gates joined"),
    "gates by another expert": Bug("index", "scatter(-1, chosen, shares)", "scatter(-1, chosen.flip(-1), shares)", "joined"),
    "gelu by tanh": Bug("activation", "inner = 0.5 * inner * (1 + torch.erf(inner / 2**0.5))", "inner = F.gelu(inner, approximate=\"tanh\")"),
    "router sees the state before its norm": Bug("norm order", "x = x + self.think(self.norm(x, w[\"n2\"]), w)", "x = self.norm(x, w[\"n2\"]); x = x + self.think(x, w)", "a_residual"),
    "sees one ahead": Bug("off by one", "torch.ones(n, n, dtype=torch.bool).tril()", "torch.ones(n, n, dtype=torch.bool).tril(1)", "probs"),
    "bias of experts summed twice": Bug("doubled step", "torch.einsum(\"btef,efd->bted\", inner, w[\"w2\"]) + w[\"b2\"]", "torch.einsum(\"btef,efd->bted\", inner, w[\"w2\"]) + w[\"b2\"] * 2", "joined"),
    "positions from one": Bug("off by one", "self.positions[: ids.shape[1]]", "self.positions[1 : ids.shape[1] + 1]"),
    "final norm left out": Bug("missing step", "x = self.norm(x, self.last)  # @final", "x = x  # @final", "a_final head"),
    "weights not tied in training": Bug("tying", "return x @ self.table.T", "return x @ self.table.T.detach()", tensors=("table",)),
    "router not trained": Bug("detach", "shares = best.softmax(-1)", "shares = best.detach().softmax(-1)", tensors=("layers.1.router",)),
    "decay on norms too": Bug("optimizer", tensors=("n1", "n2", "last"), optimizer=lambda b: torch.optim.AdamW(b.parameters(), 1e-2, weight_decay=0.1)),
}
# fmt: on


def optimizer(model):
    """Weight decay for matrices alone; norms (one dimension in A, pairs in B) have none."""
    names = {n for n, _ in model.named_parameters() if "norm" in n or n.endswith((".n1", ".n2")) or n == "last"}
    decayed = [p for n, p in model.named_parameters() if n not in names]
    plain = [p for n, p in model.named_parameters() if n in names]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, 1e-2)
