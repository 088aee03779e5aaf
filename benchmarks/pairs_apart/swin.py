"""Swin: attention in windows, every second block with shifted ones, a table of relative positions, merged patches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

SIDE, W, D, HEADS, CLASSES, SHIFT = 8, 4, 8, 2, 5, 1


def relative_index():
    at = torch.stack(torch.meshgrid(torch.arange(W), torch.arange(W), indexing="ij")).flatten(1)
    apart = (at[:, :, None] - at[:, None]) + W - 1
    return apart[0] * (2 * W - 1) + apart[1]


class WindowAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.empty((2 * W - 1) ** 2, HEADS))

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        bias = self.table[relative_index().view(-1)].view(t, t, HEADS).permute(2, 0, 1)[None]  # @a_bias
        if mask is not None:
            bias = (bias + mask[:, None]).repeat(n // mask.shape[0], 1, 1, 1)  # @a_mask
        x = F.scaled_dot_product_attention(q, k, v, bias.expand(n, -1, -1, -1))
        return self.proj(x.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, dim, shift):
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), WindowAttention(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def mask(self):
        image = torch.zeros(1, SIDE, SIDE, 1)
        count = 0
        for rows in (slice(0, -W), slice(-W, -SHIFT), slice(-SHIFT, None)):
            for columns in (slice(0, -W), slice(-W, -SHIFT), slice(-SHIFT, None)):
                image[:, rows, columns] = count
                count += 1
        parts = windows(image).squeeze(-1)
        return torch.where(parts[:, None] != parts[:, :, None], -100.0, 0.0)

    def forward(self, x):
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-SHIFT, -SHIFT), (1, 2))
        y = self.attn(windows(y), self.mask() if self.shift else None)
        y = y.view(-1, SIDE // W, SIDE // W, W, W, y.shape[-1]).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        if self.shift:
            y = torch.roll(y, (SHIFT, SHIFT), (1, 2))  # @a_back
        x = x + y
        return x + self.mlp(self.norm2(x))


def windows(x):
    n, h, w, c = x.shape
    return x.view(n, h // W, W, w // W, W, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, W * W, c)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, D, 2, 2), nn.LayerNorm(D)
        self.blocks = nn.Sequential(Block(D, False), Block(D, True))
        self.merge_norm, self.merge = nn.LayerNorm(4 * D), nn.Linear(4 * D, 2 * D, bias=False)
        self.last, self.head = nn.LayerNorm(2 * D), nn.Linear(2 * D, CLASSES)

    def forward(self, image):
        x = self.norm(self.patches(image).permute(0, 2, 3, 1))
        x = self.blocks(x)
        x = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1)
        x = self.merge(self.merge_norm(x))
        return self.head(self.last(x).flatten(1, 2).mean(1))  # @a_head


class B(nn.Module):
    """Positions gathered by index instead of rolled and cut; which pairs may see each other follows from coordinates."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.g1, self.b1, self.g2, self.b2 = (nn.Parameter(torch.empty(D)) for _ in range(4))
            self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
            self.near = nn.Parameter(torch.empty(HEADS, 2 * W - 1, 2 * W - 1))
            self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, D)
        self.g0, self.b0 = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(D))
        self.layers = nn.ModuleList(B.Layer() for _ in range(2))
        self.g4, self.b4 = nn.Parameter(torch.empty(4 * D)), nn.Parameter(torch.empty(4 * D))
        self.fold = nn.Parameter(torch.empty(4 * D, 2 * D))
        self.g5, self.b5 = nn.Parameter(torch.empty(2 * D)), nn.Parameter(torch.empty(2 * D))
        self.w, self.c = nn.Parameter(torch.empty(2 * D, CLASSES)), nn.Parameter(torch.empty(CLASSES))

    def norm(self, x, gain, offset):
        var, mean = torch.var_mean(x, -1, keepdim=True, correction=0)  # @norm
        return (x - mean) * (var + 1e-5).rsqrt() * gain + offset  # @norm

    def places(self, shift):
        """For each window and each of its places, the pixel there."""
        at = (torch.arange(SIDE) + shift) % SIDE  # @places
        pixels = at[:, None] * SIDE + at[None]  # @places
        return pixels.view(SIDE // W, W, SIDE // W, W).transpose(1, 2).reshape(-1, W * W)  # @places

    def attend(self, x, layer, shift):
        n, where = len(x), self.places(shift)
        y = self.norm(x, layer.g1, layer.b1).view(n, -1, D)[:, where]  # @gather
        q, k, v = (each(y).unflatten(-1, (HEADS, -1)) for each in (layer.q, layer.k, layer.v))  # @qkv
        scores = torch.einsum("nwqhe,nwkhe->nwhqk", q, k) / (D // HEADS) ** 0.5  # @scores
        i = torch.arange(W * W)
        down = i[:, None] // W - i[None] // W + W - 1  # @apart
        right = i[:, None] % W - i[None] % W + W - 1  # @apart
        scores = scores + layer.near[:, down, right]  # @bias
        if shift:
            late = torch.stack((where // SIDE < SHIFT, where % SIDE < SHIFT))  # @late
            apart = (late[..., None] != late[..., None, :]).any(0)  # @late
            scores = scores.masked_fill(apart[:, None], -100.0)  # @hidden
        y = torch.einsum("nwhqk,nwkhe->nwqhe", scores.softmax(-1), v).flatten(-2)  # @mixed
        y = layer.o(y).flatten(1, 2)  # @out
        back = torch.argsort(where.flatten())  # @back
        return y[:, back].view_as(x)  # @back

    def forward(self, image):
        n = len(image)
        x = image.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).flatten(3)  # @patches
        x = self.norm(self.stem(x), self.g0, self.b0)
        for layer, shift in zip(self.layers, (0, SHIFT), strict=True):
            x = x + self.attend(x, layer, shift)  # @added
            y = layer.up(self.norm(x, layer.g2, layer.b2))
            x = x + layer.down(F.gelu(y))  # @mlp
        x = x.view(n, SIDE // 2, 2, SIDE // 2, 2, D)
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3)  # @merged
        x = self.norm(x, self.g4, self.b4) @ self.fold  # @folded
        x = self.norm(x, self.g5, self.b5).mean((1, 2))  # @pooled
        return x @ self.w + self.c


def transfer(a, b):
    b.stem.weight.copy_(a.patches.weight.flatten(1))
    b.stem.bias.copy_(a.patches.bias)
    for norm, gain, offset in ((a.norm, b.g0, b.b0), (a.merge_norm, b.g4, b.b4), (a.last, b.g5, b.b5)):
        gain.copy_(norm.weight)
        offset.copy_(norm.bias)
    for block, layer in zip(a.blocks, b.layers, strict=True):
        for name, value in (("g1", block.norm1.weight), ("b1", block.norm1.bias)):
            getattr(layer, name).copy_(value)
        layer.g2.copy_(block.norm2.weight)
        layer.b2.copy_(block.norm2.bias)
        for i, own in enumerate((layer.q, layer.k, layer.v)):
            own.weight.copy_(block.attn.qkv.weight.chunk(3)[i])
            own.bias.copy_(block.attn.qkv.bias.chunk(3)[i])
        layer.o.load_state_dict(block.attn.proj.state_dict())
        layer.near.copy_(block.attn.table.T.reshape(HEADS, 2 * W - 1, 2 * W - 1))
        layer.up.load_state_dict(block.mlp[0].state_dict())
        layer.down.load_state_dict(block.mlp[2].state_dict())
    b.fold.copy_(a.merge.weight.T)
    b.w.copy_(a.head.weight.T)
    b.c.copy_(a.head.bias)


def inputs():
    return (torch.randn(2, 3, 2 * SIDE, 2 * SIDE, generator=torch.Generator().manual_seed(6)),)


# fmt: off
BUGS = {
    "shifted the other way": Bug("direction", "(torch.arange(SIDE) + shift) % SIDE", "(torch.arange(SIDE) - shift) % SIDE", "places gather"),
    "shifted windows not masked": Bug("mask", "scores = scores.masked_fill(apart[:, None], -100.0)  # @hidden", "pass", "mixed a_mask"),
    "seams of rows not masked": Bug("mask", "!= late[..., None, :]).any(0)", "!= late[..., None, :]).all(0)", "hidden mixed"),
    "relative position transposed": Bug("transposed", "layer.near[:, down, right]", "layer.near[:, right, down]"),
    "relative position of the other sign": Bug("sign", "right = i[:, None] % W - i[None] % W + W - 1", "right = i[None] % W - i[:, None] % W + W - 1", "bias"),
    "scaled after the bias": Bug("order", "scores = scores + layer.near[:, down, right]", "scores = (q.shape[-1] ** 0.5 * scores + layer.near[:, down, right]) / q.shape[-1] ** 0.5"),
    "scaled by the whole width": Bug("scale", "/ (D // HEADS) ** 0.5", "/ D**0.5"),
    "windows not put back": Bug("shuffled", "back = torch.argsort(where.flatten())", "back = where.flatten()", "back added"),
    "patches merged row by row": Bug("channels", "x.permute(0, 1, 3, 4, 2, 5).flatten(3)", "x.permute(0, 1, 3, 2, 4, 5).flatten(3)", "folded"),
    "pooled before the norm": Bug("norm order", "x = self.norm(x, self.g5, self.b5).mean((1, 2))", "x = self.norm(x.mean((1, 2)), self.g5, self.b5)", "norm"),
    "eps of the merging norm": Bug("eps", "x = self.norm(x, self.g4, self.b4) @ self.fold", "x = ((x - x.mean(-1, True)) / (x.var(-1, correction=0, keepdim=True) + 1e-1).sqrt() * self.g4 + self.b4) @ self.fold"),
    "relative positions not trained": Bug("detach", "layer.near[:, down, right]", "layer.near.data[:, down, right]", tensors=("layers.1.near", "layers.0.near")),
}
# fmt: on
