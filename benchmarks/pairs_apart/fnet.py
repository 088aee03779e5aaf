"""FNet: tokens mixed by Fourier transforms in place of attention; embeddings of three kinds, a pooler."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: F401 - an edit calls it
from torch import nn

from .case import Bug

VOCAB, D, FF, LENGTH, LAYERS, CLASSES = 21, 12, 20, 8, 2, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-12), nn.LayerNorm(D, eps=1e-12)
        self.up, self.down, self.act = nn.Linear(D, FF), nn.Linear(FF, D), nn.GELU(approximate="tanh")

    def forward(self, x):
        x = self.norm1(x + torch.fft.fftn(x, dim=(1, 2)).real)  # @a_mixed
        return self.norm2(x + self.down(self.act(self.up(x))))  # @a_second


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(VOCAB, D), nn.Embedding(LENGTH, D), nn.Embedding(2, D)
        self.norm, self.project = nn.LayerNorm(D, eps=1e-12), nn.Linear(D, D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler, self.classifier = nn.Linear(D, D), nn.Linear(D, CLASSES)

    def forward(self, ids, kinds):
        x = self.words(ids) + self.types(kinds) + self.positions(torch.arange(ids.shape[1]))  # @a_types
        x = self.project(self.norm(x))  # @a_project
        for layer in self.layers:
            x = layer(x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class B(nn.Module):
    """The transforms as products with matrices of cosines and sines; types as a difference of two vectors."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(VOCAB, D))
        self.where = nn.Parameter(torch.empty(LENGTH, D))
        self.kind = nn.Parameter(torch.empty(2, D))
        self.inward = nn.Linear(D, D)
        self.scales = nn.Parameter(torch.empty(1 + 2 * LAYERS, D))
        self.shifts = nn.Parameter(torch.empty(1 + 2 * LAYERS, D))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(D, FF), nn.Linear(FF, D)) for _ in range(LAYERS))
        self.pool, self.classes = nn.Linear(D, D), nn.Linear(D, CLASSES)

    def norm(self, x, number):
        mean = torch.sum(x, -1, keepdim=True) / D  # @norm
        var = torch.sum((x - mean) ** 2, -1, keepdim=True) / D  # @norm
        return (x - mean) / torch.sqrt(var + 1e-12) * self.scales[number] + self.shifts[number]  # @norm

    def turns(self, n):
        i = torch.arange(n)
        angles = 2 * math.pi * (torch.outer(i, i) % n) / n  # @angles
        return angles.cos(), -angles.sin()  # @turns

    def mix(self, x):
        cos_t, sin_t = self.turns(x.shape[1])
        cos_d, sin_d = self.turns(x.shape[2])
        real, imag = x @ cos_d, x @ sin_d  # @width
        return cos_t @ real - sin_t @ imag  # @length

    def forward(self, ids, kinds):
        x = self.table[ids] + self.where[: ids.shape[1]]  # @embedded
        x = x + torch.lerp(self.kind[0], self.kind[1], kinds[..., None].float())  # @types
        x = self.inward(self.norm(x, 0))  # @inward
        for i, (up, down) in enumerate(self.ff):
            x = self.norm(x + self.mix(x), 1 + 2 * i)  # @mixed
            y = up(x)
            y = 0.5 * y * (1 + torch.tanh((2 / math.pi) ** 0.5 * (y + 0.044715 * y**3)))  # @gelu
            x = self.norm(x + down(y), 2 + 2 * i)  # @second
        x = torch.tanh(self.pool(x[:, 0]))  # @pooled
        return self.classes(x)  # @classes


def transfer(a, b):
    b.table.copy_(a.words.weight)
    b.where.copy_(a.positions.weight)
    b.kind.copy_(a.types.weight)
    b.inward.load_state_dict(a.project.state_dict())
    norms = [a.norm, *(norm for layer in a.layers for norm in (layer.norm1, layer.norm2))]
    b.scales.copy_(torch.stack([norm.weight for norm in norms]))
    b.shifts.copy_(torch.stack([norm.bias for norm in norms]))
    for own, layer in zip(b.ff, a.layers, strict=True):
        own[0].load_state_dict(layer.up.state_dict())
        own[1].load_state_dict(layer.down.state_dict())
    b.pool.load_state_dict(a.pooler.state_dict())
    b.classes.load_state_dict(a.classifier.state_dict())


def inputs():
    source = torch.Generator().manual_seed(12)
    return torch.randint(0, VOCAB, (3, LENGTH), generator=source), (torch.arange(LENGTH) > 4).long().expand(3, -1)


# fmt: off
BUGS = {
    "imaginary part of the wrong sign": Bug("sign", "cos_t @ real - sin_t @ imag", "cos_t @ real + sin_t @ imag"),
    "mixed along the length only": Bug("axis", "real, imag = x @ cos_d, x @ sin_d", "real, imag = x, torch.zeros_like(x)", "length"),
    "transform normalised": Bug("scale", "return cos_t @ real - sin_t @ imag", "return (cos_t @ real - sin_t @ imag) / (x.shape[1] * x.shape[2]) ** 0.5"),
    "mixing without residual": Bug("residual", "x = self.norm(x + self.mix(x), 1 + 2 * i)", "x = self.norm(self.mix(x), 1 + 2 * i)", "norm a_mixed"),
    "norm before the second residual": Bug("norm order", "x = self.norm(x + down(y), 2 + 2 * i)", "x = x + self.norm(down(y), 2 + 2 * i)", "norm"),
    "eps of the norms": Bug("eps", "torch.sqrt(var + 1e-12)", "torch.sqrt(var + 1e-3)", "norm"),
    "variance by n minus one": Bug("correction", "torch.sum((x - mean) ** 2, -1, keepdim=True) / D", "torch.sum((x - mean) ** 2, -1, keepdim=True) / (D - 1)", "norm"),
    "exact gelu": Bug("activation", "y = 0.5 * y * (1 + torch.tanh((2 / math.pi) ** 0.5 * (y + 0.044715 * y**3)))", "y = F.gelu(y)"),
    "kinds inverted": Bug("flipped", "torch.lerp(self.kind[0], self.kind[1], kinds[..., None].float())", "torch.lerp(self.kind[1], self.kind[0], kinds[..., None].float())"),
    "kinds left out": Bug("missing step", "x = x + torch.lerp(self.kind[0], self.kind[1], kinds[..., None].float())  # @types", "pass", "norm inward a_types"),
    "norms in another order": Bug("index", "x = self.norm(x + down(y), 2 + 2 * i)", "x = self.norm(x + down(y), 1 + 2 * i)"),
    "pooled by the mean": Bug("reduction", "x = torch.tanh(self.pool(x[:, 0]))", "x = torch.tanh(self.pool(x.mean(1)))"),
    "pooler without tanh": Bug("activation", "x = torch.tanh(self.pool(x[:, 0]))", "x = self.pool(x[:, 0])", "classes"),
    "rows of the batch swapped": Bug("batch rows", "x = torch.tanh(self.pool(x[:, 0]))", "x = torch.tanh(self.pool(x[[1, 0, 2], 0]))"),
    "table not trained": Bug("no grad", "x = self.table[ids] + self.where", "x = self.table.data[ids] + self.where", tensors=("table",)),
    "momentum of Nesterov": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.SGD(b.parameters(), 0.1, momentum=0.9, nesterov=True)),
}
# fmt: on


def optimizer(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
