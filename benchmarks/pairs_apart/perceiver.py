"""Perceiver: latents read a long input by cross attention, think, and answer queries; Fourier features of places."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

LENGTH, CHANNELS, BANDS, LATENTS, D, HEADS, OUT, QUERIES = 10, 3, 4, 5, 12, 3, 4, 6
WIDE = CHANNELS + 2 * BANDS + 1


class Attention(nn.Module):
    def __init__(self, d_context):
        super().__init__()
        self.norm, self.norm_context = nn.LayerNorm(D), nn.LayerNorm(d_context)
        self.to_q, self.to_kv = nn.Linear(D, D, bias=False), nn.Linear(d_context, 2 * D, bias=False)
        self.to_out = nn.Linear(D, D)

    def forward(self, x, context=None, mask=None):
        x = self.norm(x)
        context = x if context is None else self.norm_context(context)  # @a_context
        q, (k, v) = self.to_q(x), self.to_kv(context).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        mask = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.to_out(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(2 * D, D)

    def forward(self, x):
        x, gate = self.up(self.norm(x)).chunk(2, -1)
        return self.down(x * F.gelu(gate))  # @a_gate


def fourier(length):
    at = torch.linspace(-1.0, 1.0, length)[:, None]
    angles = at * torch.linspace(1.0, length / 2, BANDS)[None] * math.pi
    return torch.cat((angles.sin(), angles.cos(), at), -1)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.latents, self.queries = nn.Parameter(torch.empty(LATENTS, D)), nn.Parameter(torch.empty(QUERIES, D))
        self.read, self.read_mlp = Attention(WIDE), Mlp()
        self.think, self.think_mlp = Attention(D), Mlp()
        self.answer = Attention(D)
        self.out = nn.Linear(D, OUT)

    def forward(self, data, mask):
        n = len(data)
        data = torch.cat((data, fourier(LENGTH).expand(n, -1, -1)), -1)
        x = self.latents.expand(n, -1, -1)
        x = x + self.read(x, data, mask)  # @a_read
        x = x + self.read_mlp(x)
        for _ in range(2):
            x = x + self.think(x)  # @a_think
            x = x + self.think_mlp(x)
        return self.out(self.answer(self.queries.expand(n, -1, -1), x))  # @a_answer


class B(nn.Module):
    """Heads by einsum, keys and values apart, the think step as a recursion."""

    def __init__(self):
        super().__init__()
        self.slots, self.asked = nn.Parameter(torch.empty(1, LATENTS, D)), nn.Parameter(torch.empty(1, QUERIES, D))
        wide = {"read": WIDE, "think": D, "answer": D}
        for name, width in wide.items():
            shapes = {
                "gx": (D,), "bx": (D,), "gc": (width,), "bc": (width,), "q": (HEADS, D, D // HEADS),
                "k": (HEADS, width, D // HEADS), "v": (HEADS, width, D // HEADS), "o": (HEADS, D // HEADS, D), "c": (D,),
            }  # fmt: skip
            setattr(self, name, nn.ParameterDict({k: nn.Parameter(torch.empty(s)) for k, s in shapes.items()}))
        shapes = {
            "g": (D,),
            "b": (D,),
            "up": (D, 2 * D),
            "cu": (2 * D,),
            "gate": (D, 2 * D),
            "cg": (2 * D,),
            "down": (2 * D, D),
            "cd": (D,),
        }
        self.first, self.second = (
            nn.ParameterDict({k: nn.Parameter(torch.empty(s)) for k, s in shapes.items()}) for _ in range(2)
        )
        self.out = nn.Linear(D, OUT)

    def attend(self, x, w, context=None, hidden=None):
        x = F.layer_norm(x, x.shape[-1:], w["gx"], w["bx"])  # @norm_x
        context = x if context is None else F.layer_norm(context, context.shape[-1:], w["gc"], w["bc"])  # @norm_context
        q = torch.einsum("btd,hde->bthe", x, w["q"]) * (D // HEADS) ** -0.5  # @q
        k = torch.einsum("bsd,hde->bshe", context, w["k"])  # @k
        v = torch.einsum("bsd,hde->bshe", context, w["v"])  # @v
        scores = torch.einsum("bthe,bshe->bhts", q, k)  # @scores
        if hidden is not None:
            scores = scores + hidden[:, None, None] * -1e9  # @hidden
        mixed = torch.einsum("bhts,bshe->bthe", scores.softmax(3), v)  # @mixed
        return torch.einsum("bthe,hed->btd", mixed, w["o"]) + w["c"]  # @out

    def mlp(self, x, w):
        y = F.layer_norm(x, (D,), w["g"], w["b"])
        gate = y @ w["gate"] + w["cg"]  # @gate
        inner = (y @ w["up"] + w["cu"]) * F.gelu(gate)  # @inner
        return x + inner @ w["down"] + w["cd"]  # @mlp_out

    def ponder(self, x, times):
        if times == 0:
            return x
        x = x + self.attend(x, self.think)  # @ponder
        return self.ponder(self.mlp(x, self.second), times - 1)

    def forward(self, data, mask):
        t = torch.arange(LENGTH) * (2 / (LENGTH - 1)) - 1  # @time
        speeds = torch.linspace(1.0, LENGTH / 2, BANDS) * math.pi  # @speeds
        angles = torch.outer(t, speeds)  # @angles
        places = torch.cat((torch.sin(angles), torch.cos(angles), t[:, None]), 1)  # @places
        data = torch.cat((data, places.repeat(len(data), 1, 1)), 2)  # @data
        x = self.slots.repeat(len(data), 1, 1)  # @slots
        x = x + self.attend(x, self.read, data, (~mask).float())  # @read
        x = self.mlp(x, self.first)  # @mlp
        x = self.ponder(x, 2)  # @times
        x = self.attend(self.asked.repeat(len(data), 1, 1), self.answer, x)  # @answer
        return self.out(x)  # @head


def transfer(a, b):
    b.slots.copy_(a.latents[None])
    b.asked.copy_(a.queries[None])
    for name in ("read", "think", "answer"):
        own, w = getattr(a, name), getattr(b, name)
        for key, value in (("gx", own.norm.weight), ("bx", own.norm.bias), ("c", own.to_out.bias)):
            w[key].copy_(value)
        w["gc"].copy_(own.norm_context.weight)
        w["bc"].copy_(own.norm_context.bias)
        for key, value in zip("qkv", (own.to_q.weight, *own.to_kv.weight.chunk(2)), strict=True):
            w[key].copy_(value.view(HEADS, D // HEADS, -1).mT)
        w["o"].copy_(own.to_out.weight.T.reshape(HEADS, D // HEADS, D))
    for own, w in ((a.read_mlp, b.first), (a.think_mlp, b.second)):
        w["g"].copy_(own.norm.weight)
        w["b"].copy_(own.norm.bias)
        for key, value in zip(("up", "gate"), own.up.weight.chunk(2), strict=True):
            w[key].copy_(value.T)
        for key, value in zip(("cu", "cg"), own.up.bias.chunk(2), strict=True):
            w[key].copy_(value)
        w["down"].copy_(own.down.weight.T)
        w["cd"].copy_(own.down.bias)
    b.out.load_state_dict(a.out.state_dict())


def inputs():
    source = torch.Generator().manual_seed(8)
    mask = torch.arange(LENGTH)[None] < torch.tensor([[10], [7]])
    return torch.randn(2, LENGTH, CHANNELS, generator=source), mask


# fmt: off
BUGS = {
    "mask inverted": Bug("mask", "(~mask).float()", "mask.float()", "hidden mixed"),
    "mask too weak": Bug("mask", "hidden[:, None, None] * -1e9", "hidden[:, None, None] * -1.0", "mixed"),
    "sine and cosine swapped": Bug("order", "(torch.sin(angles), torch.cos(angles), t[:, None])", "(torch.cos(angles), torch.sin(angles), t[:, None])", "data"),
    "places off by half a step": Bug("off by one", "torch.arange(LENGTH) * (2 / (LENGTH - 1)) - 1", "torch.arange(LENGTH) * (2 / LENGTH) - 1", "angles places data"),
    "no pi in the angles": Bug("scale", "torch.linspace(1.0, LENGTH / 2, BANDS) * math.pi", "torch.linspace(1.0, LENGTH / 2, BANDS)", "angles places data"),
    "latents read without residual": Bug("residual", "x = x + self.attend(x, self.read, data, (~mask).float())", "x = self.attend(x, self.read, data, (~mask).float())", "mlp a_read"),
    "query residual doubled": Bug("residual", "return self.out(x)", "return self.out(x + self.asked)", "head"),
    "thinks once": Bug("missing step", "self.ponder(x, 2)", "self.ponder(x, 1)", "answer k v norm_context a_think"),
    "context not normed": Bug("missing step", "context = x if context is None else F.layer_norm(context, context.shape[-1:], w[\"gc\"], w[\"bc\"])", "context = x if context is None else context", "k v a_context"),
    "think reads itself before its norm": Bug("norm order", "x = x + self.attend(x, self.think)", "x = x + self.attend(x, self.think, x)", "norm_context k v"),
    "gate by relu": Bug("activation", "F.gelu(gate)", "F.relu(gate)"),
    "keys as values": Bug("index", "\"bsd,hde->bshe\", context, w[\"v\"]", "\"bsd,hde->bshe\", context, w[\"k\"]"),
    "softmax over queries": Bug("axis", "scores.softmax(3)", "scores.softmax(2)"),
    "latents not trained": Bug("no grad", "self.slots.repeat(len(data), 1, 1)", "self.slots.detach().repeat(len(data), 1, 1)", tensors=("slots",)),
}
# fmt: on
