"""Capsules: vectors instead of channels, squashed, routed to classes by agreement in three rounds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

C, CAPS, E, CLASSES, OUT, ROUNDS = 8, 4, 3, 4, 5, 3


def squash(x):
    square = x.pow(2).sum(-1, keepdim=True)
    return square / (1 + square) * x / torch.sqrt(square + 1e-8)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, C, 3)
        self.primary = nn.ModuleList(nn.Conv2d(C, E, 3, stride=2) for _ in range(CAPS))
        self.weight = nn.Parameter(torch.empty(CLASSES * CAPS * 9, E, OUT))
        self.decoder = nn.Sequential(nn.Linear(CLASSES * OUT, 12), nn.ReLU(), nn.Linear(12, 81), nn.Sigmoid())

    def forward(self, image):
        x = F.relu(self.conv(image))
        u = torch.stack([conv(x).flatten(2).transpose(1, 2) for conv in self.primary], 1).flatten(1, 2)
        u = squash(u)  # @a_squash
        votes = torch.matmul(u[:, None, :, None], self.weight.view(CLASSES, CAPS * 9, E, OUT)).squeeze(3)
        logits = torch.zeros(votes.shape[:3])
        for place in range(ROUNDS):
            shares = logits.softmax(1)
            v = squash((shares[..., None] * votes).sum(2))  # @a_round
            if place < ROUNDS - 1:
                logits = logits + (votes * v[:, :, None]).sum(-1)  # @a_agree
        lengths = v.norm(dim=-1)
        best = F.one_hot(lengths.argmax(1), CLASSES).float()
        return {"lengths": lengths, "image": self.decoder((v * best[..., None]).flatten(1)).view(-1, 1, 9, 9)}


class B(nn.Module):
    """One convolution for all capsules, positions first, routing as a recursion over shares."""

    def __init__(self):
        super().__init__()
        self.edges, self.edge_bias = nn.Parameter(torch.empty(9, C)), nn.Parameter(torch.empty(C))
        self.caps = nn.Conv2d(C, CAPS * E, 3, 2)
        self.turn = nn.Parameter(torch.empty(CAPS, 9, E, CLASSES, OUT))
        self.w1, self.c1 = nn.Parameter(torch.empty(CLASSES, OUT, 12)), nn.Parameter(torch.empty(12))
        self.w2, self.c2 = nn.Parameter(torch.empty(12, 81)), nn.Parameter(torch.empty(81))

    def squash(self, x):
        size = torch.einsum("...e,...e->...", x, x)[..., None]  # @size
        return x * (size / (1 + size) / (size + 1e-8).sqrt())  # @squash

    def route(self, votes, logits, rounds):
        shares = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)  # @shares
        v = self.squash(torch.einsum("bik,biko->bko", shares, votes))  # @weighed
        if rounds == 1:
            return v
        agreed = torch.einsum("biko,bko->bik", votes, v)  # @agreed
        return self.route(votes, logits + agreed, rounds - 1)  # @carried

    def forward(self, image):
        n = len(image)
        x = F.unfold(image, 3).mT @ self.edges + self.edge_bias  # @edges
        x = x.clamp(min=0).mT.unflatten(2, (7, 7))  # @relu
        u = self.caps(x).reshape(n, CAPS, E, 9).transpose(2, 3)  # @caps
        u = self.squash(u)  # @primary
        votes = torch.einsum("bcpe,cpeko->bcpko", u, self.turn).flatten(1, 2)  # @votes
        v = self.route(votes, torch.zeros(n, CAPS * 9, CLASSES), 3)  # @route
        lengths = v.square().sum(-1).sqrt()  # @lengths
        best = lengths.max(1, keepdim=True).indices  # @best
        kept = torch.zeros_like(lengths).scatter(1, best, 1.0)  # @kept
        y = torch.einsum("bk,bko,koh->bh", kept, v, self.w1) + self.c1  # @hidden
        y = y.relu() @ self.w2 + self.c2  # @decoded
        return {"lengths": lengths, "image": torch.sigmoid(y).reshape(n, 1, 9, 9)}  # @image


def transfer(a, b):
    b.edges.copy_(a.conv.weight.flatten(1).T)
    b.edge_bias.copy_(a.conv.bias)
    b.caps.weight.copy_(torch.cat([conv.weight for conv in a.primary]))
    b.caps.bias.copy_(torch.cat([conv.bias for conv in a.primary]))
    b.turn.copy_(a.weight.view(CLASSES, CAPS, 9, E, OUT).permute(1, 2, 3, 0, 4))
    b.w1.copy_(a.decoder[0].weight.T.reshape(CLASSES, OUT, 12))
    b.c1.copy_(a.decoder[0].bias)
    b.w2.copy_(a.decoder[2].weight.T)
    b.c2.copy_(a.decoder[2].bias)


def inputs():
    return (2 * torch.randn(3, 1, 9, 9, generator=torch.Generator().manual_seed(11)),)


# fmt: off
BUGS = {
    "softmax over the capsules": Bug("axis", "torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)", "torch.exp(logits) / torch.exp(logits).sum(-2, keepdim=True)", "weighed"),
    "two rounds": Bug("off by one", "torch.zeros(n, CAPS * 9, CLASSES), 3)", "torch.zeros(n, CAPS * 9, CLASSES), 2)", "lengths kept hidden best shares a_round a_agree"),
    "logits not carried": Bug("state carry", "self.route(votes, logits + agreed, rounds - 1)", "self.route(votes, agreed, rounds - 1)", "shares a_agree"),
    "squashed without the size over one plus size": Bug("missing step", "x * (size / (1 + size) / (size + 1e-8).sqrt())", "x * (1 / (size + 1e-8).sqrt())", "size"),
    "squash over another axis": Bug("axis", "u = self.squash(u)  # @primary", "u = self.squash(u.mT).mT  # @primary"),
    "capsules cut across channels": Bug("channels", "reshape(n, CAPS, E, 9).transpose(2, 3)", "reshape(n, E, CAPS, 9).permute(0, 2, 3, 1)", "primary size"),
    "activation of the capsules": Bug("doubled step", "u = self.caps(x).reshape(", "u = self.caps(x).relu().reshape("),
    "stride left out": Bug("stride", "u = self.caps(x).reshape(n, CAPS, E, 9)", "u = F.conv2d(x, self.caps.weight, self.caps.bias)[..., :3, :3].reshape(n, CAPS, E, 9)"),
    "shortest for longest": Bug("flipped", "best = lengths.max(1, keepdim=True).indices", "best = lengths.min(1, keepdim=True).indices", "kept hidden"),
    "image turned": Bug("transposed", "torch.sigmoid(y).reshape(n, 1, 9, 9)", "torch.sigmoid(y).reshape(n, 1, 9, 9).mT"),
    "lengths squared": Bug("missing step", "lengths = v.square().sum(-1).sqrt()", "lengths = v.square().sum(-1)"),
    "votes not trained in routing": Bug("detach", "torch.einsum(\"biko,bko->bik\", votes, v)", "torch.einsum(\"biko,bko->bik\", votes, v).detach()", tensors=("turn",)),
}
# fmt: on
