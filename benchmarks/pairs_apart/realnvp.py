"""RealNVP: affine couplings that take turns, actnorm, a mixing matrix; the log-likelihood of data."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

D, H, LAYERS = 6, 10, 3


class Coupling(nn.Module):
    def __init__(self, even):
        super().__init__()
        self.even = even
        self.net = nn.Sequential(nn.Linear(D // 2, H), nn.LeakyReLU(0.2), nn.Linear(H, D))

    def forward(self, x):
        kept, changed = (x[:, ::2], x[:, 1::2]) if self.even else (x[:, 1::2], x[:, ::2])
        s, t = self.net(kept).chunk(2, 1)
        s = 0.5 * torch.tanh(s)  # @a_bound
        changed = changed * s.exp() + t
        pair = (kept, changed) if self.even else (changed, kept)
        return torch.stack(pair, 2).flatten(1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, even):
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(D))
        self.mix, self.coupling = nn.Parameter(torch.empty(D, D)), Coupling(even)

    def forward(self, x):
        x = (x - self.loc) * torch.exp(-self.log_scale)
        logdet = -self.log_scale.sum()
        matrix = self.mix + torch.eye(D)
        x = x @ matrix.T
        x, more = self.coupling(x)
        return x, logdet + torch.linalg.slogdet(matrix)[1] + more  # @a_det


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.flows = nn.ModuleList(Flow(place % 2 == 0) for place in range(LAYERS))

    def forward(self, x):
        total = torch.zeros(len(x))
        for flow in self.flows:
            x, logdet = flow(x)
            total = total + logdet  # @a_total
        prior = -0.5 * (x.square() + math.log(2 * math.pi)).sum(1)
        return {"z": x, "nll": -(prior + total).mean()}


class B(nn.Module):
    """Masks in place of slices, the determinant by LU, scale and shift by two heads."""

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.ParameterList(nn.Parameter(torch.empty(*shape)) for _ in range(LAYERS))  # noqa: E731
        self.centre, self.stretch, self.turn = new(D), new(D), new(D, D)
        self.w1, self.b1 = new(D // 2, H), new(H)
        self.ws, self.bs, self.wt, self.bt = new(H, D // 2), new(D // 2), new(H, D // 2), new(D // 2)

    def couple(self, x, i):
        places = torch.arange(D).view(-1, 2).T  # @places
        kept, moved = (places[0], places[1]) if i % 2 == 0 else (places[1], places[0])  # @sides
        h = x.index_select(1, kept) @ self.w1[i] + self.b1[i]  # @hidden
        h = F.leaky_relu(h, negative_slope=0.2)  # @leaky
        s = torch.tanh(h @ self.ws[i] + self.bs[i]) * 0.5  # @bound
        t = h @ self.wt[i] + self.bt[i]  # @shift
        new = torch.addcmul(t, x.index_select(1, moved), torch.exp(s))  # @moved
        return x.index_copy(1, moved, new), s.sum(1)  # @copied

    def forward(self, x):
        likelihood = 0.0
        for i in range(LAYERS):
            x = (x - self.centre[i]) / self.stretch[i].exp()  # @scaled
            matrix = torch.eye(D) + self.turn[i]  # @matrix
            x = torch.einsum("ij,bj->bi", matrix, x)  # @turned
            x, spread = self.couple(x, i)
            packed = torch.linalg.lu_factor(matrix)[0]
            volume = packed.diagonal().abs().log().sum()  # @volume
            likelihood = likelihood + spread + volume - self.stretch[i].sum()  # @added
        normal = -x.pow(2).sum(1) / 2 - D / 2 * math.log(2 * math.pi)  # @normal
        return {"z": x, "nll": -torch.mean(normal + likelihood)}  # @result


def transfer(a, b):
    for i, flow in enumerate(a.flows):
        b.centre[i].copy_(flow.loc)
        b.stretch[i].copy_(flow.log_scale)
        b.turn[i].copy_(flow.mix)
        first, _, second = flow.coupling.net
        b.w1[i].copy_(first.weight.T)
        b.b1[i].copy_(first.bias)
        for w, c, weight, bias in zip(
            (b.ws[i], b.wt[i]), (b.bs[i], b.bt[i]), second.weight.chunk(2), second.bias.chunk(2), strict=True
        ):
            w.copy_(weight.T)
            c.copy_(bias)


def inputs():
    return (torch.randn(5, D, generator=torch.Generator().manual_seed(21)),)


# fmt: off
BUGS = {
    "scale not bounded": Bug("missing step", "s = torch.tanh(h @ self.ws[i] + self.bs[i]) * 0.5", "s = (h @ self.ws[i] + self.bs[i]) * 0.5", "a_bound"),
    "halves in the other order": Bug("index", "kept, moved = (places[0], places[1]) if i % 2 == 0 else", "kept, moved = (places[1], places[0]) if i % 2 == 0 else", "hidden"),
    "halves do not take turns": Bug("index", "if i % 2 == 0 else (places[1], places[0])", "if True else (places[1], places[0])", "hidden"),
    "halves by blocks": Bug("layout", "torch.arange(D).view(-1, 2).T", "torch.arange(D).view(2, -1)", "sides hidden"),
    "matrix transposed": Bug("transposed", "\"ij,bj->bi\", matrix, x", "\"ji,bj->bi\", matrix, x"),
    "scaled by the variance": Bug("scale", "x = (x - self.centre[i]) / self.stretch[i].exp()", "x = (x - self.centre[i]) / self.stretch[i].exp().square()"),
    "determinant without modulus": Bug("missing step", "packed.diagonal().abs().log().sum()", "packed.diagonal().clamp(min=1e-6).log().sum()"),
    "determinant left out": Bug("missing step", "likelihood + spread + volume - self.stretch[i].sum()", "likelihood + spread - self.stretch[i].sum()", "a_det"),
    "scale of the wrong sign in the likelihood": Bug("sign", "likelihood + spread + volume - self.stretch[i].sum()", "likelihood + spread + volume + self.stretch[i].sum()"),
    "likelihood of the last layer alone": Bug("state carry", "likelihood = likelihood + spread + volume", "likelihood = spread + volume", "a_total normal result"),
    "constant left out": Bug("missing step", "normal = -x.pow(2).sum(1) / 2 - D / 2 * math.log(2 * math.pi)", "normal = -x.pow(2).sum(1) / 2", "result"),
    "slope of the leaky relu": Bug("activation", "negative_slope=0.2", "negative_slope=0.01"),
    "likelihood summed": Bug("loss reduction", "-torch.mean(normal + likelihood)", "-torch.sum(normal + likelihood)"),
    "volume not trained": Bug("detach", "packed.diagonal().abs().log().sum()", "packed.diagonal().detach().abs().log().sum()", tensors=("turn",)),
}
# fmt: on


def loss(out):
    return out["nll"]
