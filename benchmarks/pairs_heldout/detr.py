"""A DETR: features of an image as words, an encoder, queries that attend to them, classes and boxes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, QUERIES, SIDE = 16, 2, 5, 4
BUGS = (
    "positions added to values",
    "queries without their positions",
    "norm before attention",
    "boxes without sigmoid",
    "temperature of the positions",
    "rows and columns of the positions swapped",
    "norm after cross attention omitted",
    "memory of the first layer",
    "scale of the heads",
    "dropout left on",
)


def sines(temperature=10000.0, swapped=False):
    place = torch.arange(1, SIDE + 1, dtype=torch.float32) / SIDE * 2 * math.pi
    rate = temperature ** (2 * (torch.arange(D // 2) // 2) / (D // 2))
    angles = place[:, None] / rate
    axis = torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], 2).flatten(1)
    rows, columns = axis[:, None].expand(SIDE, SIDE, -1), axis[None].expand(SIDE, SIDE, -1)
    return torch.cat([columns, rows] if swapped else [rows, columns], -1).reshape(SIDE * SIDE, D)  # label: rows and columns of the positions swapped, temperature of the positions


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.feed = nn.Sequential(nn.Linear(D, 2 * D), nn.ReLU(), nn.Linear(2 * D, D))

    def forward(self, x, positions):
        q = x + positions  # label: temperature of the positions, rows and columns of the positions swapped, norm before attention
        x = self.norm1(x + self.attention(q, q, x, need_weights=False)[0])  # label: positions added to values, norm before attention, scale of the heads
        return self.norm2(x + self.feed(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.cross = (nn.MultiheadAttention(D, HEADS, batch_first=True) for _ in range(2))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(D) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(D, 2 * D), nn.ReLU(), nn.Linear(2 * D, D))

    def forward(self, x, memory, positions, queries):
        q = x + queries
        x = self.norm1(x + self.attention(q, q, x, need_weights=False)[0])
        mixed = self.cross(x + queries, memory + positions, memory, need_weights=False)[0]  # label: queries without their positions, memory of the first layer
        x = self.norm2(x + mixed)  # label: norm after cross attention omitted
        return self.norm3(x + self.feed(x))  # label: norm after cross attention omitted


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, D, 3, 2, 1))
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(2))
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(2))
        self.queries = nn.Embedding(QUERIES, D)
        self.classes, self.boxes = nn.Linear(D, 4), nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 4))

    def forward(self, images):
        x = self.backbone(images).flatten(2).transpose(1, 2)
        positions = sines()[None]  # label: temperature of the positions, rows and columns of the positions swapped
        for layer in self.encoder:
            x = layer(x, positions)  # label: memory of the first layer
        queries = self.queries.weight[None].expand(len(x), -1, -1)
        y = torch.zeros_like(queries)
        for layer in self.decoder:
            y = layer(y, x, positions, queries)
        return {"classes": self.classes(y), "boxes": self.boxes(y).sigmoid()}  # label: boxes without sigmoid


class B(nn.Module):
    """Words first, attention by hand."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, D, 3, 2, 1)
        self.q, self.k, self.v, self.o = (nn.ModuleList(nn.Linear(D, D) for _ in range(6)) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(10))
        self.wide, self.narrow = nn.ModuleList(nn.Linear(D, 2 * D) for _ in range(4)), nn.ModuleList(nn.Linear(2 * D, D) for _ in range(4))
        self.asked = nn.Parameter(torch.empty(QUERIES, 1, D))
        self.kind, self.box1, self.box2 = nn.Linear(D, 4), nn.Linear(D, D), nn.Linear(D, 4)

    def attend(self, place, q, k, v):
        def heads(t):
            return t.reshape(t.shape[0], t.shape[1] * HEADS, -1).transpose(0, 1)

        size = D if self.bug == "scale of the heads" else D // HEADS
        q, k, v = heads(self.q[place](q) / math.sqrt(size)), heads(self.k[place](k)), heads(self.v[place](v))  # label: scale of the heads
        mixed = torch.bmm(torch.bmm(q, k.mT).softmax(2), v)  # label: scale of the heads
        return self.o[place](mixed.transpose(0, 1).reshape(q.shape[1], -1, D))

    def feed(self, place, x):
        return self.narrow[place](self.wide[place](x).relu())

    def encode(self, x, positions, place):
        n1, n2 = self.norms[2 * place], self.norms[2 * place + 1]
        if self.bug == "norm before attention":
            normed = n1(x)  # label: norm before attention
            x = x + self.attend(place, normed + positions, normed + positions, normed)  # label: norm before attention
        else:
            values = x + positions if self.bug == "positions added to values" else x  # label: positions added to values
            mixed = self.attend(place, x + positions, x + positions, values)  # label: positions added to values, temperature of the positions, rows and columns of the positions swapped
            if self.bug == "dropout left on":
                mixed = F.dropout(mixed, 0.1)  # label: dropout left on
            x = n1(x + mixed)
        return n2(x + self.feed(place, x))

    def decode(self, y, memory, positions, place):
        n1, n2, n3 = self.norms[4 + 3 * place : 7 + 3 * place]
        y = n1(y + self.attend(2 + place, y + self.asked, y + self.asked, y))
        asking = y if self.bug == "queries without their positions" else y + self.asked
        mixed = self.attend(4 + place, asking, memory + positions, memory)  # label: queries without their positions, memory of the first layer
        y = y + mixed
        if self.bug != "norm after cross attention omitted":
            y = n2(y)
        return n3(y + self.feed(2 + place, y))  # label: norm after cross attention omitted

    def forward(self, images):
        x = self.conv2(self.conv1(images).relu()).flatten(2).permute(2, 0, 1)
        temperature = 100.0 if self.bug == "temperature of the positions" else 10000.0
        positions = sines(temperature, self.bug == "rows and columns of the positions swapped")[:, None]  # label: temperature of the positions, rows and columns of the positions swapped
        kept = []
        for place in range(2):
            x = self.encode(x, positions, place)
            kept.append(x)
        memory = kept[0] if self.bug == "memory of the first layer" else kept[1]
        y = torch.zeros(QUERIES, images.shape[0], D)
        for place in range(2):
            y = self.decode(y, memory, positions, place)  # label: memory of the first layer
        boxes = self.box2(self.box1(y).relu())
        if self.bug != "boxes without sigmoid":
            boxes = boxes.sigmoid()
        return {"classes": self.kind(y).transpose(0, 1), "boxes": boxes.transpose(0, 1)}  # label: boxes without sigmoid


def transfer(a, b):
    b.conv1.load_state_dict(a.backbone[0].state_dict())
    b.conv2.load_state_dict(a.backbone[2].state_dict())
    attentions = [layer.attention for layer in (*a.encoder, *a.decoder)] + [layer.cross for layer in a.decoder]
    for place, one in enumerate(attentions):
        for part, weight, bias in zip((b.q, b.k, b.v), one.in_proj_weight.chunk(3), one.in_proj_bias.chunk(3), strict=True):
            part[place].weight.copy_(weight)
            part[place].bias.copy_(bias)
        b.o[place].load_state_dict(one.out_proj.state_dict())
    norms = [norm for layer in a.encoder for norm in (layer.norm1, layer.norm2)]
    norms += [norm for layer in a.decoder for norm in (layer.norm1, layer.norm2, layer.norm3)]
    for target, source in zip(b.norms, norms, strict=True):
        target.load_state_dict(source.state_dict())
    for place, layer in enumerate((*a.encoder, *a.decoder)):
        b.wide[place].load_state_dict(layer.feed[0].state_dict())
        b.narrow[place].load_state_dict(layer.feed[2].state_dict())
    b.asked.copy_(a.queries.weight[:, None])
    b.kind.load_state_dict(a.classes.state_dict())
    b.box1.load_state_dict(a.boxes[0].state_dict())
    b.box2.load_state_dict(a.boxes[2].state_dict())


def inputs():
    return (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(13)),)
