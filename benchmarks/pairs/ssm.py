"""A selective state space model: a scan step by step against one in closed form. Never used while developing."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

C, N, WIDTH, LAYERS = 12, 4, 3, 2
BUGS = {
    "eps": Label("eps"),
    "activation": Label("activation"),
    "gate_activation": Label("gate"),
    "conv_not_causal": Label("conv"),
    "conv_bias": Label("conv"),
    "decay_sign": Label("decay"),
    "delta_kind": Label("delta"),
    "state_reset": Label("recur"),
    "skip_missing": Label("gate skip", missing_in_a="add"),
    "bc_swapped": Label("recur read"),
    "missing_residual": Label("block_end eps", missing_in_a="add"),
    "missing_final_norm": Label("head", missing_in_a="mul native_layer_norm"),
    "dropout_on": Label("dropout_on"),
    "reversed_time": Label("reversed_time"),
    "detached": Label("", tensor="entry"),
}


class BlockA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.out = nn.LayerNorm(C), nn.Linear(C, 2 * C), nn.Linear(C, C)
        self.conv = nn.Conv1d(C, C, WIDTH, padding=WIDTH - 1, groups=C)
        self.delta, self.bc = nn.Linear(C, C), nn.Linear(C, 2 * N, bias=False)
        self.log_a, self.skip = nn.Parameter(torch.zeros(C, N)), nn.Parameter(torch.ones(C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.inner(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step = F.softplus(self.delta(u))
        b, c = self.bc(u).split(N, -1)
        decay = torch.exp(step[..., None] * -torch.exp(self.log_a))
        pushed = (step * u)[..., None] * b[:, :, None]
        state, outs = torch.zeros_like(pushed[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + pushed[:, t]
            outs.append((state * c[:, t, None]).sum(-1))
        y = torch.stack(outs, 1) + u * self.skip
        return x + self.out(y * F.silu(gate))


class ModelA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.entry, self.blocks = nn.Linear(5, C), nn.Sequential(*(BlockA() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.entry(x))))


class ModelB(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        self.p = nn.ParameterDict(
            {name.replace(".", "_"): value.clone() for name, value in state.items() if "entry" not in name}
        )
        self.entry = nn.Parameter(torch.cat((state["entry.weight"].t(), state["entry.bias"][None])))

    def norm(self, x: torch.Tensor, name: str, eps: float = 1e-5) -> torch.Tensor:
        y = x - x.mean(-1, True)
        return y / torch.sqrt(y.pow(2).mean(-1, True) + eps) * self.p[f"{name}_weight"] + self.p[f"{name}_bias"]  # @eps

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.tensordot(x, self.p[f"{name}_weight"], ([-1], [1])) + self.p[f"{name}_bias"]

    def block(self, x: torch.Tensor, name: str, bug: str | None) -> torch.Tensor:
        both = self.linear(self.norm(x, f"{name}_norm", 1e-2 if bug == "eps" else 1e-5), f"{name}_inner")
        u, gate = both[..., :C], both[..., C:]
        if bug == "reversed_time":
            u = u.flip(1)  # @reversed_time
        pad = (0, 0, 1, 1) if bug == "conv_not_causal" else (0, 0, WIDTH - 1, 0)
        windows = F.pad(u, pad).unfold(1, WIDTH, 1)  # @conv
        u = torch.einsum("btcw,cw->btc", windows, self.p[f"{name}_conv_weight"][:, 0])  # @conv
        if bug != "conv_bias":
            u = u + self.p[f"{name}_conv_bias"]  # @conv
        u = F.relu(u) if bug == "activation" else u * torch.sigmoid(u)  # @activation
        if bug == "conv_bias":
            u = u + 0  # @conv
        raw = self.linear(u, f"{name}_delta")
        step = raw.exp() if bug == "delta_kind" else torch.log1p(torch.exp(raw))  # @delta
        b, c = (u @ self.p[f"{name}_bc_weight"].t()).tensor_split(2, -1)
        if bug == "bc_swapped":
            b, c = c, b
        rates = self.p[f"{name}_log_a"].exp()
        rates = rates if bug == "decay_sign" else -rates  # @decay
        exponents = torch.einsum("btc,cn->btcn", step, rates)  # @decay
        pushed = torch.einsum("btc,btc,btn->btcn", step, u, b)  # @recur
        state, outs = pushed[:, 0], [pushed[:, 0]]
        for t in range(1, x.shape[1]):
            if bug == "state_reset" and t == 3:
                state = torch.zeros_like(state)
            state = torch.addcmul(pushed[:, t], exponents[:, t].exp(), state)  # @recur
            outs.append(state)
        y = torch.einsum("tbcn,btn->btc", torch.stack(outs), c)  # @read
        if bug != "skip_missing":
            y = torch.addcmul(y, u, self.p[f"{name}_skip"])
        y = y * (torch.sigmoid(gate) if bug == "gate_activation" else gate * torch.sigmoid(gate))  # @gate
        if bug == "dropout_on":
            y = F.dropout(y, 0.1)  # @dropout_on
        y = self.linear(y, f"{name}_out")
        return y if bug == "missing_residual" else y + x  # @block_end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, 1), value=1.0) @ self.entry
        if self.bug == "detached":
            x = x.detach()
        for at in range(LAYERS):
            x = self.block(x, f"blocks_{at}", self.bug if at == 0 else None)
        if self.bug != "missing_final_norm":
            x = self.norm(x, "norm")
        return self.linear(x, "head")  # @head


def make(bug: str | None, seed: int) -> Case:
    a = lively(ModelA(), seed)
    b = ModelB(bug, a.state_dict())
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(a, b, torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(seed + 100)))
