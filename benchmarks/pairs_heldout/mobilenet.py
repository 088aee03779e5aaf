"""A MobileNetV2: inverted residuals with depthwise convolutions, batch norms, ReLU6 and linear bottlenecks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

# given, made, stride, expansion
BLOCKS = ((8, 8, 1, 2), (8, 12, 2, 3), (12, 12, 1, 3))
BUGS = (
    "relu for relu6",
    "bottleneck not linear",
    "residual omitted",
    "eps of batch norm",
    "stride in the expansion",
    "statistics of another norm",
    "padding on one side",
    "channels shuffled",
    "two equal blocks swapped",
)


def conv_bn(given, made, kernel, stride=1, groups=1):
    return [nn.Conv2d(given, made, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(made)]


class InvertedResidual(nn.Module):
    def __init__(self, given, made, stride, expansion):
        super().__init__()
        inner = given * expansion
        self.skips = stride == 1 and given == made
        self.conv = nn.Sequential(
            *conv_bn(given, inner, 1),  # label: stride in the expansion
            nn.ReLU6(inplace=True),
            *conv_bn(inner, inner, 3, stride, inner),
            nn.ReLU6(inplace=True),
            *conv_bn(inner, made, 1),
        )

    def forward(self, x):
        y = self.conv(x)  # label: relu for relu6, eps of batch norm, stride in the expansion, statistics of another norm, padding on one side
        return x + y if self.skips else y  # label: residual omitted, bottleneck not linear


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 8, 3, 2), nn.ReLU6(inplace=True))
        self.blocks = nn.Sequential(*(InvertedResidual(*block) for block in BLOCKS), InvertedResidual(12, 12, 1, 3))
        self.head = nn.Sequential(*conv_bn(12, 20, 1), nn.ReLU6(inplace=True))
        self.classifier = nn.Linear(20, 6)

    def forward(self, x):
        x = self.stem(x)  # label: relu for relu6, eps of batch norm
        x = self.blocks(x)  # label: two equal blocks swapped
        x = self.head(x)  # label: residual omitted, bottleneck not linear, channels shuffled
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))  # label: channels shuffled


class B(nn.Module):
    """Convolution and norm as one unit, an own loop over settings."""

    class Unit(nn.Module):
        def __init__(self, given, made, kernel, stride, groups, net):
            super().__init__()
            self.net = [net]  # not a child
            self.kernel, self.stride, self.groups = kernel, stride, groups
            self.filters = nn.Parameter(torch.empty(made, given // groups, kernel, kernel))
            self.scale, self.shift = nn.Parameter(torch.empty(made)), nn.Parameter(torch.empty(made))
            self.register_buffer("mean", torch.zeros(made))
            self.register_buffer("var", torch.ones(made))

        def forward(self, x, act, stride=None, other=None):
            bug, stats = self.net[0].bug, other or self
            stride = stride or self.stride
            if bug == "padding on one side" and self.kernel == 3 and self.groups > 1:
                x = F.conv2d(F.pad(x, (2, 0, 2, 0)), self.filters, None, stride, 0, 1, self.groups)  # label: padding on one side
            else:
                x = F.conv2d(x, self.filters, None, stride, self.kernel // 2, 1, self.groups)  # label: stride in the expansion
            eps = 1e-1 if bug == "eps of batch norm" else 1e-5
            factor = self.scale * torch.rsqrt(stats.var + eps)  # label: eps of batch norm, statistics of another norm
            x = x * factor[:, None, None] + (self.shift - stats.mean * factor)[:, None, None]  # label: eps of batch norm, statistics of another norm
            if not act:
                return x
            return x.clamp(min=0) if bug == "relu for relu6" else x.clamp(0, 6)  # label: relu for relu6

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        units = [(3, 8, 3, 2, 1)]
        for given, made, stride, expansion in (*BLOCKS, (12, 12, 1, 3)):
            inner = given * expansion
            units += [(given, inner, 1, 1, 1), (inner, inner, 3, stride, inner), (inner, made, 1, 1, 1)]
        units.append((12, 20, 1, 1, 1))
        self.units = nn.ModuleList(B.Unit(*unit, self) for unit in units)
        self.w, self.b = nn.Parameter(torch.empty(20, 6)), nn.Parameter(torch.empty(6))

    def forward(self, x):
        x = self.units[0](x, True)
        order = [0, 1, 2, 3]
        if self.bug == "two equal blocks swapped":
            order = [0, 1, 3, 2]
        for place in order:
            expand, depth, project = self.units[1 + 3 * place : 4 + 3 * place]
            early = self.bug == "stride in the expansion" and depth.stride == 2
            other = self.units[11] if self.bug == "statistics of another norm" and place == 2 else None
            y = expand(x, True, 2 if early else None)  # label: stride in the expansion, two equal blocks swapped
            y = depth(y, True, 1 if early else None, other)  # label: statistics of another norm, padding on one side
            y = project(y, self.bug == "bottleneck not linear" and place == 2)  # label: bottleneck not linear
            skips = place != 1 and not (self.bug == "residual omitted" and place == 3)
            x = x + y if skips else y  # label: bottleneck not linear
        x = self.units[-1](x, True)  # label: residual omitted
        x = x.mean(dim=[2, 3])
        if self.bug == "channels shuffled":
            x = x.view(-1, 4, 5).transpose(1, 2).reshape(-1, 20)  # label: channels shuffled
        return torch.addmm(self.b, x, self.w)  # label: channels shuffled


def transfer(a, b):
    pairs = []
    for sequence in (a.stem, *(block.conv for block in a.blocks), a.head):
        layers = list(sequence)
        pairs += [(layer, layers[place + 1]) for place, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    for unit, (conv, norm) in zip(b.units, pairs, strict=True):
        unit.filters.copy_(conv.weight)
        unit.scale.copy_(norm.weight)
        unit.shift.copy_(norm.bias)
        unit.mean.copy_(norm.running_mean)
        unit.var.copy_(norm.running_var)
    b.w.copy_(a.classifier.weight.T)
    b.b.copy_(a.classifier.bias)


def inputs():
    return (4 * torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(8)),)
