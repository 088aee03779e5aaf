"""A ConvNeXt: depthwise convolutions, norms over channels, pointwise layers, layer scale."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS = (8, 16)
BUGS = (
    "eps of the norms",
    "gelu by tanh",
    "layer scale omitted",
    "residual omitted in one block",
    "pooled by maximum",
    "head norm before pooling",
    "norm over all of an image",
    "circular padding",
    "norm before downsampling omitted",
    "logits in reverse",
)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x).permute(0, 2, 3, 1)  # label: circular padding
        x = self.norm(x)  # label: eps of the norms, norm over all of an image
        x = self.pwconv2(self.act(self.pwconv1(x)))  # label: gelu by tanh
        x = self.gamma * x  # label: layer scale omitted
        return shortcut + x.permute(0, 3, 1, 2)  # label: residual omitted in one block, layer scale omitted


class Down(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(given, eps=1e-6), nn.Conv2d(given, made, 2, 2)

    def forward(self, x):
        return self.conv(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))  # label: norm before downsampling omitted


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, WIDTHS[0], 2, 2), nn.LayerNorm(WIDTHS[0], eps=1e-6)
        self.stage1 = nn.Sequential(*(Block(WIDTHS[0]) for _ in range(2)))
        self.down = Down(*WIDTHS)
        self.stage2 = nn.Sequential(*(Block(WIDTHS[1]) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTHS[1], eps=1e-6), nn.Linear(WIDTHS[1], 5)

    def forward(self, x):
        x = self.stem_norm(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # label: eps of the norms, norm over all of an image
        x = self.stage2(self.down(self.stage1(x)))
        return self.head(self.norm(x.mean((-2, -1))))  # label: pooled by maximum, head norm before pooling, logits in reverse


class B(nn.Module):
    """Channels stay first, pointwise layers are convolutions, nothing but functions."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.weights = nn.ParameterDict()

    def norm(self, x, name):
        eps = 1e-2 if self.bug == "eps of the norms" else 1e-6
        axes = (1, 2, 3) if self.bug == "norm over all of an image" else (1,)
        mean = x.mean(axes, keepdim=True)  # label: norm over all of an image
        variance = (x - mean).square().mean(axes, keepdim=True)  # label: norm over all of an image
        x = (x - mean) / torch.sqrt(variance + eps)  # label: eps of the norms, norm over all of an image
        return x * self.weights[name + "_w"].view(1, -1, 1, 1) + self.weights[name + "_b"].view(1, -1, 1, 1)  # label: eps of the norms, norm over all of an image

    def block(self, x, name):
        w = self.weights
        width = x.shape[1]
        if self.bug == "circular padding":
            y = F.conv2d(F.pad(x, (2, 2, 2, 2), mode="circular"), w[name + "dw_w"], w[name + "dw_b"], groups=width)  # label: circular padding
        else:
            y = F.conv2d(x, w[name + "dw_w"], w[name + "dw_b"], padding=2, groups=width)
        y = self.norm(y, name + "n")
        y = F.conv2d(y, w[name + "1_w"], w[name + "1_b"])
        y = F.gelu(y, approximate="tanh" if self.bug == "gelu by tanh" else "none")  # label: gelu by tanh
        y = F.conv2d(y, w[name + "2_w"], w[name + "2_b"])
        if self.bug != "layer scale omitted":
            y = torch.einsum("nchw,c->nchw", y, w[name + "g"])
        if self.bug == "residual omitted in one block" and name == "s1b1":
            return y
        return y + x  # label: layer scale omitted

    def forward(self, x):
        w = self.weights
        x = self.norm(F.conv2d(x, w["stem_w"], w["stem_b"], stride=2), "stemn")
        for place in range(2):
            x = self.block(x, f"s1b{place}")
        if self.bug != "norm before downsampling omitted":
            x = self.norm(x, "downn")  # label: residual omitted in one block
        x = F.conv2d(x, w["down_w"], w["down_b"], stride=2)  # label: norm before downsampling omitted
        for place in range(2):
            x = self.block(x, f"s2b{place}")
        if self.bug == "head norm before pooling":
            x = F.adaptive_avg_pool2d(self.norm(x, "headn"), 1)  # label: head norm before pooling
        else:
            x = F.adaptive_max_pool2d(x, 1) if self.bug == "pooled by maximum" else F.adaptive_avg_pool2d(x, 1)  # label: pooled by maximum
            x = self.norm(x, "headn")
        x = F.conv2d(x, w["head_w"][:, :, None, None], w["head_b"]).flatten(1)
        return x.flip(1) if self.bug == "logits in reverse" else x  # label: logits in reverse


def transfer(a, b):
    def put(name, tensor):
        b.weights[name] = nn.Parameter(tensor.clone())

    for name, module in (("stem", a.stem), ("stemn", a.stem_norm), ("downn", a.down.norm), ("down", a.down.conv), ("headn", a.norm), ("head", a.head)):
        put(name + "_w", module.weight)
        put(name + "_b", module.bias)
    for stage, blocks in ((1, a.stage1), (2, a.stage2)):
        for place, block in enumerate(blocks):
            name = f"s{stage}b{place}"
            for part, module in (("dw", block.dwconv), ("n", block.norm), ("1", block.pwconv1), ("2", block.pwconv2)):
                weight = module.weight[:, :, None, None] if isinstance(module, nn.Linear) else module.weight
                put(name + part + "_w", weight)
                put(name + part + "_b", module.bias)
            put(name + "g", block.gamma)


def inputs():
    return (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(7)),)
