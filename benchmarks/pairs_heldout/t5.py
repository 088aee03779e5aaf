"""An encoder-decoder with relative positions, RMS norms and gated feed-forward layers, as T5 v1.1 is."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, VOCAB, LAYERS, BUCKETS = 16, 4, 23, 2, 8
BUGS = (
    "attention scaled",
    "decoder buckets of both directions",
    "positions in the first layer only",
    "norm subtracts the mean",
    "keys of the decoder",
    "no causal mask",
    "logits unscaled",
    "gate activation",
    "encoder norm omitted",
    "residual after the norm",
)


def bucket(distance, bidirectional):
    count, result = BUCKETS, torch.zeros_like(distance)
    if bidirectional:
        count //= 2
        result = (distance > 0).long() * count
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    far = exact + (torch.log(distance.float().clamp(min=1) / exact) / math.log(16 / exact) * (count - exact)).long()
    return result + torch.where(distance < exact, distance, far.clamp(max=count - 1))


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)  # label: norm subtracts the mean
        return self.weight * (x * torch.rsqrt(variance + 1e-6))  # label: norm subtracts the mean


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x, memory, bias):
        def split(t):
            return t.view(t.shape[0], t.shape[1], HEADS, D // HEADS).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))  # label: keys of the decoder
        scores = torch.matmul(q, k.transpose(-1, -2))  # label: attention scaled
        scores = scores + bias  # label: positions in the first layer only, no causal mask, decoder buckets of both directions
        mixed = torch.matmul(F.softmax(scores, -1), v)  # label: attention scaled
        return self.o(mixed.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(D, 2 * D, bias=False), nn.Linear(D, 2 * D, bias=False), nn.Linear(2 * D, D, bias=False))
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))  # label: gate activation


class Block(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.attention, self.norm1 = Attention(), RMSNorm()
        if is_decoder:
            self.cross, self.norm2 = Attention(), RMSNorm()
        self.feed, self.norm3 = FeedForward(), RMSNorm()

    def forward(self, x, bias, memory=None):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, bias)
        if memory is not None:
            x = x + self.cross(self.norm2(x), memory, 0.0)
        return x + self.feed(self.norm3(x))  # label: residual after the norm


class Stack(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.is_decoder = is_decoder
        self.positions = nn.Embedding(BUCKETS, HEADS)
        self.blocks = nn.ModuleList(Block(is_decoder) for _ in range(LAYERS))
        self.norm = RMSNorm()

    def forward(self, x, memory=None):
        place = torch.arange(x.shape[1])
        distance = place[None, :] - place[:, None]
        bias = self.positions(bucket(distance, not self.is_decoder)).permute(2, 0, 1)[None]  # label: decoder buckets of both directions
        if self.is_decoder:
            bias = bias + torch.full((len(place), len(place)), -1e9).triu(1)  # label: no causal mask, decoder buckets of both directions
        for block in self.blocks:
            x = block(x, bias, memory)
        return self.norm(x)  # label: encoder norm omitted


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D)
        self.encoder, self.decoder = Stack(False), Stack(True)

    def forward(self, source, target):
        memory = self.encoder(self.shared(source))  # label: encoder norm omitted
        out = self.decoder(self.shared(target), memory)
        return F.linear(out * D**-0.5, self.shared.weight)  # label: logits unscaled


class B(nn.Module):
    """Weights in flat lists, projections joined, attention by einsum."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.table = nn.Parameter(torch.empty(VOCAB, D))
        self.relative = nn.ParameterList(nn.Parameter(torch.empty(HEADS, BUCKETS)) for _ in range(2))
        self.norms = nn.ParameterList(nn.Parameter(torch.empty(D)) for _ in range(2 * LAYERS + 1 + 3 * LAYERS + 1))
        self.qkv = nn.ParameterList(nn.Parameter(torch.empty(D, 3 * D)) for _ in range(3 * LAYERS))
        self.out = nn.ParameterList(nn.Parameter(torch.empty(D, D)) for _ in range(3 * LAYERS))
        self.wide = nn.ParameterList(nn.Parameter(torch.empty(4 * D, D)) for _ in range(2 * LAYERS))
        self.narrow = nn.ParameterList(nn.Parameter(torch.empty(D, 2 * D)) for _ in range(2 * LAYERS))

    def rms(self, x, weight):
        if self.bug == "norm subtracts the mean":
            x = x - x.mean(-1, keepdim=True)  # label: norm subtracts the mean
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight  # label: norm subtracts the mean

    def attend(self, x, memory, place, bias=None):
        wq, wk, wv = self.qkv[place].reshape(D, 3, HEADS, -1).unbind(1)
        q = torch.einsum("btd,dhe->bhte", x, wq)
        k = torch.einsum("btd,dhe->bhte", x if self.bug == "keys of the decoder" and place >= 2 * LAYERS else memory, wk)  # label: keys of the decoder
        v = torch.einsum("btd,dhe->bhte", memory, wv)
        scores = torch.einsum("bhte,bhse->bhts", q, k)
        if self.bug == "attention scaled":
            scores = scores / math.sqrt(D // HEADS)  # label: attention scaled
        if bias is not None:
            scores = scores + bias  # label: positions in the first layer only, no causal mask, decoder buckets of both directions
        weights = torch.softmax(scores, dim=-1)  # label: positions in the first layer only, attention scaled, no causal mask
        return torch.einsum("bhts,bhse->bthe", weights, v).flatten(2) @ self.out[place]

    def feed(self, x, place):
        gate, up = (x @ self.wide[place].T).chunk(2, -1)
        return F.gelu(gate, approximate="none" if self.bug == "gate activation" else "tanh") * up @ self.narrow[place].T  # label: gate activation

    def bias(self, length, is_decoder):
        distance = torch.arange(length).unsqueeze(0) - torch.arange(length).unsqueeze(1)
        which = bucket(distance, not is_decoder or self.bug == "decoder buckets of both directions")  # label: decoder buckets of both directions
        bias = self.relative[int(is_decoder)][:, which]  # label: decoder buckets of both directions
        if is_decoder and self.bug != "no causal mask":
            bias = bias.masked_fill(distance > 0, float("-inf"))  # label: decoder buckets of both directions, no causal mask
        return bias

    def forward(self, source, target):
        x, bias = self.table[source], self.bias(source.shape[1], False)
        for layer in range(LAYERS):
            first = layer == 0 or self.bug != "positions in the first layer only"
            normed = self.rms(x, self.norms[2 * layer])
            x = x + self.attend(normed, normed, layer, bias if first else None)  # label: positions in the first layer only
            normed = self.rms(x, self.norms[2 * layer + 1])
            x = (normed if self.bug == "residual after the norm" else x) + self.feed(normed, layer)  # label: residual after the norm
        memory = x if self.bug == "encoder norm omitted" else self.rms(x, self.norms[2 * LAYERS])  # label: encoder norm omitted
        x, bias = self.table[target], self.bias(target.shape[1], True)
        for layer in range(LAYERS):
            norms = self.norms[2 * LAYERS + 1 + 3 * layer :]
            first = layer == 0 or self.bug != "positions in the first layer only"
            normed = self.rms(x, norms[0])
            x = x + self.attend(normed, normed, LAYERS + layer, bias if first else None)
            x = x + self.attend(self.rms(x, norms[1]), memory, 2 * LAYERS + layer)  # label: encoder norm omitted
            normed = self.rms(x, norms[2])
            x = (normed if self.bug == "residual after the norm" else x) + self.feed(normed, LAYERS + layer)
        x = self.rms(x, self.norms[-1])
        if self.bug != "logits unscaled":
            x = x / math.sqrt(D)
        return x @ self.table.T  # label: logits unscaled


def transfer(a, b):
    b.table.copy_(a.shared.weight)
    norms, attentions, feeds = [], [], []
    for place, stack in enumerate((a.encoder, a.decoder)):
        b.relative[place].copy_(stack.positions.weight.T)
        for block in stack.blocks:
            norms += [block.norm1.weight, *([block.norm2.weight] if stack.is_decoder else []), block.norm3.weight]
            feeds.append(block.feed)
        norms.append(stack.norm.weight)
        attentions += [block.attention for block in stack.blocks]
    attentions += [block.cross for block in a.decoder.blocks]
    for target, source in zip(b.norms, norms, strict=True):
        target.copy_(source)
    for place, one in enumerate(attentions):
        b.qkv[place].copy_(torch.cat([one.q.weight.T, one.k.weight.T, one.v.weight.T], 1))
        b.out[place].copy_(one.o.weight.T)
    for place, one in enumerate(feeds):
        b.wide[place].copy_(torch.cat([one.gate.weight, one.up.weight]))
        b.narrow[place].copy_(one.down.weight)


def inputs():
    source = torch.randint(0, VOCAB, (2, 7), generator=torch.Generator().manual_seed(5))
    target = torch.randint(0, VOCAB, (2, 7), generator=torch.Generator().manual_seed(6))
    return source, target
