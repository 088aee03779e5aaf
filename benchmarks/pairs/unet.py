"""A small U-Net with group norm, time embedding and skips: modules against functions. Never used while developing."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

C, TIME = 8, 16
BUGS = {
    "eps": Label("eps"),
    "groups": Label("groups eps"),
    "activation": Label("activation"),
    "missing_bias": Label("conv"),
    "padding": Label("conv"),
    "stride": Label("down"),
    "missing_skip": Label("skip conv"),
    "skip_order": Label("skip conv"),
    "time_ignored": Label("time_use eps groups", missing_in_a="add"),
    "time_order": Label("time_table", missing_in_a="cat"),
    "time_scale": Label("time_table"),
    "upsample_kind": Label("upsample"),
    "attention_scale": Label("attention softmax"),
    "softmax_axis": Label("softmax"),
    "missing_residual": Label("residual eps groups", missing_in_a="add"),
    "dropout_on": Label("dropout_on"),
    "detached": Label("", tensor="time_"),
}


class ResA(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.time = nn.Linear(TIME, cout)
        self.norm2, self.conv2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNetA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(TIME, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.entry, self.res1 = nn.Conv2d(3, C, 3, padding=1), ResA(C, C)
        self.down, self.res2 = nn.Conv2d(C, 2 * C, 3, stride=2, padding=1), ResA(2 * C, 2 * C)
        self.norm, self.qkv, self.proj = nn.GroupNorm(4, 2 * C), nn.Conv2d(2 * C, 6 * C, 1), nn.Conv2d(2 * C, 2 * C, 1)
        self.up, self.res3 = nn.Conv2d(2 * C, C, 3, padding=1), ResA(2 * C, C)
        self.exit = nn.Conv2d(C, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        half = TIME // 2
        speeds = torch.exp(-math.log(10000) * torch.arange(half) / half)
        angles = t[:, None].float() * speeds[None]
        t = self.time(torch.cat((angles.sin(), angles.cos()), -1))
        first = self.res1(self.entry(x), t)
        h = self.res2(self.down(first), t)
        b, c, height, width = h.shape
        q, k, v = self.qkv(self.norm(h)).reshape(b, 3, c, -1).transpose(2, 3).unbind(1)
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        h = h + self.proj(mixed.transpose(1, 2).reshape(b, c, height, width))
        h = self.up(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.exit(F.silu(self.res3(torch.cat((h, first), 1), t)))


class UNetB(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        for name, value in state.items():
            self.register_parameter(name.replace(".", "_").replace("time_0", "time_1"), nn.Parameter(value.clone()))

    def get(self, name: str) -> torch.Tensor:
        return getattr(self, name)

    def conv(self, x: torch.Tensor, name: str, bug: str | None = None, stride: int = 1) -> torch.Tensor:
        weight, bias = self.get(f"{name}_weight"), self.get(f"{name}_bias")
        b, _, h, _ = x.shape
        size = weight.shape[-1]
        pad = size // 2
        if bug == "padding":
            x = F.pad(x, (pad, pad, pad, pad), mode="reflect")  # @conv
            pad = 0
        patches = F.unfold(x, size, padding=pad, stride=stride)  # @conv
        y = torch.einsum("ok,bkn->bon", weight.flatten(1), patches)  # @conv
        if bug != "missing_bias":
            y = y + bias[:, None]  # @conv
        side = h // stride
        return y.view(b, -1, side, y.shape[-1] // side)

    def norm(self, x: torch.Tensor, name: str, bug: str | None = None) -> torch.Tensor:
        b, c, h, w = x.shape
        groups = x.reshape(b, 2 if bug == "groups" else 4, -1)  # @groups
        centred = groups - groups.mean(-1, keepdim=True)  # @groups
        scale = (centred**2).mean(-1, keepdim=True).add(1e-1 if bug == "eps" else 1e-5).pow(-0.5)  # @eps @groups
        y = (centred * scale).view(b, c, h, w)  # @eps
        return y * self.get(f"{name}_weight").view(1, -1, 1, 1) + self.get(f"{name}_bias").view(1, -1, 1, 1)

    def swish(self, x: torch.Tensor, bug: str | None = None) -> torch.Tensor:
        return F.mish(x) if bug == "activation" else x * x.sigmoid()  # @activation

    def res(self, x: torch.Tensor, t: torch.Tensor, name: str, bug: str | None = None) -> torch.Tensor:
        h = self.conv(self.swish(self.norm(x, f"{name}_norm1", bug), bug), f"{name}_conv1", bug)
        if bug != "time_ignored":
            y = self.swish(t) @ self.get(f"{name}_time_weight").t() + self.get(f"{name}_time_bias")
            h = h + y.view(*y.shape, 1, 1)  # @time_use
        h = self.swish(self.norm(h, f"{name}_norm2"))  # @time_use
        if bug == "dropout_on":
            h = F.dropout(h, 0.1)  # @dropout_on
        h = self.conv(h, f"{name}_conv2")
        skip = self.conv(x, f"{name}_skip") if hasattr(self, f"{name}_skip_weight") else x
        return h if bug == "missing_residual" else skip + h

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        scale = 1000 if self.bug == "time_scale" else 10000
        turn = torch.arange(TIME // 2).mul(-2 * math.log(scale) / TIME).exp()  # @time_table
        turn = torch.einsum("b,f->bf", t.float(), turn)  # @time_table
        waves = [torch.sin(turn), torch.cos(turn)]
        if self.bug == "time_order":
            waves = waves[::-1]
        t = torch.hstack(waves)  # @time_table
        t = F.linear(
            self.swish(F.linear(t, self.time_1_weight, self.time_1_bias)), self.time_2_weight, self.time_2_bias
        )  # @time_table
        if self.bug == "detached":
            t = t.detach()
        first = self.res(self.conv(x, "entry"), t, "res1", self.bug)
        stride = self.down_weight
        if self.bug == "stride":
            h = F.conv2d(first, stride, self.down_bias, stride=1, padding=1)[:, :, 1::2, 1::2]  # @down
        else:
            h = F.conv2d(first, stride, self.down_bias, 2, 1)  # @residual
        h = self.res(h, t, "res2")  # @down
        flat = self.norm(h, "norm").flatten(2)
        q, k, v = (self.qkv_weight[:, :, 0, 0] @ flat + self.qkv_bias[:, None]).chunk(3, 1)
        scores = q.mT @ k  # @attention
        if self.bug != "attention_scale":
            scores = scores / math.sqrt(q.shape[1])
        scores = scores.softmax(1 if self.bug == "softmax_axis" else 2)  # @softmax
        mixed = v @ scores.mT
        mixed = self.proj_weight[:, :, 0, 0] @ mixed + self.proj_bias[:, None]
        h = h + mixed.view_as(h)
        if self.bug == "upsample_kind":
            h = F.interpolate(h, scale_factor=2.0, mode="bilinear")  # @upsample
        else:
            h = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
        h = self.conv(h, "up")  # @upsample
        second = h if self.bug == "missing_skip" else first
        both = (first, h) if self.bug == "skip_order" else (h, second)
        h = self.res(torch.cat(both, 1), t, "res3")  # @skip
        return self.conv(self.swish(h), "exit")


def make(bug: str | None, seed: int) -> Case:
    a = lively(UNetA(), seed)
    b = UNetB(bug, a.state_dict())
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    source = torch.Generator().manual_seed(seed + 100)
    return Case(a, b, (torch.randn(2, 3, 12, 12, generator=source), torch.tensor([3, 17])))
