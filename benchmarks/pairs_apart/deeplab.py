"""DeepLab with an EfficientNet's blocks: squeezed and excited channels, dilated branches, a decoder at full size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

C, CLASSES, RATES = 6, 4, (1, 2, 3)


class MBConv(nn.Module):
    def __init__(self, given, made, stride):
        super().__init__()
        inner = 3 * given
        self.skips = stride == 1 and given == made
        self.expand, self.bn0 = nn.Conv2d(given, inner, 1, bias=False), nn.BatchNorm2d(inner, eps=1e-3)
        self.depth = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(inner, eps=1e-3), nn.BatchNorm2d(made, eps=1e-3)
        self.reduce, self.grow = nn.Conv2d(inner, 2, 1), nn.Conv2d(2, inner, 1)
        self.project = nn.Conv2d(inner, made, 1, bias=False)

    def forward(self, x):
        y = F.silu(self.bn0(self.expand(x)))
        y = F.silu(self.bn1(self.depth(y)))
        y = y * torch.sigmoid(self.grow(F.silu(self.reduce(F.adaptive_avg_pool2d(y, 1)))))  # @a_excited
        y = self.bn2(self.project(y))
        return x + y if self.skips else y  # @a_skip


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, C, 3, 2, 1)
        self.block1, self.block2 = MBConv(C, C, 1), MBConv(C, C, 2)
        self.branches = nn.ModuleList(nn.Conv2d(C, C, 3, padding=rate, dilation=rate) for rate in RATES)
        self.pool, self.join = nn.Conv2d(C, C, 1), nn.Conv2d(4 * C, C, 1)
        self.low, self.head = nn.Conv2d(C, 2, 1), nn.Conv2d(C + 2, CLASSES, 3, padding=1)

    def forward(self, image):
        early = self.block1(self.stem(image))
        x = self.block2(early)
        whole = F.interpolate(
            self.pool(x.mean((2, 3), keepdim=True)), x.shape[2:], mode="bilinear", align_corners=False
        )
        x = torch.cat([F.relu(branch(x)) for branch in self.branches] + [F.relu(whole)], 1)
        x = F.relu(self.join(x))
        x = F.interpolate(x, early.shape[2:], mode="bilinear", align_corners=False)
        x = self.head(torch.cat((x, self.low(early)), 1))
        return F.interpolate(x, image.shape[2:], mode="bilinear", align_corners=False)


class B(nn.Module):
    """Functions on a dict of tensors; 1 × 1 convolutions as products; norms as scale and shift; bilinear by matrices."""

    def __init__(self):
        super().__init__()
        self.p = nn.ParameterDict()
        sizes = {
            "stem": (C, 3, 3, 3),
            "low": (2, C),
            "head": (CLASSES, C + 2, 3, 3),
            "pool": (C, C),
            "join": (C, 4 * C),
        }
        sizes |= {f"branch{i}": (C, C, 3, 3) for i in range(3)}
        for name, size in sizes.items():
            self.p[name], self.p[f"{name}_b"] = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size[0]))
        for n in "12":
            shapes = {"expand": (3 * C, C), "depth": (3 * C, 1, 3, 3), "reduce": (2, 3 * C), "reduce_b": (2,)}
            shapes |= {"grow": (3 * C, 2), "grow_b": (3 * C,), "project": (C, 3 * C)}
            shapes |= {f"{kind}{i}": (C if i == 2 else 3 * C,) for kind in ("gain", "offset") for i in range(3)}
            for name, size in shapes.items():
                self.p[f"{name}_{n}"] = nn.Parameter(torch.empty(size))
            for i in range(3):
                self.register_buffer(f"mean{i}_{n}", torch.zeros(C if i == 2 else 3 * C))
                self.register_buffer(f"var{i}_{n}", torch.ones(C if i == 2 else 3 * C))

    def norm(self, x, i, n):
        mean, var = getattr(self, f"mean{i}_{n}"), getattr(self, f"var{i}_{n}")
        scale = self.p[f"gain{i}_{n}"] / torch.sqrt(var + 1e-3)  # @norm
        shift = self.p[f"offset{i}_{n}"] - mean * scale  # @norm
        return x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)  # @norm

    def dense(self, x, name):
        return torch.einsum("bchw,oc->bohw", x, self.p[name])  # @dense

    def swish(self, x):
        return x * torch.sigmoid(x)  # @swish

    def block(self, x, n, stride):
        y = self.swish(self.norm(self.dense(x, f"expand_{n}"), 0, n))  # @expanded
        y = F.conv2d(y, self.p[f"depth_{n}"], stride=stride, padding=1, groups=3 * C)  # @depth
        y = self.swish(self.norm(y, 1, n))  # @second
        s = self.swish(y.mean((2, 3)) @ self.p[f"reduce_{n}"].T + self.p[f"reduce_b_{n}"])  # @squeezed
        s = torch.sigmoid(s @ self.p[f"grow_{n}"].T + self.p[f"grow_b_{n}"])  # @grown
        y = y * s[..., None, None]  # @excited
        y = self.norm(self.dense(y, f"project_{n}"), 2, n)  # @projected
        return y if stride == 2 else x + y  # @skip

    def enlarge(self, x, size):
        given = x.shape[-1]
        at = ((torch.arange(size) + 0.5) * given / size - 0.5).clamp(0, given - 1)  # @at
        weights = (1 - (at[:, None] - torch.arange(given)).abs()).clamp(min=0)  # @weights
        return weights @ x @ weights.T  # @enlarged

    def forward(self, image):
        x = F.conv2d(image, self.p["stem"], self.p["stem_b"], stride=2, padding=1)  # @stem
        early = self.block(x, "1", 1)  # @early
        x = self.block(early, "2", 2)  # @late
        parts = []
        for i, rate in enumerate(RATES):
            parts.append(
                F.conv2d(x, self.p[f"branch{i}"], self.p[f"branch{i}_b"], padding=rate, dilation=rate)
            )  # @branch
        whole = x.flatten(2).mean(2) @ self.p["pool"].T + self.p["pool_b"]  # @whole
        parts.append(whole[..., None, None].expand_as(x))
        x = torch.cat(parts, 1).relu()  # @joined
        x = (self.dense(x, "join") + self.p["join_b"][:, None, None]).relu()  # @join
        x = self.enlarge(x, early.shape[-1])  # @first
        low = self.dense(early, "low") + self.p["low_b"][:, None, None]  # @low
        x = F.conv2d(torch.cat((x, low), 1), self.p["head"], self.p["head_b"], padding=1)  # @head
        return self.enlarge(x, image.shape[-1])  # @last


def transfer(a, b):
    layers = {"stem": a.stem, "low": a.low, "head": a.head, "pool": a.pool, "join": a.join}
    layers |= {f"branch{i}": branch for i, branch in enumerate(a.branches)}
    for name, layer in layers.items():
        b.p[name].copy_(layer.weight.view_as(b.p[name]))
        b.p[f"{name}_b"].copy_(layer.bias)
    for n, block in (("1", a.block1), ("2", a.block2)):
        for name in ("expand", "depth", "reduce", "grow", "project"):
            b.p[f"{name}_{n}"].copy_(getattr(block, name).weight.view_as(b.p[f"{name}_{n}"]))
        b.p[f"reduce_b_{n}"].copy_(block.reduce.bias)
        b.p[f"grow_b_{n}"].copy_(block.grow.bias)
        for i, norm in enumerate((block.bn0, block.bn1, block.bn2)):
            b.p[f"gain{i}_{n}"].copy_(norm.weight)
            b.p[f"offset{i}_{n}"].copy_(norm.bias)
            getattr(b, f"mean{i}_{n}").copy_(norm.running_mean)
            getattr(b, f"var{i}_{n}").copy_(norm.running_var)


def inputs():
    return (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(23)),)


# fmt: off
BUGS = {
    "eps of the norms": Bug("eps", "torch.sqrt(var + 1e-3)", "torch.sqrt(var + 1e-1)", "norm"),
    "mean of the wrong sign": Bug("sign", "self.p[f\"offset{i}_{n}\"] - mean * scale", "self.p[f\"offset{i}_{n}\"] + mean * scale", "norm"),
    "squeezed by the maximum": Bug("reduction", "s = self.swish(y.mean((2, 3)) @", "s = self.swish(y.amax((2, 3)) @"),
    "excitation not gated": Bug("activation", "s = torch.sigmoid(s @ self.p[f\"grow_{n}\"].T + self.p[f\"grow_b_{n}\"])", "s = torch.relu(s @ self.p[f\"grow_{n}\"].T + self.p[f\"grow_b_{n}\"])"),
    "squeezed by relu": Bug("activation", "s = self.swish(y.mean((2, 3)) @ self.p[f\"reduce_{n}\"].T + self.p[f\"reduce_b_{n}\"])", "s = torch.relu(y.mean((2, 3)) @ self.p[f\"reduce_{n}\"].T + self.p[f\"reduce_b_{n}\"])"),
    "excitation left out": Bug("missing step", "y = y * s[..., None, None]  # @excited", "pass", "dense a_excited"),
    "excited rows swapped": Bug("batch rows", "y = y * s[..., None, None]", "y = y * s.flip(0)[..., None, None]"),
    "groups left out": Bug("groups", "F.conv2d(y, self.p[f\"depth_{n}\"], stride=stride, padding=1, groups=3 * C)", "F.conv2d(y, self.p[f\"depth_{n}\"].expand(-1, 3 * C, -1, -1) / (3 * C), stride=stride, padding=1)"),
    "no skip": Bug("residual", "return y if stride == 2 else x + y", "return y", "dense low a_skip"),
    "dilation without its padding": Bug("dilation", "padding=rate, dilation=rate", "padding=1, dilation=1"),
    "branches in another order": Bug("order", "torch.cat(parts, 1).relu()", "torch.cat(parts[::-1], 1).relu()", "dense"),
    "whole image not activated": Bug("activation", "torch.cat(parts, 1).relu()", "torch.cat([part.relu() for part in parts[:3]] + parts[3:], 1)"),
    "corners aligned": Bug("align corners", "at = ((torch.arange(size) + 0.5) * given / size - 0.5).clamp(0, given - 1)", "at = torch.arange(size) * (given - 1) / (size - 1)", "weights enlarged"),
    "enlarged without the half pixel": Bug("off by one", "((torch.arange(size) + 0.5) * given / size - 0.5)", "(torch.arange(size) * given / size)", "weights enlarged"),
    "early and late exchanged in the head": Bug("order", "torch.cat((x, low), 1)", "torch.cat((low, x), 1)"),
    "low features of the stem": Bug("wrong tensor", "x = self.block(early, \"2\", 2)  # @late", "x, early = self.block(early, \"2\", 2), x  # @late", "dense"),
    "gate not trained": Bug("detach", "y = y * s[..., None, None]", "y = y * s.detach()[..., None, None]", tensors=("grow_2", "grow_b_2")),
    "learning rate halved": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.AdamW(b.parameters(), 5e-3, weight_decay=0.05)),
    "decay of biases left out": Bug("optimizer", tensors=("_b", "offset", "gain"), optimizer=lambda b: torch.optim.AdamW([{"params": [p for p in b.parameters() if p.ndim > 1]}, {"params": [p for p in b.parameters() if p.ndim < 2], "weight_decay": 0.0}], 1e-2, weight_decay=0.05)),
}
# fmt: on


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.05)
