"""A selective state space model, as Mamba is: causal convolution, gates, a scan over positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, INNER, STATE, RANK, KERNEL, LAYERS = 17, 10, 20, 4, 3, 3, 2
BUGS = (
    "step by relu",
    "decay without exponential",
    "input not times step",
    "convolution sees ahead",
    "gate by sigmoid",
    "skip omitted",
    "norm eps",
    "output of the state before",
    "input and output matrices swapped",
    "gate and input halves swapped",
)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(D, 2 * INNER, bias=False)
        self.conv = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER, padding=KERNEL - 1)
        self.x_proj = nn.Linear(INNER, RANK + 2 * STATE, bias=False)
        self.dt_proj = nn.Linear(RANK, INNER)
        self.A_log = nn.Parameter(torch.zeros(INNER, STATE))
        self.D = nn.Parameter(torch.ones(INNER))
        self.out_proj = nn.Linear(INNER, D, bias=False)

    def forward(self, hidden):
        x, z = self.in_proj(hidden).chunk(2, -1)  # label: gate and input halves swapped
        x = self.conv(x.transpose(1, 2))[..., : hidden.shape[1]].transpose(1, 2)  # label: convolution sees ahead, gate and input halves swapped
        x = F.silu(x)
        dt, B, C = self.x_proj(x).split([RANK, STATE, STATE], -1)  # label: input and output matrices swapped
        dt = F.softplus(self.dt_proj(dt))  # label: step by relu
        A = -torch.exp(self.A_log)  # label: decay without exponential
        state, ys = x.new_zeros(x.shape[0], INNER, STATE), []
        for t in range(x.shape[1]):
            decay = torch.exp(dt[:, t, :, None] * A)  # label: decay without exponential
            state = decay * state + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]  # label: input not times step, input and output matrices swapped
            ys.append((state * C[:, t, None]).sum(-1))  # label: output of the state before, input and output matrices swapped
        y = torch.stack(ys, 1) + self.D * x  # label: skip omitted, output of the state before
        return self.out_proj(y * F.silu(z))  # label: gate by sigmoid, skip omitted, gate and input halves swapped


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.norms = nn.ModuleList(nn.RMSNorm(D, eps=1e-5) for _ in range(LAYERS + 1))
        self.mixers = nn.ModuleList(Mixer() for _ in range(LAYERS))
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, mixer in zip(self.norms, self.mixers, strict=False):
            x = x + mixer(norm(x))  # label: norm eps
        return self.head(self.norms[-1](x))


class B(nn.Module):
    """The scan without a loop: each position as a sum over all before it, decayed."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.tokens = nn.Parameter(torch.empty(VOCAB, D))
        self.gains = nn.ParameterList(nn.Parameter(torch.empty(D)) for _ in range(LAYERS + 1))
        self.w_x = nn.ParameterList(nn.Parameter(torch.empty(INNER, D)) for _ in range(LAYERS))
        self.w_z = nn.ParameterList(nn.Parameter(torch.empty(INNER, D)) for _ in range(LAYERS))
        self.taps = nn.ParameterList(nn.Parameter(torch.empty(KERNEL, INNER)) for _ in range(LAYERS))
        self.tap_bias = nn.ParameterList(nn.Parameter(torch.empty(INNER)) for _ in range(LAYERS))
        self.w_dt = nn.ModuleList(nn.Linear(INNER, RANK, bias=False) for _ in range(LAYERS))
        self.w_b = nn.ModuleList(nn.Linear(INNER, STATE, bias=False) for _ in range(LAYERS))
        self.w_c = nn.ModuleList(nn.Linear(INNER, STATE, bias=False) for _ in range(LAYERS))
        self.up = nn.ModuleList(nn.Linear(RANK, INNER) for _ in range(LAYERS))
        self.log_decay = nn.ParameterList(nn.Parameter(torch.empty(STATE, INNER)) for _ in range(LAYERS))
        self.through = nn.ParameterList(nn.Parameter(torch.empty(INNER)) for _ in range(LAYERS))
        self.w_out = nn.ParameterList(nn.Parameter(torch.empty(INNER, D)) for _ in range(LAYERS))
        self.unembed = nn.Parameter(torch.empty(D, VOCAB))

    def norm(self, x, gain):
        eps = 1e-2 if self.bug == "norm eps" else 1e-5
        return gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()  # label: norm eps

    def convolve(self, x, layer):
        if self.bug == "convolution sees ahead":
            padded = F.pad(x, (0, 0, KERNEL // 2, KERNEL // 2))  # label: convolution sees ahead
        else:
            padded = F.pad(x, (0, 0, KERNEL - 1, 0))
        windows = padded.unfold(1, KERNEL, 1)  # label: convolution sees ahead, gate and input halves swapped
        return torch.einsum("btck,kc->btc", windows, self.taps[layer]) + self.tap_bias[layer]  # label: convolution sees ahead, gate and input halves swapped

    def mix(self, hidden, layer):
        bug, length = self.bug, hidden.shape[1]
        x, z = hidden @ self.w_x[layer].T, hidden @ self.w_z[layer].T
        if bug == "gate and input halves swapped":
            x, z = z, x
        x = self.convolve(x, layer)  # label: gate and input halves swapped
        x = x * x.sigmoid()
        inward, outward = self.w_b[layer](x), self.w_c[layer](x)
        if bug == "input and output matrices swapped":
            inward, outward = outward, inward
        raw = self.up[layer](self.w_dt[layer](x))
        dt = torch.relu(raw) if bug == "step by relu" else torch.log1p(torch.exp(raw))  # label: step by relu
        log_decay = self.log_decay[layer]
        rate = -log_decay.square() if bug == "decay without exponential" else -log_decay.exp()  # label: decay without exponential
        sums = torch.einsum("btc,sc->btcs", dt, rate).cumsum(1)  # label: decay without exponential
        before = torch.ones(length, length, dtype=torch.bool).tril(-1 if bug == "output of the state before" else 0)
        decay = (sums[:, :, None] - sums[:, None]).masked_fill(~before[..., None, None], float("-inf")).exp()  # label: output of the state before, decay without exponential
        driven = x if bug == "input not times step" else x * dt  # label: input not times step
        y = torch.einsum("btucs,buc,bus,bts->btc", decay, driven, inward, outward)  # label: input not times step, output of the state before, input and output matrices swapped
        if bug != "skip omitted":
            y = y + x * self.through[layer]  # label: output of the state before
        gate = torch.sigmoid(z) if bug == "gate by sigmoid" else z * torch.sigmoid(z)  # label: gate by sigmoid
        return (y * gate) @ self.w_out[layer]  # label: skip omitted, gate by sigmoid

    def forward(self, ids):
        x = F.embedding(ids, self.tokens)
        for layer in range(LAYERS):
            x = x + self.mix(self.norm(x, self.gains[layer]), layer)
        return self.norm(x, self.gains[-1]) @ self.unembed


def transfer(a, b):
    b.tokens.copy_(a.embed.weight)
    b.unembed.copy_(a.head.weight.T)
    for gain, norm in zip(b.gains, a.norms, strict=True):
        gain.copy_(norm.weight)
    for layer, mixer in enumerate(a.mixers):
        b.w_x[layer].copy_(mixer.in_proj.weight[:INNER])
        b.w_z[layer].copy_(mixer.in_proj.weight[INNER:])
        b.taps[layer].copy_(mixer.conv.weight[:, 0].T)
        b.tap_bias[layer].copy_(mixer.conv.bias)
        for part, weight in zip((b.w_dt, b.w_b, b.w_c), mixer.x_proj.weight.split([RANK, STATE, STATE]), strict=True):
            part[layer].weight.copy_(weight)
        b.up[layer].load_state_dict(mixer.dt_proj.state_dict())
        b.log_decay[layer].copy_(mixer.A_log.T)
        b.through[layer].copy_(mixer.D)
        b.w_out[layer].copy_(mixer.out_proj.weight.T)


def inputs():
    return (torch.randint(0, VOCAB, (2, 6), generator=torch.Generator().manual_seed(12)),)
