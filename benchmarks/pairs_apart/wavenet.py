"""WaveNet: gated causal convolutions with growing dilation, a speaker's embedding in each, skips summed."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

CLASSES, C, SKIP, KERNEL, SPEAKERS = 11, 8, 10, 2, 4
DILATIONS = (1, 2, 4)


class Layer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.past = (KERNEL - 1) * dilation
        self.filter = nn.Conv1d(C, C, KERNEL, dilation=dilation)
        self.gate = nn.Conv1d(C, C, KERNEL, dilation=dilation)
        self.filter_speaker, self.gate_speaker = nn.Linear(6, C, bias=False), nn.Linear(6, C, bias=False)
        self.residual, self.skip = nn.Conv1d(C, C, 1), nn.Conv1d(C, SKIP, 1)

    def forward(self, x, speaker):
        padded = F.pad(x, (self.past, 0))
        f = self.filter(padded) + self.filter_speaker(speaker)[..., None]
        g = self.gate(padded) + self.gate_speaker(speaker)[..., None]  # @gate_speaker
        z = torch.tanh(f) * torch.sigmoid(g)
        return (x + self.residual(z)) * math.sqrt(0.5), self.skip(z)  # @scaled


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.speakers = nn.Embedding(SPEAKERS, 6)
        self.inward = nn.Conv1d(CLASSES, C, 1)
        self.layers = nn.ModuleList(Layer(dilation) for dilation in DILATIONS)
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(SKIP, SKIP, 1), nn.ReLU(), nn.Conv1d(SKIP, CLASSES, 1))

    def forward(self, wave, speaker):
        x = self.inward(F.one_hot(wave, CLASSES).float().transpose(1, 2))
        speaker, total = self.speakers(speaker), 0
        for layer in self.layers:
            x, skip = layer(x, speaker)
            total = total + skip  # @skips
        return self.out(total)


class B(nn.Module):
    """Time before channels, each tap a product with a delayed signal, filter and gate as one."""

    def __init__(self):
        super().__init__()
        n = len(DILATIONS)
        self.who = nn.Parameter(torch.empty(SPEAKERS, 6))
        self.start, self.start_bias = nn.Parameter(torch.empty(CLASSES, C)), nn.Parameter(torch.empty(C))
        self.taps = nn.ParameterList(nn.Parameter(torch.empty(KERNEL, C, 2 * C)) for _ in range(n))
        self.tap_bias = nn.ParameterList(nn.Parameter(torch.empty(2 * C)) for _ in range(n))
        self.voice = nn.ParameterList(nn.Parameter(torch.empty(6, 2 * C)) for _ in range(n))
        self.both = nn.ModuleList(nn.Linear(C, C + SKIP) for _ in range(n))
        self.head = nn.ModuleList((nn.Linear(SKIP, SKIP), nn.Linear(SKIP, CLASSES)))

    def delayed(self, x, by):
        return torch.cat((x.new_zeros(x.shape[0], by, C), x[:, : x.shape[1] - by]), 1)  # @delayed

    def layer(self, x, voice, i):
        reach = 2**i
        total = self.tap_bias[i] + x @ self.taps[i][1]  # @taps
        total = total + self.delayed(x, reach) @ self.taps[i][0]  # @taps
        total = total + (voice @ self.voice[i])[:, None]  # @voice
        f, g = total.split(C, -1)
        z = f.tanh() * g.sigmoid()  # @gated
        onward, skip = self.both[i](z).split([C, SKIP], -1)  # @both
        return (x + onward) / 2**0.5, skip  # @onward

    def forward(self, wave, speaker):
        x = self.start[wave] + self.start_bias
        voice = self.who[speaker]
        skips = []
        for i in range(len(DILATIONS)):
            x, skip = self.layer(x, voice, i)
            skips.append(skip)
        y = torch.stack(skips).sum(0)  # @sum
        y = self.head[0](F.relu(y))  # @first
        y = self.head[1](F.relu(y))  # @second
        return y.transpose(1, 2)


def transfer(a, b):
    b.who.copy_(a.speakers.weight)
    b.start.copy_(a.inward.weight[..., 0].T)
    b.start_bias.copy_(a.inward.bias)
    for i, layer in enumerate(a.layers):
        b.taps[i].copy_(torch.cat((layer.filter.weight, layer.gate.weight)).permute(2, 1, 0))
        b.tap_bias[i].copy_(torch.cat((layer.filter.bias, layer.gate.bias)))
        b.voice[i].copy_(torch.cat((layer.filter_speaker.weight, layer.gate_speaker.weight)).T)
        b.both[i].weight.copy_(torch.cat((layer.residual.weight, layer.skip.weight))[..., 0])
        b.both[i].bias.copy_(torch.cat((layer.residual.bias, layer.skip.bias)))
    for own, conv in zip(b.head, (a.out[1], a.out[3]), strict=True):
        own.weight.copy_(conv.weight[..., 0])
        own.bias.copy_(conv.bias)


def inputs():
    source = torch.Generator().manual_seed(3)
    return torch.randint(0, CLASSES, (3, 12), generator=source), torch.tensor([2, 0, 3])


# fmt: off
BUGS = {
    "dilation grows by two": Bug("dilation", "reach = 2**i", "reach = 2 * i + 1", "taps delayed"),
    "taps reversed": Bug("flipped", "x @ self.taps[i][1]  # @taps\n        total = total + self.delayed(x, reach) @ self.taps[i][0]", "x @ self.taps[i][0]  # @taps\n        total = total + self.delayed(x, reach) @ self.taps[i][1]", "taps"),
    "sees ahead": Bug("off by one", "return torch.cat((x.new_zeros(x.shape[0], by, C), x[:, : x.shape[1] - by]), 1)", "return torch.cat((x[:, by:], x.new_zeros(x.shape[0], by, C)), 1)", "taps"),
    "filter and gate swapped": Bug("index", "z = f.tanh() * g.sigmoid()", "z = g.tanh() * f.sigmoid()"),
    "residual not scaled": Bug("scale", "return (x + onward) / 2**0.5, skip", "return x + onward, skip", "scaled taps"),
    "skip of the first layer left out": Bug("missing step", "torch.stack(skips)", "torch.stack(skips[1:])"),
    "speaker in the gate left out": Bug("missing step", "total = total + (voice @ self.voice[i])[:, None]", "total = total + F.pad((voice @ self.voice[i])[:, None, :C], (0, C))", "gated gate_speaker"),
    "speakers of other rows": Bug("batch rows", "voice = self.who[speaker]", "voice = self.who[speaker.flip(0)]", "voice"),
    "activation before the second product left out": Bug("activation", "y = self.head[1](F.relu(y))", "y = self.head[1](y)"),
    "skips not trained": Bug("detach", "skips.append(skip)", "skips.append(skip.detach())", tensors=("both.0", "both.1", "both.2")),
}
# fmt: on
