"""A detector: features at two sizes, boxes decoded from anchors, the best kept; soft targets of a distribution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

C, CLASSES, SIDE, BINS, TOP = 6, 3, 8, 4, 5
ANCHORS = ((1.0, 2.0), (2.0, 1.0))
STRIDES = (4, 8)
WIDE = len(ANCHORS) * (2 + 2 * BINS + 1 + CLASSES)


class Csp(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.inner, self.outward = (
            nn.Conv2d(C, C, 1),
            nn.Conv2d(C // 2, C // 2, 3, padding=1),
            nn.Conv2d(C + C // 2, C, 1),
        )

    def forward(self, x):
        left, right = F.silu(self.inward(x)).chunk(2, 1)
        return F.silu(self.outward(torch.cat((left, right, right + F.silu(self.inner(right))), 1)))


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, C, 4, 4), nn.Conv2d(C, C, 3, 2, 1)
        self.csp1, self.csp2 = Csp(), Csp()
        self.lateral = nn.Conv2d(C, C, 1)
        self.heads = nn.ModuleList(nn.Conv2d(C, WIDE, 1) for _ in STRIDES)

    def forward(self, image):
        high = self.csp1(F.silu(self.stem(image)))
        low = self.csp2(F.silu(self.down(high)))
        high = high + F.interpolate(self.lateral(low), scale_factor=2, mode="nearest")
        boxes, scores = [], []
        for x, head, stride in zip((high, low), self.heads, STRIDES, strict=True):
            n, _, h, w = x.shape
            y = head(x).view(n, len(ANCHORS), -1, h, w).permute(0, 1, 3, 4, 2)
            grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
            centre = (2 * y[..., :2].sigmoid() - 0.5 + grid) * stride
            spread = y[..., 2 : 2 + 2 * BINS].unflatten(-1, (2, BINS)).softmax(-1)
            size = (spread * torch.arange(BINS)).sum(-1) + 0.5
            size = size * torch.tensor(ANCHORS).view(-1, 1, 1, 2) * stride
            boxes.append(torch.cat((centre - size / 2, centre + size / 2), -1).flatten(1, 3))
            scores.append(
                (y[..., 2 + 2 * BINS, None].sigmoid() * y[..., 3 + 2 * BINS :].sigmoid()).flatten(1, 3)
            )  # @a_sure
        boxes, scores = torch.cat(boxes, 1), torch.cat(scores, 1)
        best, index = scores.amax(-1).topk(TOP, 1)
        return {
            "boxes": boxes.gather(1, index[..., None].expand(-1, -1, 4)).clamp(0, 16),
            "best": best,
            "scores": scores,
        }


class B(nn.Module):
    """Positions first, one list of cells; heads cut by kind; areas from corners."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(C, C), nn.Linear(C + C // 2, C)
            self.kernel, self.offset = (
                nn.Parameter(torch.empty(C // 2, C // 2, 3, 3)),
                nn.Parameter(torch.empty(C // 2)),
            )

        def forward(self, x):
            y = swish(self.first(x))  # @block_in
            left, right = y[..., : C // 2], y[..., C // 2 :]  # @halves
            z = F.conv2d(right.permute(0, 3, 1, 2), self.kernel, self.offset, padding=1).permute(0, 2, 3, 1)  # @inner
            y = torch.cat((left, right, swish(z) + right), -1)  # @joined
            return swish(self.last(y))  # @block_out

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.Parameter(torch.empty(*shape))  # noqa: E731
        self.patch, self.patch_b = new(48, C), new(C)
        self.down, self.down_b = new(C, C, 3, 3), new(C)
        self.block1, self.block2, self.side = B.Block(), B.Block(), nn.Linear(C, C)
        a = len(ANCHORS)
        self.at, self.at_b = new(2, C, a, 2), new(2, a, 2)
        self.bins, self.bins_b = new(2, C, a, 2, BINS), new(2, a, 2, BINS)
        self.sure, self.sure_b = new(2, C, a, 1 + CLASSES), new(2, a, 1 + CLASSES)

    def decode(self, x, i, stride):
        n, h, w, _ = x.shape
        at = torch.einsum("byxc,cak->bayxk", x, self.at[i]) + self.at_b[i][:, None, None]  # @at
        bins = torch.einsum("byxc,cakm->bayxkm", x, self.bins[i]) + self.bins_b[i][:, None, None]  # @bins
        sure = torch.einsum("byxc,cak->bayxk", x, self.sure[i]) + self.sure_b[i][:, None, None]  # @sure
        cell = torch.cartesian_prod(torch.arange(h), torch.arange(w)).view(h, w, 2).flip(-1)  # @cell
        middle = stride * (at.sigmoid() * 2 + cell - 0.5)  # @middle
        size = bins.softmax(-1) @ torch.arange(BINS).float()  # @size
        size = (size + 0.5) * stride * torch.tensor(ANCHORS)[:, None, None]  # @anchored
        corners = torch.stack((middle - size / 2, middle + size / 2), -2)  # @corners
        sure = sure.sigmoid()
        return corners.reshape(n, -1, 4), (sure[..., 1:] * sure[..., :1]).reshape(n, -1, CLASSES)  # @sure_out

    def forward(self, image):
        n = len(image)
        x = image.view(n, 3, SIDE // 2, 4, SIDE // 2, 4).permute(0, 2, 4, 1, 3, 5).flatten(3)  # @patches
        high = self.block1(swish(x @ self.patch + self.patch_b))  # @high
        x = F.conv2d(high.permute(0, 3, 1, 2), self.down, self.down_b, stride=2, padding=1)  # @down
        low = self.block2(swish(x.permute(0, 2, 3, 1)))  # @low
        more = self.side(low)  # @side
        high = high + more.repeat_interleave(2, 1).repeat_interleave(2, 2)  # @up
        found = [self.decode(x, i, stride) for i, (x, stride) in enumerate(zip((high, low), STRIDES, strict=True))]
        boxes, scores = (torch.cat(parts, 1) for parts in zip(*found, strict=True))  # @all
        order = scores.max(-1).values.argsort(1, descending=True)[:, :TOP]  # @order
        kept = torch.stack([boxes[i, order[i]] for i in range(n)])  # @kept
        best = scores.max(-1).values.gather(1, order)  # @best
        return {"boxes": kept.clamp(min=0.0, max=16.0), "best": best, "scores": scores}  # @result


def swish(x):
    return x / (1 + torch.exp(-x))  # @swish


def transfer(a, b):
    b.patch.copy_(a.stem.weight.flatten(1).T)
    b.patch_b.copy_(a.stem.bias)
    b.down.copy_(a.down.weight)
    b.down_b.copy_(a.down.bias)
    for own, csp in ((b.block1, a.csp1), (b.block2, a.csp2)):
        for dense, conv in ((own.first, csp.inward), (own.last, csp.outward)):
            dense.weight.copy_(conv.weight[..., 0, 0])
            dense.bias.copy_(conv.bias)
        own.kernel.copy_(csp.inner.weight)
        own.offset.copy_(csp.inner.bias)
    b.side.weight.copy_(a.lateral.weight[..., 0, 0])
    b.side.bias.copy_(a.lateral.bias)
    for i, head in enumerate(a.heads):
        weight, bias = head.weight[..., 0, 0].view(len(ANCHORS), -1, C), head.bias.view(len(ANCHORS), -1)
        sizes = [2, 2 * BINS, 1 + CLASSES]
        for own, value in zip((b.at, b.bins, b.sure), weight.split(sizes, 1), strict=True):
            own[i].copy_(value.permute(2, 0, 1).reshape(own[i].shape))
        for own, value in zip((b.at_b, b.bins_b, b.sure_b), bias.split(sizes, 1), strict=True):
            own[i].copy_(value.reshape(own[i].shape))


def inputs():
    return (torch.randn(2, 3, 2 * SIDE, 2 * SIDE, generator=torch.Generator().manual_seed(25)),)


# fmt: off
BUGS = {
    "cells row by column": Bug("transposed", "view(h, w, 2).flip(-1)", "view(h, w, 2)", "middle"),
    "centre not shifted": Bug("missing step", "stride * (at.sigmoid() * 2 + cell - 0.5)", "stride * (at.sigmoid() * 2 + cell)"),
    "centre not doubled": Bug("scale", "stride * (at.sigmoid() * 2 + cell - 0.5)", "stride * (at.sigmoid() + cell - 0.5)"),
    "softmax over the sides": Bug("axis", "bins.softmax(-1) @", "bins.softmax(-2) @"),
    "bins from one": Bug("off by one", "@ torch.arange(BINS).float()", "@ torch.arange(1, BINS + 1).float()"),
    "anchors width for height": Bug("flipped", "torch.tensor(ANCHORS)[:, None, None]", "torch.tensor(ANCHORS).flip(1)[:, None, None]"),
    "size not by stride": Bug("missing step", "(size + 0.5) * stride * torch.tensor", "(size + 0.5) * torch.tensor"),
    "corners as centre and size": Bug("wrong tensor", "torch.stack((middle - size / 2, middle + size / 2), -2)", "torch.stack((middle, size), -2)"),
    "score not by certainty": Bug("missing step", "(sure[..., 1:] * sure[..., :1]).reshape", "sure[..., 1:].reshape", "order best a_sure"),
    "certainty of the last place": Bug("index", "(sure[..., 1:] * sure[..., :1])", "(sure[..., :-1] * sure[..., -1:])"),
    "enlarged by tiling": Bug("shuffled", "more.repeat_interleave(2, 1).repeat_interleave(2, 2)", "more.repeat(1, 2, 2, 1)"),
    "features of the two sizes not added": Bug("residual", "high = high + more.repeat_interleave", "high = more.repeat_interleave", "at bins sure"),
    "halves exchanged": Bug("index", "left, right = y[..., : C // 2], y[..., C // 2 :]", "right, left = y[..., : C // 2], y[..., C // 2 :]", "inner joined"),
    "inner step without residual": Bug("residual", "swish(z) + right), -1)", "swish(z)), -1)", "block_out"),
    "stride before the padding": Bug("padding", "self.down, self.down_b, stride=2, padding=1)", "self.down, self.down_b, stride=2, padding=1).roll(1, 3)"),
    "worst kept": Bug("flipped", "argsort(1, descending=True)", "argsort(1, descending=False)", "kept best"),
    "boxes not clamped": Bug("clamp", "kept.clamp(min=0.0, max=16.0)", "kept", "kept"),
    "bins not trained": Bug("detach", "bins.softmax(-1) @", "bins.detach().softmax(-1) @", tensors=("bins", "bins_b")),
    "patches transposed": Bug("transposed", "permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 1, 5, 3)"),
}
# fmt: on
