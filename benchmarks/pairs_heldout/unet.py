"""A U-Net: two levels down and up, skip connections by concatenation, group norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

BUGS = (
    "skip and upsampled swapped",
    "nearest for bilinear",
    "corners aligned",
    "average for maximum",
    "groups of the norm",
    "activation before the norm",
    "skip of the wrong level",
    "rows of the batch swapped",
    "gradient cut at a skip",
)
SPOILED = {"gradient cut at a skip": ("convs.1.offset", "convs.1.gain")}  # the nearest to the cut, by its address in B


def double(given, made):
    return nn.Sequential(
        nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(2, made), nn.SiLU(),
        nn.Conv2d(made, made, 3, padding=1), nn.GroupNorm(2, made), nn.SiLU(),
    )  # fmt: skip


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = double(3, 8), double(8, 8), double(8, 8)
        self.up2, self.up1 = double(16, 8), double(16, 8)
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skip1 = self.down1(x)  # label: groups of the norm, activation before the norm
        skip2 = self.down2(self.pool(skip1))  # label: average for maximum
        x = self.middle(self.pool(skip2))
        x = self.up2(torch.cat([skip2, self.grow(x)], 1))  # label: skip and upsampled swapped, nearest for bilinear, corners aligned
        x = self.up1(torch.cat([skip1, self.grow(x)], 1))  # label: skip of the wrong level
        return self.last(x)  # label: rows of the batch swapped


class Conv(nn.Module):
    def __init__(self, given, made, bug):
        super().__init__()
        self.bug = bug
        self.kernel = nn.Parameter(torch.empty(given * 9, made))
        self.bias, self.gain, self.offset = (nn.Parameter(torch.empty(made)) for _ in range(3))

    def forward(self, x):
        """Channels last; the convolution is a product with unfolded patches."""
        n, h, w, _ = x.shape
        patches = F.unfold(x.permute(0, 3, 1, 2), 3, padding=1).transpose(1, 2)
        x = patches @ self.kernel + self.bias
        groups = 4 if self.bug == "groups of the norm" else 2
        if self.bug == "activation before the norm":
            x = x * torch.sigmoid(x)  # label: activation before the norm
        x = x.view(n, h * w, groups, -1)
        mean, variance = x.mean((1, 3), keepdim=True), x.var((1, 3), keepdim=True, unbiased=False)  # label: groups of the norm
        x = ((x - mean) / (variance + 1e-5).sqrt()).view(n, h, w, -1)  # label: groups of the norm
        x = x * self.gain + self.offset  # label: groups of the norm
        return x if self.bug == "activation before the norm" else x * torch.sigmoid(x)


class B(nn.Module):
    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.convs = nn.ModuleList(
            Conv(*widths, bug) for widths in ((3, 8), (8, 8), (8, 8), (8, 8), (8, 8), (8, 8), (16, 8), (8, 8), (16, 8), (8, 8))
        )
        self.last = nn.Linear(8, 2)

    def pool(self, x):
        n, h, w, c = x.shape
        x = x.view(n, h // 2, 2, w // 2, 2, c)
        return x.mean((2, 4)) if self.bug == "average for maximum" else x.amax((2, 4))  # label: average for maximum

    def grow(self, x):
        mode = "nearest" if self.bug == "nearest for bilinear" else "bilinear"
        corners = True if self.bug == "corners aligned" else None if mode == "nearest" else False
        size = (2 * x.shape[1], 2 * x.shape[2])
        return F.interpolate(x.movedim(-1, 1), size=size, mode=mode, align_corners=corners).movedim(1, -1)  # label: nearest for bilinear, corners aligned

    def forward(self, x):
        c = self.convs
        first = c[1](c[0](x.movedim(1, -1)))
        second = c[3](c[2](self.pool(first)))
        x = self.grow(c[5](c[4](self.pool(second))))
        if self.bug == "gradient cut at a skip":
            first = first.detach()
        x = torch.cat([x, second] if self.bug == "skip and upsampled swapped" else [second, x], -1)  # label: skip and upsampled swapped
        x = self.grow(c[7](c[6](x)))  # label: skip and upsampled swapped
        if self.bug == "skip of the wrong level":
            first = self.grow(second)  # label: skip of the wrong level
        x = torch.cat([first, x], -1)  # label: skip of the wrong level
        x = self.last(c[9](c[8](x)))  # label: skip of the wrong level
        if self.bug == "rows of the batch swapped":
            x = x.roll(1, 0)  # label: rows of the batch swapped
        return x.movedim(-1, 1)


def transfer(a, b):
    sequences = (a.down1, a.down2, a.middle, a.up2, a.up1)
    pairs = [(part[place], part[place + 1]) for part in sequences for place in (0, 3)]
    for one, (conv, norm) in zip(b.convs, pairs, strict=True):
        one.kernel.copy_(conv.weight.flatten(1).T)
        one.bias.copy_(conv.bias)
        one.gain.copy_(norm.weight)
        one.offset.copy_(norm.bias)
    b.last.weight.copy_(a.last.weight.flatten(1))
    b.last.bias.copy_(a.last.bias)


def inputs():
    return (torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(9)),)
