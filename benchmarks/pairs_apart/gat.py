"""A graph attention network: over a list of edges, and over a dense matrix of neighbours."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

NODES, GIVEN, HEADS, D, CLASSES = 9, 6, 3, 4, 5


class Attention(nn.Module):
    def __init__(self, given, made, concat):
        super().__init__()
        self.concat, self.made = concat, made
        self.lin = nn.Linear(given, HEADS * made, bias=False)
        self.att_src, self.att_dst = nn.Parameter(torch.empty(HEADS, made)), nn.Parameter(torch.empty(HEADS, made))
        self.bias = nn.Parameter(torch.empty(HEADS * made if concat else made))

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(x).view(-1, HEADS, self.made)
        alpha = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        alpha = F.leaky_relu(alpha, 0.2).exp()
        total = torch.zeros(len(x), HEADS).index_add(0, dst, alpha)
        alpha = alpha / total[dst]
        out = torch.zeros_like(h).index_add(0, dst, alpha[..., None] * h[src])
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias  # @a_bias


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(GIVEN, D, True), Attention(HEADS * D, D, False)
        self.skip, self.norm = nn.Linear(GIVEN, HEADS * D), nn.LayerNorm(HEADS * D)
        self.readout = nn.Linear(D, CLASSES)

    def forward(self, x, edges):
        own = torch.arange(len(x)).expand(2, -1)
        edges = torch.cat((edges, own), 1)  # @loops
        y = F.elu(self.first(x, edges) + self.skip(x))  # @a_skip
        y = F.elu(self.second(self.norm(y), edges))  # @a_norm
        return self.readout(y.mean(0))


class B(nn.Module):
    """Scores of all pairs of nodes, those that are no edge masked."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.empty(HEADS, GIVEN, D)), nn.Parameter(torch.empty(HEADS, HEADS * D, D))
        self.towards = nn.ParameterList(nn.Parameter(torch.empty(HEADS, D, 1)) for _ in range(2))
        self.from_ = nn.ParameterList(nn.Parameter(torch.empty(HEADS, D, 1)) for _ in range(2))
        self.c1, self.c2 = nn.Parameter(torch.empty(HEADS * D)), nn.Parameter(torch.empty(D))
        self.across, self.out = nn.Linear(GIVEN, HEADS * D), nn.Linear(D, CLASSES)
        self.gain, self.offset = nn.Parameter(torch.empty(HEADS * D)), nn.Parameter(torch.empty(HEADS * D))

    def norm(self, x):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)  # @norm
        return self.gain * (x - mean) / torch.sqrt(var + 1e-5) + self.offset  # @norm

    def mix(self, x, near, w, layer):
        h = torch.matmul(x, w)  # @product
        scores = h @ self.towards[layer] + (h @ self.from_[layer]).mT  # @scores
        scores = F.leaky_relu(scores, negative_slope=0.2)  # @slope
        scores = scores.masked_fill(~near, -torch.inf)  # @masked
        return scores.softmax(-1) @ h  # @mixed

    def forward(self, x, edges):
        near = torch.eye(len(x), dtype=torch.bool)  # @near
        near = near.index_put((edges[1], edges[0]), torch.tensor(True))  # @near
        y = self.mix(x, near, self.w1, 0).transpose(0, 1)  # @first
        y = y.reshape(len(x), HEADS * D) + self.c1  # @joined
        y = y + self.across(x)  # @skip
        y = torch.where(y > 0, y, torch.expm1(y))  # @elu
        y = self.norm(y)
        y = self.mix(y, near, self.w2, 1).mean(0)  # @heads
        y = F.elu(y + self.c2)  # @last
        return self.out(y.mean(0))  # @pooled


def transfer(a, b):
    for own, w, towards, from_, bias in (
        (a.first, b.w1, b.towards[0], b.from_[0], b.c1),
        (a.second, b.w2, b.towards[1], b.from_[1], b.c2),
    ):
        w.copy_(own.lin.weight.view(HEADS, D, -1).mT)
        towards.copy_(own.att_dst[..., None])
        from_.copy_(own.att_src[..., None])
        bias.copy_(own.bias)
    b.across.load_state_dict(a.skip.state_dict())
    b.out.load_state_dict(a.readout.state_dict())
    b.gain.copy_(a.norm.weight)
    b.offset.copy_(a.norm.bias)


def inputs():
    source = torch.Generator().manual_seed(4)
    pairs = torch.randperm(NODES * NODES, generator=source)[:24]
    pairs = pairs[pairs // NODES != pairs % NODES]
    return torch.randn(NODES, GIVEN, generator=source), torch.stack((pairs // NODES, pairs % NODES))


# fmt: off
BUGS = {
    "slope of the leaky relu": Bug("activation", "negative_slope=0.2", "negative_slope=0.01"),
    "softmax over the receivers": Bug("axis", "scores.softmax(-1)", "scores.softmax(-2)"),
    "no loops": Bug("mask", "torch.eye(len(x), dtype=torch.bool)", "torch.zeros(len(x), len(x), dtype=torch.bool)", "near masked mixed loops"),
    "edges the other way": Bug("direction", "near.index_put((edges[1], edges[0])", "near.index_put((edges[0], edges[1])", "masked mixed"),
    "masked by zero": Bug("mask", "scores.masked_fill(~near, -torch.inf)", "scores.masked_fill(~near, 0.0)", "mixed"),
    "sender and receiver swapped": Bug("index", "scores = h @ self.towards[layer] + (h @ self.from_[layer]).mT", "scores = h @ self.from_[layer] + (h @ self.towards[layer]).mT"),
    "heads summed": Bug("reduction", "self.mix(y, near, self.w2, 1).mean(0)", "self.mix(y, near, self.w2, 1).sum(0)"),
    "heads joined in another order": Bug("channels", "y.reshape(len(x), HEADS * D)", "y.mT.reshape(len(x), HEADS * D)"),
    "elu of the wrong side": Bug("activation", "torch.where(y > 0, y, torch.expm1(y))", "torch.where(y > 0, y, torch.exp(y))"),
    "skip left out": Bug("residual", "y = y + self.across(x)  # @skip", "y = y  # @skip", "elu a_skip"),
    "scores not trained": Bug("detach", "return scores.softmax(-1) @ h", "return scores.softmax(-1).detach() @ h", tensors=("towards.1", "from_.1")),
}
# fmt: on
