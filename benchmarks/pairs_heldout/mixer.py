"""An MLP-Mixer: patches, layers that mix places, layers that mix channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

SIDE, D, PLACES = 4, 12, 9
BUGS = (
    "patches by columns",
    "pixels before channels",
    "residual from the norm",
    "first norm used twice",
    "pooled at the first place",
    "channels mixed first",
    "gelu by sigmoid",
    "bias of the head omitted",
)


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))  # label: gelu by sigmoid


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.tokens, self.norm2, self.channels = nn.LayerNorm(D), Mlp(PLACES), nn.LayerNorm(D), Mlp(D)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)  # label: residual from the norm, channels mixed first
        return x + self.channels(self.norm2(x))  # label: first norm used twice


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, D, SIDE, SIDE)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)  # label: patches by columns, pixels before channels
        for layer in self.layers:
            x = layer(x)  # label: channels mixed first
        return self.head(self.norm(x).mean(1))  # label: pooled at the first place, bias of the head omitted


class B(nn.Module):
    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.stem = nn.Linear(3 * SIDE * SIDE, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(5))
        # Mixing of places is a convolution over them.
        self.mix = nn.ModuleList(nn.Conv1d(i, o, 1) for _ in range(2) for i, o in ((PLACES, 2 * PLACES), (2 * PLACES, PLACES)))
        self.wide = nn.ModuleList(nn.Linear(D, 2 * D) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(2 * D, D) for _ in range(2))
        self.head = nn.Linear(D, 5)

    def gelu(self, x):
        if self.bug == "gelu by sigmoid":
            return x * torch.sigmoid(1.702 * x)  # label: gelu by sigmoid
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))

    def cut(self, x):
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // SIDE, SIDE, w // SIDE, SIDE)
        places = (4, 2) if self.bug == "patches by columns" else (2, 4)
        inside = (3, 5, 1) if self.bug == "pixels before channels" else (1, 3, 5)
        return x.permute(0, *places, *inside).reshape(n, PLACES, -1)  # label: patches by columns, pixels before channels

    def channels(self, x, place):
        norm = self.norms[2 * place if self.bug == "first norm used twice" else 2 * place + 1]
        return x + self.narrow[place](self.gelu(self.wide[place](norm(x))))  # label: first norm used twice, channels mixed first

    def forward(self, x):
        x = self.stem(self.cut(x))  # label: patches by columns, pixels before channels
        for place in range(2):
            if self.bug == "channels mixed first":
                x = self.channels(x, place)  # label: channels mixed first
            normed = self.norms[2 * place](x)  # label: channels mixed first
            mixed = self.mix[2 * place + 1](self.gelu(self.mix[2 * place](normed)))
            x = (normed if self.bug == "residual from the norm" else x) + mixed  # label: residual from the norm
            if self.bug != "channels mixed first":
                x = self.channels(x, place)  # label: first norm used twice
        x = self.norms[4](x)
        x = x[:, 0] if self.bug == "pooled at the first place" else x.sum(1) / PLACES  # label: pooled at the first place
        if self.bug == "bias of the head omitted":
            return F.linear(x, self.head.weight)  # label: bias of the head omitted
        return self.head(x)  # label: pooled at the first place


def transfer(a, b):
    b.stem.weight.copy_(a.patch.weight.flatten(1))
    b.stem.bias.copy_(a.patch.bias)
    norms = [norm for layer in a.layers for norm in (layer.norm1, layer.norm2)] + [a.norm]
    for target, source in zip(b.norms, norms, strict=True):
        target.load_state_dict(source.state_dict())
    for place, layer in enumerate(a.layers):
        for target, source in ((b.mix[2 * place], layer.tokens.fc1), (b.mix[2 * place + 1], layer.tokens.fc2)):
            target.weight.copy_(source.weight[:, :, None])
            target.bias.copy_(source.bias)
        b.wide[place].load_state_dict(layer.channels.fc1.state_dict())
        b.narrow[place].load_state_dict(layer.channels.fc2.state_dict())
    b.head.load_state_dict(a.head.state_dict())


def inputs():
    return (torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(10)),)
