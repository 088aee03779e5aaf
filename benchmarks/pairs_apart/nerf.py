"""A radiance field: places and directions encoded by sines, densities and colours along rays, light gathered."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

OCTAVES, H, SAMPLES = 3, 14, 6
PLACE, WAY = 3 + 6 * OCTAVES, 3 + 6


def encode(x, octaves):
    parts = [x]
    for k in range(octaves):
        parts += [torch.sin(2**k * math.pi * x), torch.cos(2**k * math.pi * x)]
    return torch.cat(parts, -1)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(PLACE, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(H + PLACE, H), nn.ReLU())
        self.density, self.feature = nn.Linear(H, 1), nn.Linear(H, H)
        self.colour = nn.Sequential(nn.Linear(H + WAY, H // 2), nn.ReLU(), nn.Linear(H // 2, 3), nn.Sigmoid())

    def forward(self, points, ways):
        points, ways = encode(points, OCTAVES), encode(ways, 1)
        h = self.second(torch.cat((self.first(points), points), -1))
        return F.softplus(self.density(h) - 1)[..., 0], self.colour(
            torch.cat((self.feature(h), ways), -1)
        )  # @a_density


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = Field()

    def forward(self, origins, ways):
        depths = torch.linspace(0.5, 2.0, SAMPLES)
        points = origins[:, None] + ways[:, None] * depths[:, None]
        unit = ways / ways.norm(dim=-1, keepdim=True)
        density, colour = self.field(points, unit[:, None].expand_as(points))
        gaps = torch.cat((depths[1:] - depths[:-1], torch.full((1,), 0.5)))
        gaps = gaps * ways.norm(dim=-1, keepdim=True)  # @a_gaps
        alpha = 1 - torch.exp(-density * gaps)
        kept = torch.cumprod(torch.cat((torch.ones(len(ways), 1), 1 - alpha + 1e-10), -1), -1)[:, :-1]
        weights = alpha * kept
        rgb = (weights[..., None] * colour).sum(1)
        depth = (weights * depths).sum(-1)
        return {"rgb": rgb + 1 - weights.sum(-1, keepdim=True), "depth": depth}  # @a_white


class B(nn.Module):
    """Rays by samples flattened to one list; light lost as a sum in the exponent; layers as matrices."""

    def __init__(self):
        super().__init__()
        sizes = ((PLACE, H), (H, H), (H + PLACE, H), (H, 1 + H), (H + WAY, H // 2), (H // 2, 3))
        self.w = nn.ParameterList(nn.Parameter(torch.empty(size)) for size in sizes)
        self.b = nn.ParameterList(nn.Parameter(torch.empty(size[1])) for size in sizes)

    def encode(self, x, octaves):
        speeds = torch.pi * 2.0 ** torch.arange(octaves)  # @speeds
        angles = x[:, None] * speeds[:, None]  # @angles
        waves = torch.stack((angles.sin(), angles.cos()), 2)  # @waves
        return torch.cat((x, waves.flatten(1)), 1)  # @encoded

    def field(self, points, ways):
        points, ways = self.encode(points, OCTAVES), self.encode(ways, 1)
        h = torch.relu(points @ self.w[0] + self.b[0])  # @h0
        h = torch.relu(h @ self.w[1] + self.b[1])  # @h1
        h = torch.cat((h, points), 1)  # @skip
        h = torch.relu(h @ self.w[2] + self.b[2])  # @h2
        both = h @ self.w[3] + self.b[3]  # @both
        density, feature = both[:, 0], both[:, 1:]
        density = torch.log1p(torch.exp(density - 1))  # @density
        h = torch.relu(torch.cat((feature, ways), 1) @ self.w[4] + self.b[4])  # @h4
        return density, torch.sigmoid(h @ self.w[5] + self.b[5])  # @colour

    def forward(self, origins, ways):
        n = len(ways)
        depths = 0.5 + 1.5 * torch.arange(SAMPLES) / (SAMPLES - 1)  # @depths
        length = ways.square().sum(-1, keepdim=True).sqrt()  # @length
        points = torch.einsum("rc,s->rsc", ways, depths) + origins.unsqueeze(1)  # @points
        unit = (ways / length).repeat_interleave(SAMPLES, 0)  # @unit
        density, colour = self.field(points.flatten(0, 1), unit)
        gaps = torch.cat((depths.diff(), torch.tensor([0.5])))  # @gaps
        through = density.view(n, SAMPLES) * (gaps * length)  # @through
        before = through.cumsum(1) - through  # @before
        weights = (1 - torch.exp(-through)) * torch.exp(-before)  # @weights
        rgb = torch.einsum("rs,rsc->rc", weights, colour.view(n, SAMPLES, 3))  # @rgb
        white = 1 - weights.sum(1)  # @white
        return {"rgb": rgb + white[:, None], "depth": weights @ depths}  # @result


def transfer(a, b):
    field = a.field
    layers = [field.first[0], field.first[2], field.second[0], None, field.colour[0], field.colour[2]]
    for i, layer in enumerate(layers):
        weight = torch.cat((field.density.weight, field.feature.weight)) if layer is None else layer.weight
        bias = torch.cat((field.density.bias, field.feature.bias)) if layer is None else layer.bias
        b.w[i].copy_(weight.T)
        b.b[i].copy_(bias)


def inputs():
    source = torch.Generator().manual_seed(15)
    return 0.3 * torch.randn(5, 3, generator=source), torch.randn(5, 3, generator=source)


# fmt: off
BUGS = {
    "octaves from one": Bug("off by one", "2.0 ** torch.arange(octaves)", "2.0 ** torch.arange(1, octaves + 1)", "angles waves"),
    "no pi in the encoding": Bug("scale", "speeds = torch.pi * 2.0 ** torch.arange(octaves)", "speeds = 2.0 ** torch.arange(octaves)", "angles waves"),
    "cosines before sines": Bug("order", "torch.stack((angles.sin(), angles.cos()), 2)", "torch.stack((angles.cos(), angles.sin()), 2)", "encoded"),
    "sines and octaves interleaved": Bug("layout", "torch.stack((angles.sin(), angles.cos()), 2)", "torch.stack((angles.sin(), angles.cos()), 1)", "encoded"),
    "skip before the hidden state": Bug("order", "h = torch.cat((h, points), 1)", "h = torch.cat((points, h), 1)", "h2"),
    "density by relu": Bug("activation", "density = torch.log1p(torch.exp(density - 1))", "density = torch.relu(density - 1)"),
    "density not shifted": Bug("missing step", "density = torch.log1p(torch.exp(density - 1))", "density = torch.log1p(torch.exp(density))"),
    "directions not of unit length": Bug("missing step", "unit = (ways / length).repeat_interleave(SAMPLES, 0)", "unit = ways.repeat_interleave(SAMPLES, 0)", "angles"),
    "directions tiled the wrong way": Bug("shuffled", "(ways / length).repeat_interleave(SAMPLES, 0)", "(ways / length).repeat(SAMPLES, 1)"),
    "gaps not along the ray": Bug("missing step", "density.view(n, SAMPLES) * (gaps * length)", "density.view(n, SAMPLES) * gaps", "a_gaps"),
    "light lost at the sample itself": Bug("off by one", "before = through.cumsum(1) - through", "before = through.cumsum(1)", "weights"),
    "light gathered from behind": Bug("direction", "before = through.cumsum(1) - through", "before = through.flip(1).cumsum(1).flip(1) - through", "weights"),
    "no white behind": Bug("missing step", "\"rgb\": rgb + white[:, None]", "\"rgb\": rgb", "rgb a_white"),
    "depth over the sum of weights": Bug("doubled step", "\"depth\": weights @ depths", "\"depth\": weights @ depths / weights.sum(1)"),
    "weights do not train the density": Bug("detach", "weights = (1 - torch.exp(-through)) * torch.exp(-before)", "weights = (1 - torch.exp(-through)) * torch.exp(-before.detach())", tensors=("w.3", "b.3")),
}
# fmt: on
