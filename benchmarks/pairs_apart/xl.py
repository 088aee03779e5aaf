"""Transformer-XL: a memory of the segment before, positions relative to the query, two learned biases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

VOCAB, D, HEADS, FF, LENGTH, MEMORY, LAYERS = 19, 12, 3, 18, 5, 4, 2
E = D // HEADS


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.r = nn.Linear(D, D, False), nn.Linear(D, 2 * D, False), nn.Linear(D, D, False)
        self.out = nn.Linear(D, D, False)

    def forward(self, x, memory, places, u, v):
        n, t, s = len(x), x.shape[1], x.shape[1] + memory.shape[1]
        both = torch.cat((memory, x), 1)
        q = self.q(x).view(n, t, HEADS, E).transpose(1, 2)
        k, val = (part.view(n, s, HEADS, E).transpose(1, 2) for part in self.kv(both).chunk(2, -1))
        r = self.r(places).view(s, HEADS, E).transpose(0, 1)
        content = (q + u[:, None]) @ k.transpose(2, 3)
        position = (q + v[:, None]) @ r.transpose(1, 2)
        position = F.pad(position, (1, 0)).view(n, HEADS, s + 1, t)[:, :, 1:].reshape(n, HEADS, t, s)
        scores = (content + position) / E**0.5
        scores = scores.masked_fill(torch.ones(t, s, dtype=torch.bool).triu(s - t + 1), -1e9)
        return self.out((scores.softmax(-1) @ val).transpose(1, 2).reshape(n, t, D))


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.u, self.v = nn.Parameter(torch.empty(HEADS, E)), nn.Parameter(torch.empty(HEADS, E))
        self.attentions = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2 * LAYERS))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(D, FF), nn.ReLU(), nn.Linear(FF, D)) for _ in range(LAYERS))

    def forward(self, ids):
        memories = [torch.zeros(len(ids), MEMORY, D) for _ in range(LAYERS)]
        logits = []
        for segment in ids.split(LENGTH, 1):
            x = self.embed(segment) * D**0.5
            s = MEMORY + segment.shape[1]
            angles = torch.arange(s - 1, -1, -1.0)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
            places = torch.cat((angles.sin(), angles.cos()), -1)
            for i in range(LAYERS):
                given = x
                x = self.norms[2 * i](x + self.attentions[i](x, memories[i], places, self.u, self.v))  # @a_norm
                x = self.norms[2 * i + 1](x + self.mlps[i](x))
                memories[i] = torch.cat((memories[i], given), 1)[:, -MEMORY:].detach()
            logits.append(F.linear(x, self.embed.weight))
        return torch.cat(logits, 1)


class B(nn.Module):
    """Relative positions gathered by distance rather than shifted; heads by einsum."""

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.ParameterList(nn.Parameter(torch.empty(*shape)) for _ in range(LAYERS))  # noqa: E731
        self.words = nn.Parameter(torch.empty(VOCAB, D))
        self.bias = nn.Parameter(torch.empty(2, HEADS, E))
        self.wq, self.wk, self.wv, self.wr, self.wo = (new(D, HEADS, E) for _ in range(5))
        self.n1, self.n2 = new(2, D), new(2, D)
        self.w1, self.b1, self.w2, self.b2 = new(D, FF), new(FF), new(FF, D), new(D)

    def norm(self, x, weights):
        x = x - x.mean(-1, keepdim=True)  # @norm
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weights[0] + weights[1]  # @norm

    def distances(self, s):
        speeds = torch.pow(10000, -torch.arange(0, D, 2) / D)  # @speeds
        turned = torch.arange(s)[:, None] * speeds  # @turned
        return torch.cat((turned.sin(), turned.cos()), 1)  # @waves

    def attend(self, x, memory, i):
        t, m = x.shape[1], memory.shape[1]
        both = torch.cat((memory, x), 1)  # @both
        q = torch.einsum("btd,dhe->bhte", x, self.wq[i])  # @q
        k = torch.einsum("bsd,dhe->bhse", both, self.wk[i])  # @k
        v = torch.einsum("bsd,dhe->bhse", both, self.wv[i])  # @v
        r = torch.einsum("sd,dhe->hse", self.distances(t + m), self.wr[i])  # @r
        back = torch.arange(t)[:, None] + m - torch.arange(t + m)  # @back
        near = r[:, back.clamp(min=0)]  # @near
        scores = torch.einsum("bhte,bhse->bhts", q + self.bias[0][:, None], k)  # @content
        scores = scores + torch.einsum("bhte,htse->bhts", q + self.bias[1][:, None], near)  # @position
        scores = (scores * E**-0.5).masked_fill(back < 0, -1e9)  # @scaled
        y = torch.einsum("bhts,bhse->bthe", scores.softmax(-1), v)  # @mixed
        return torch.einsum("bthe,dhe->btd", y, self.wo[i])  # @out

    def forward(self, ids):
        memory = x0 = None
        logits = []
        for begin in range(0, ids.shape[1], LENGTH):
            x = self.words[ids[:, begin : begin + LENGTH]] * D**0.5  # @embedded
            memory = memory or [x.new_zeros(len(x), MEMORY, D)] * LAYERS
            kept = []
            for i in range(LAYERS):
                x0 = x
                x = self.norm(x + self.attend(x, memory[i], i), self.n1[i])  # @first
                y = F.relu(x @ self.w1[i] + self.b1[i])  # @hidden
                x = self.norm(x + y @ self.w2[i] + self.b2[i], self.n2[i])  # @second
                kept.append(torch.cat((memory[i], x0), 1)[:, -MEMORY:].detach())  # @kept
            memory = kept
            logits.append(x @ self.words.T)  # @logits
        return torch.cat(logits, 1)


def transfer(a, b):
    b.words.copy_(a.embed.weight)
    b.bias.copy_(torch.stack((a.u, a.v)))
    for i, own in enumerate(a.attentions):
        parts = (own.q.weight, *own.kv.weight.chunk(2), own.r.weight)
        for w, weight in zip((b.wq[i], b.wk[i], b.wv[i], b.wr[i]), parts, strict=True):
            w.copy_(weight.T.reshape(D, HEADS, E))
        b.wo[i].copy_(own.out.weight.view(D, HEADS, E))
        for w, norm in ((b.n1[i], a.norms[2 * i]), (b.n2[i], a.norms[2 * i + 1])):
            w.copy_(torch.stack((norm.weight, norm.bias)))
        b.w1[i].copy_(a.mlps[i][0].weight.T)
        b.b1[i].copy_(a.mlps[i][0].bias)
        b.w2[i].copy_(a.mlps[i][2].weight.T)
        b.b2[i].copy_(a.mlps[i][2].bias)


def inputs():
    return (torch.randint(0, VOCAB, (2, 2 * LENGTH), generator=torch.Generator().manual_seed(24)),)


# fmt: off
BUGS = {
    "memory of the wrong layer": Bug("index", "x = self.norm(x + self.attend(x, memory[i], i), self.n1[i])", "x = self.norm(x + self.attend(x, memory[i - 1], i), self.n1[i])", "both k v"),
    "memory after the layer": Bug("wrong tensor", "kept.append(torch.cat((memory[i], x0), 1)[:, -MEMORY:].detach())", "kept.append(torch.cat((memory[i], x), 1)[:, -MEMORY:].detach())", "both k v"),
    "oldest kept": Bug("flipped", "torch.cat((memory[i], x0), 1)[:, -MEMORY:]", "torch.cat((memory[i], x0), 1)[:, :MEMORY]", "both k v"),
    "memory never filled": Bug("state carry", "memory = kept", "memory = memory", "both k v"),
    "keys without memory position": Bug("off by one", "back = torch.arange(t)[:, None] + m - torch.arange(t + m)", "back = torch.arange(t)[:, None] - torch.arange(t + m)", "near scaled mixed position"),
    "distance one too far": Bug("off by one", "near = r[:, back.clamp(min=0)]", "near = r[:, back.clamp(min=0) - 1]", "position"),
    "biases exchanged": Bug("index", "q + self.bias[0][:, None], k)", "q + self.bias[1][:, None], k)"),
    "position bias left out": Bug("missing step", "q + self.bias[1][:, None], near)", "q, near)"),
    "only content scaled": Bug("scale", "scores = torch.einsum(\"bhte,bhse->bhts\", q + self.bias[0][:, None], k)", "scores = torch.einsum(\"bhte,bhse->bhts\", q + self.bias[0][:, None], k) * E**-0.5", "position scaled"),
    "sees the next word": Bug("mask", "masked_fill(back < 0, -1e9)", "masked_fill(back < -1, -1e9)", "mixed"),
    "sines and cosines interleaved": Bug("layout", "torch.cat((turned.sin(), turned.cos()), 1)", "torch.stack((turned.sin(), turned.cos()), 2).flatten(1)", "r"),
    "speeds of the whole width": Bug("scale", "-torch.arange(0, D, 2) / D", "-torch.arange(0, D, 2) / (2 * D)", "turned waves r"),
    "norm before the residual": Bug("norm order", "x = self.norm(x + self.attend(x, memory[i], i), self.n1[i])", "x = x + self.norm(self.attend(x, memory[i], i), self.n1[i])"),
    "eps of the norms": Bug("eps", "x.pow(2).mean(-1, keepdim=True) + 1e-5", "x.pow(2).mean(-1, keepdim=True) + 1e-2", "norm"),
    "embedding not scaled": Bug("scale", "x = self.words[ids[:, begin : begin + LENGTH]] * D**0.5", "x = self.words[ids[:, begin : begin + LENGTH]]", "both q"),
    "trained through the memory": Bug("detach", "torch.cat((memory[i], x0), 1)[:, -MEMORY:].detach()", "torch.cat((memory[i], x0), 1)[:, -MEMORY:]", tensors=("n2.0", "words")),
    "table not tied": Bug("tying", "x @ self.words.T)", "x @ self.words.T.detach())", tensors=("words",)),
}
# fmt: on
