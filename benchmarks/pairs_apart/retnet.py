"""Retention: all positions at once with a matrix of decays, and as a recurrence with a state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

VOCAB, D, HEADS, FF, LAYERS = 19, 12, 3, 18, 2
E = D // HEADS


class Retention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.gate, self.out = (nn.Linear(D, D, bias=False) for _ in range(5))
        self.norm = nn.GroupNorm(HEADS, D, eps=1e-5)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part(x).view(n, t, HEADS, E).transpose(1, 2) for part in (self.q, self.k, self.v))
        apart = torch.arange(t)[:, None] - torch.arange(t)[None]
        rates = 1 - 2.0 ** (-2 - torch.arange(HEADS))
        decay = torch.where(apart >= 0, rates[:, None, None] ** apart.clamp(min=0), 0.0)
        y = (q @ k.mT * E**-0.5 * decay) @ v
        y = self.norm(y.transpose(1, 2).reshape(n * t, D)).view(n, t, D)  # @a_norm
        return self.out(F.silu(self.gate(x)) * y)  # @a_gate


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.retention = nn.RMSNorm(D, eps=1e-6), nn.RMSNorm(D, eps=1e-6), Retention()
        self.gate, self.up, self.down = nn.Linear(D, FF), nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x):
        x = x + self.retention(self.norm1(x))  # @a_first
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.RMSNorm(D, eps=1e-6), nn.Linear(D, VOCAB)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embed(ids) * D**0.5)))  # @a_embed


class B(nn.Module):
    """One position after the other: the state decays and takes in the outer product of key and value."""

    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(VOCAB, D))
        self.qkvg = nn.ParameterList(nn.Parameter(torch.empty(D, 4 * D)) for _ in range(LAYERS))
        self.o = nn.ParameterList(nn.Parameter(torch.empty(D, D)) for _ in range(LAYERS))
        self.group = nn.ParameterList(nn.Parameter(torch.empty(2, D)) for _ in range(LAYERS))
        self.gains = nn.ParameterList(nn.Parameter(torch.empty(2, D)) for _ in range(LAYERS))
        self.inner = nn.ModuleList(nn.Linear(D, 2 * FF) for _ in range(LAYERS))
        self.outer = nn.ModuleList(nn.Linear(FF, D) for _ in range(LAYERS))
        self.last = nn.Parameter(torch.empty(D))
        self.logits = nn.Linear(D, VOCAB)

    def rms(self, x, gain):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain  # @rms

    def retain(self, x, i):
        n, t, _ = x.shape
        q, k, v, g = (x @ self.qkvg[i]).view(n, t, 4, D).unbind(2)  # @split
        q, k, v = (part.view(n, t, HEADS, E) for part in (q, k, v))  # @heads
        k = k * E**-0.5  # @scale
        rates = 1 - torch.exp2(-2.0 - torch.arange(HEADS))  # @rates
        state, ys = torch.zeros(n, HEADS, E, E), []  # @state
        for s in range(t):
            state = rates[:, None, None] * state + k[:, s, :, :, None] * v[:, s, :, None]  # @step
            ys.append(torch.einsum("bhe,bhef->bhf", q[:, s], state))  # @read
        y = torch.stack(ys, 1)  # @stack
        y = y - y.mean(-1, keepdim=True)  # @group
        y = y / torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-5)  # @group
        y = y.flatten(2) * self.group[i][0] + self.group[i][1]  # @group
        return (y * g * g.sigmoid()) @ self.o[i]  # @gated

    def forward(self, ids):
        x = F.embedding(ids, self.words) * D**0.5  # @embed
        for i in range(LAYERS):
            x = x + self.retain(self.rms(x, self.gains[i][0]), i)  # @retained
            gate, up = self.inner[i](self.rms(x, self.gains[i][1])).split(FF, -1)  # @inner
            x = x + self.outer[i](F.silu(gate) * up)  # @outer
        return self.logits(self.rms(x, self.last))  # @logits


def transfer(a, b):
    b.words.copy_(a.embed.weight)
    b.last.copy_(a.norm.weight)
    b.logits.load_state_dict(a.head.state_dict())
    for i, block in enumerate(a.blocks):
        own = block.retention
        b.qkvg[i].copy_(torch.cat((own.q.weight, own.k.weight, own.v.weight, own.gate.weight)).T)
        b.o[i].copy_(own.out.weight.T)
        b.group[i].copy_(torch.stack((own.norm.weight, own.norm.bias)))
        b.gains[i].copy_(torch.stack((block.norm1.weight, block.norm2.weight)))
        b.inner[i].weight.copy_(torch.cat((block.gate.weight, block.up.weight)))
        b.inner[i].bias.copy_(torch.cat((block.gate.bias, block.up.bias)))
        b.outer[i].load_state_dict(block.down.state_dict())


def inputs():
    return (torch.randint(0, VOCAB, (2, 6), generator=torch.Generator().manual_seed(9)),)


# fmt: off
BUGS = {
    "rates of the heads reversed": Bug("index", "rates = 1 - torch.exp2(-2.0 - torch.arange(HEADS))", "rates = (1 - torch.exp2(-2.0 - torch.arange(HEADS))).flip(0)", "step read"),
    "rates begin later": Bug("off by one", "torch.exp2(-2.0 - torch.arange(HEADS))", "torch.exp2(-3.0 - torch.arange(HEADS))", "step read"),
    "read before the state is updated": Bug("state carry", "state = rates[:, None, None] * state + k[:, s, :, :, None] * v[:, s, :, None]  # @step\n            ys.append(torch.einsum(\"bhe,bhef->bhf\", q[:, s], state))  # @read", "ys.append(torch.einsum(\"bhe,bhef->bhf\", q[:, s], state))  # @read\n            state = rates[:, None, None] * state + k[:, s, :, :, None] * v[:, s, :, None]  # @step", "stack"),
    "old part does not decay": Bug("state carry", "state = rates[:, None, None] * state +", "state = state +", "read"),
    "state transposed": Bug("transposed", "k[:, s, :, :, None] * v[:, s, :, None]", "v[:, s, :, :, None] * k[:, s, :, None]", "read"),
    "state kept from the row before": Bug("state carry", "torch.einsum(\"bhe,bhef->bhf\", q[:, s], state)", "torch.einsum(\"bhe,bhef->bhf\", q[:, s], state.roll(1, 0))"),
    "group norm over all heads": Bug("axis", "y = y - y.mean(-1, keepdim=True)  # @group\n        y = y / torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-5)", "y = y - y.mean((-2, -1), keepdim=True)  # @group\n        y = y / torch.sqrt(y.square().mean((-2, -1), keepdim=True) + 1e-5)", "group"),
    "eps of the group norm": Bug("eps", "y.square().mean(-1, keepdim=True) + 1e-5)", "y.square().mean(-1, keepdim=True) + 1e-2)", "group"),
    "gate by sigmoid": Bug("activation", "(y * g * g.sigmoid()) @ self.o[i]", "(y * g.sigmoid()) @ self.o[i]"),
    "embedding not scaled": Bug("scale", "F.embedding(ids, self.words) * D**0.5", "F.embedding(ids, self.words)", "rms retained a_embed"),
    "heads split the other way": Bug("layout", "part.view(n, t, HEADS, E) for part in (q, k, v)", "part.view(n, t, E, HEADS).mT for part in (q, k, v)", "scale step"),
    "state cut from the graph": Bug("detach", "state = rates[:, None, None] * state +", "state = rates[:, None, None] * state.detach() +", tensors=("qkvg.1",)),
    "eps of Adam": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.Adam(b.parameters(), 1e-2, eps=1e-2)),
}
# fmt: on


def optimizer(model):
    return torch.optim.Adam(model.parameters(), 1e-2)
