"""A decoder as Gemma 2: grouped queries, rotary positions, a sliding window in every second layer, soft caps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

VOCAB, D, HEADS, KV, E, FF, LAYERS, WINDOW = 23, 12, 4, 2, 4, 16, 2, 3
CAP, LAST_CAP, BASE = 5.0, 3.0, 100.0


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.scale)


def rotated(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Attention(nn.Module):
    def __init__(self, sliding):
        super().__init__()
        self.sliding = sliding
        self.q_proj, self.o_proj = nn.Linear(D, HEADS * E, bias=False), nn.Linear(HEADS * E, D, bias=False)
        self.k_proj, self.v_proj = nn.Linear(D, KV * E, bias=False), nn.Linear(D, KV * E, bias=False)

    def forward(self, x, cos, sin):
        n, t, _ = x.shape
        q, k, v = (part(x).view(n, t, -1, E).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        scores = torch.matmul(q, k.transpose(2, 3)) * E**-0.5
        scores = CAP * torch.tanh(scores / CAP)  # @a_cap
        mask = torch.full((t, t), -torch.inf).triu(1)
        if self.sliding:
            mask = mask + torch.full((t, t), -torch.inf).tril(-WINDOW)
        probs = F.softmax(scores + mask, -1)
        return self.o_proj(torch.matmul(probs, v).transpose(1, 2).reshape(n, t, -1))


class Block(nn.Module):
    def __init__(self, sliding):
        super().__init__()
        self.attention = Attention(sliding)
        self.before, self.after, self.before_mlp, self.after_mlp = (RMSNorm(D) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((D, FF), (D, FF), (FF, D)))

    def forward(self, x, cos, sin):
        x = x + self.after(self.attention(self.before(x), cos, sin))  # @a_after
        y = self.before_mlp(x)
        y = self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y))
        return x + self.after_mlp(y)


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.blocks = nn.ModuleList(Block(place % 2 == 0) for place in range(LAYERS))
        self.norm = RMSNorm(D)

    def forward(self, ids):
        t = ids.shape[1]
        speeds = 1 / BASE ** (torch.arange(0, E, 2) / E)
        angles = torch.outer(torch.arange(t), speeds).repeat(1, 2)
        x = self.embed(ids) * D**0.5
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        logits = F.linear(self.norm(x), self.embed.weight)
        return LAST_CAP * torch.tanh(logits / LAST_CAP)  # @a_last_cap


class B(nn.Module):
    """Queries in groups with their key, positions as pairs turned apart, masks by distance."""

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.ParameterList(nn.Parameter(torch.empty(*shape)) for _ in range(LAYERS))  # noqa: E731
        self.vocabulary = nn.Parameter(torch.empty(VOCAB, D))
        self.wqkv, self.wo = new(D, (HEADS + 2 * KV) * E), new(KV, HEADS // KV, E, D)
        self.w1, self.w2, self.gains = new(2, D, FF), new(FF, D), new(4, D)
        self.gain = nn.Parameter(torch.empty(D))

    def norm(self, x, gain):
        return F.rms_norm(x, (D,), eps=1e-6) * (1.0 + gain)  # @norm

    def turn(self, x, positions):
        speeds = torch.exp(-torch.arange(0, E, 2) / E * torch.log(torch.tensor(BASE)))  # @speeds
        angles = (positions[:, None] * speeds).view(-1, *[1] * (x.ndim - 3), E // 2)  # @angles
        first, second = x[..., : E // 2], x[..., E // 2 :]
        cos, sin = angles.cos(), angles.sin()  # @cos
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)  # @turned

    def attend(self, x, i):
        n, t, _ = x.shape
        q, k, v = (x @ self.wqkv[i]).split([HEADS * E, KV * E, KV * E], -1)  # @qkv
        q = q.view(n, t, KV, HEADS // KV, E)  # @grouped
        k, v = k.view(n, t, KV, E), v.view(n, t, KV, E)  # @heads
        at = torch.arange(t)
        q, k = self.turn(q, at), self.turn(k, at)  # @rotary
        scores = torch.einsum("btkge,bske->bkgts", q, k) / E**0.5  # @scores
        scores = torch.tanh(scores / CAP) * CAP  # @cap
        apart = at[:, None] - at
        seen = apart >= 0  # @seen
        if i % 2 == 0:
            seen = seen & (apart < WINDOW)  # @window
        scores = scores.masked_fill(~seen, -1e30)  # @masked
        mixed = torch.einsum("bkgts,bske->btkge", scores.softmax(-1), v)  # @mixed
        return torch.einsum("btkge,kged->btd", mixed, self.wo[i])  # @out

    def think(self, x, i):
        gate, up = torch.einsum("btd,pdf->pbtf", x, self.w1[i])  # @gates
        gate = F.gelu(gate, approximate="tanh")  # @gelu
        return (gate * up) @ self.w2[i]  # @down

    def forward(self, ids):
        x = self.vocabulary[ids] * D**0.5  # @embed
        for i in range(LAYERS):
            before, after, before_mlp, after_mlp = self.gains[i]
            x = x + self.norm(self.attend(self.norm(x, before), i), after)  # @first
            x = x + self.norm(self.think(self.norm(x, before_mlp), i), after_mlp)  # @second
        logits = self.norm(x, self.gain) @ self.vocabulary.mT  # @logits
        return LAST_CAP * (logits / LAST_CAP).tanh()  # @last_cap


def transfer(a, b):
    b.vocabulary.copy_(a.embed.weight)
    b.gain.copy_(a.norm.scale)
    for i, block in enumerate(a.blocks):
        own = block.attention
        b.wqkv[i].copy_(torch.cat((own.q_proj.weight, own.k_proj.weight, own.v_proj.weight)).T)
        b.wo[i].copy_(own.o_proj.weight.T.reshape(KV, HEADS // KV, E, D))
        b.w1[i].copy_(torch.stack((block.gate.weight.T, block.up.weight.T)))
        b.w2[i].copy_(block.down.weight.T)
        norms = (block.before, block.after, block.before_mlp, block.after_mlp)
        b.gains[i].copy_(torch.stack([norm.scale for norm in norms]))


def inputs():
    return (torch.randint(0, VOCAB, (2, 8), generator=torch.Generator().manual_seed(14)),)


# fmt: off
BUGS = {
    "window one too wide": Bug("off by one", "seen & (apart < WINDOW)", "seen & (apart <= WINDOW)", "masked mixed"),
    "window in the other layers": Bug("index", "if i % 2 == 0:", "if i % 2 == 1:", "window masked mixed"),
    "gain without one": Bug("scale", "F.rms_norm(x, (D,), eps=1e-6) * (1.0 + gain)", "F.rms_norm(x, (D,), eps=1e-6) * gain"),
    "scores not capped": Bug("clamp", "scores = torch.tanh(scores / CAP) * CAP  # @cap", "pass", "masked mixed a_cap"),
    "capped after the mask": Bug("order", "scores = scores.masked_fill(~seen, -1e30)", "scores = CAP * torch.tanh(torch.atanh(scores / CAP).masked_fill(~seen, -1e30))", "mixed"),
    "last cap left out": Bug("clamp", "return LAST_CAP * (logits / LAST_CAP).tanh()  # @last_cap", "return logits", "logits a_last_cap"),
    "heads grouped the other way": Bug("index", "q = q.view(n, t, KV, HEADS // KV, E)", "q = q.view(n, t, HEADS // KV, KV, E).transpose(2, 3)", "rotary scores turned"),
    "rotary of neighbouring pairs": Bug("layout", "first, second = x[..., : E // 2], x[..., E // 2 :]", "first, second = x[..., 0::2], x[..., 1::2]", "turned"),
    "rotary turned the other way": Bug("sign", "first * cos - second * sin, second * cos + first * sin", "first * cos + second * sin, second * cos - first * sin"),
    "keys from position one": Bug("off by one", "self.turn(q, at), self.turn(k, at)", "self.turn(q, at), self.turn(k, at + 1)", "angles cos turned"),
    "speeds by the half width": Bug("scale", "-torch.arange(0, E, 2) / E * torch.log", "-torch.arange(0, E, 2) / (E // 2) * torch.log", "angles cos turned"),
    "embedding not scaled": Bug("scale", "x = self.vocabulary[ids] * D**0.5", "x = self.vocabulary[ids]", "norm first"),
    "norm after attention left out": Bug("missing step", "x = x + self.norm(self.attend(self.norm(x, before), i), after)", "x = x + self.attend(self.norm(x, before), i)", "a_after"),
    "gelu exact": Bug("activation", "F.gelu(gate, approximate=\"tanh\")", "F.gelu(gate)"),
    "rotary on values": Bug("doubled step", "q, k = self.turn(q, at), self.turn(k, at)", "q, k, v = self.turn(q, at), self.turn(k, at), self.turn(v, at)", "mixed"),
    "weights not tied": Bug("tying", "@ self.vocabulary.mT", "@ self.vocabulary.mT.clone().detach()", tensors=("vocabulary",)),
    "second beta": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.Adam(b.parameters(), 1e-2, betas=(0.9, 0.99))),
}
# fmt: on
