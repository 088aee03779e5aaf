"""A tagger: embedding, a GRU in both directions, a tag distribution per word."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WORDS, D, H, TAGS = 19, 10, 7, 5
BUGS = (
    "reset before the product",
    "update gate inverted",
    "second direction not reversed",
    "outputs of the second direction reversed",
    "gates in another order",
    "hidden state begins at one",
    "recurrent bias omitted",
    "directions joined in reverse",
    "softmax over words",
)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, D)
        self.gru = nn.GRU(D, H, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * H, TAGS)

    def forward(self, ids):
        x, _ = self.gru(self.words(ids))  # label: reset before the product, update gate inverted, second direction not reversed, outputs of the second direction reversed, gates in another order, hidden state begins at one, recurrent bias omitted, directions joined in reverse
        return F.log_softmax(self.tags(x), -1)  # label: softmax over words


class B(nn.Module):
    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.table = nn.Parameter(torch.empty(WORDS, D))
        self.inward = nn.ModuleList(nn.Linear(D, 3 * H) for _ in range(2))
        self.onward = nn.ModuleList(nn.Linear(H, 3 * H) for _ in range(2))
        self.tags = nn.Linear(2 * H, TAGS)

    def step(self, x, h, way):
        bug = self.bug
        given = self.inward[way](x)
        kept = F.linear(h, self.onward[way].weight) if bug == "recurrent bias omitted" else self.onward[way](h)  # label: recurrent bias omitted
        xr, xz, xn = given.chunk(3, -1)
        hr, hz, hn = kept.chunk(3, -1)
        if bug == "gates in another order":
            xr, xz, hr, hz = xz, xr, hz, hr
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)  # label: gates in another order, recurrent bias omitted
        if bug == "reset before the product":
            weight, bias = self.onward[way].weight[2 * H :], self.onward[way].bias[2 * H :]
            n = torch.tanh(xn + F.linear(r * h, weight, bias))  # label: reset before the product
        else:
            n = torch.tanh(xn + r * hn)  # label: gates in another order, recurrent bias omitted
        if bug == "update gate inverted":
            return z * n + (1 - z) * h  # label: update gate inverted
        return (1 - z) * n + z * h  # label: gates in another order

    def run(self, x, way):
        begin = torch.ones if self.bug == "hidden state begins at one" else torch.zeros
        h = begin(x.shape[0], H, dtype=x.dtype)  # label: hidden state begins at one
        states = []
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h, way)  # label: hidden state begins at one
            states.append(h)
        return torch.stack(states, 1)  # label: second direction not reversed

    def forward(self, ids):
        x = self.table[ids]
        there = self.run(x, 0)
        if self.bug == "second direction not reversed":
            back = self.run(x, 1)  # label: second direction not reversed
        else:
            back = self.run(x.flip(1), 1)
            if self.bug != "outputs of the second direction reversed":
                back = back.flip(1)
        both = [back, there] if self.bug == "directions joined in reverse" else [there, back]
        x = torch.cat(both, -1)  # label: outputs of the second direction reversed, directions joined in reverse, second direction not reversed
        x = self.tags(x)  # label: outputs of the second direction reversed, directions joined in reverse
        axis = 1 if self.bug == "softmax over words" else 2
        return x - x.logsumexp(axis, keepdim=True)  # label: softmax over words


def transfer(a, b):
    b.table.copy_(a.words.weight)
    for way, suffix in enumerate(("", "_reverse")):
        b.inward[way].weight.copy_(getattr(a.gru, f"weight_ih_l0{suffix}"))
        b.inward[way].bias.copy_(getattr(a.gru, f"bias_ih_l0{suffix}"))
        b.onward[way].weight.copy_(getattr(a.gru, f"weight_hh_l0{suffix}"))
        b.onward[way].bias.copy_(getattr(a.gru, f"bias_hh_l0{suffix}"))
    b.tags.load_state_dict(a.tags.state_dict())


def inputs():
    return (torch.randint(0, WORDS, (3, 6), generator=torch.Generator().manual_seed(11)),)
