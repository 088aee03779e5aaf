"""Networks that people write, each in both frameworks, with no mistake in them; ``equal_pairs.py`` pairs them."""

from __future__ import annotations

from typing import Any

import paddle
import torch

pnn, tnn = paddle.nn, torch.nn
pF, tF = paddle.nn.functional, torch.nn.functional


class PaddleVit(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = pnn.Linear(16, 48)
        self.proj = pnn.Linear(16, 16)
        self.n = pnn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        B, N, D = x.shape
        q, k, v = self.qkv(self.n(x)).reshape([B, N, 3, 4, 4]).transpose([2, 0, 3, 1, 4]).unbind(0)
        a = pF.softmax(q @ k.transpose([0, 1, 3, 2]) * 0.5, -1) @ v
        return x + self.proj(a.transpose([0, 2, 1, 3]).reshape([B, N, D]))


class TorchVit(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = tnn.Linear(16, 48)
        self.proj = tnn.Linear(16, 16)
        self.n = tnn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        B, N, D = x.shape
        q, k, v = self.qkv(self.n(x)).reshape(B, N, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        a = tF.scaled_dot_product_attention(q, k, v)
        return x + self.proj(a.transpose(1, 2).reshape(B, N, D))


class PaddleAttended(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attn = pnn.MultiHeadAttention(16, 4)
        self.ln = pnn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        return self.ln(x + self.attn(x, x, x))


class TorchAttended(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = tnn.MultiheadAttention(16, 4, batch_first=True)
        self.ln = tnn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        return self.ln(x + self.attn(x, x, x, need_weights=False)[0])


class PaddleTied(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.e = pnn.Embedding(20, 8)
        self.f = pnn.Linear(8, 8)

    def forward(self, i: Any) -> Any:
        return pF.gelu(self.f(self.e(i))) @ self.e.weight.T


class TorchTied(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = tnn.Embedding(20, 8)
        self.f = tnn.Linear(8, 8)

    def forward(self, i: Any) -> Any:
        return tF.gelu(self.f(self.e(i))) @ self.e.weight.T


class PaddleInverted(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.e = pnn.Sequential(pnn.Conv2D(4, 16, 1, bias_attr=False), pnn.BatchNorm2D(16), pnn.Hardswish())
        self.d = pnn.Sequential(
            pnn.Conv2D(16, 16, 3, padding=1, groups=16, bias_attr=False), pnn.BatchNorm2D(16), pnn.Hardswish()
        )
        self.s1 = pnn.Conv2D(16, 4, 1)
        self.s2 = pnn.Conv2D(4, 16, 1)
        self.p = pnn.Sequential(pnn.Conv2D(16, 4, 1, bias_attr=False), pnn.BatchNorm2D(4))

    def forward(self, x: Any) -> Any:
        y = self.d(self.e(x))
        w = pF.adaptive_avg_pool2d(y, 1)
        w = pF.hardsigmoid(self.s2(pF.relu(self.s1(w))))
        return x + self.p(y * w)


class TorchInverted(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = tnn.Sequential(tnn.Conv2d(4, 16, 1, bias=False), tnn.BatchNorm2d(16), tnn.Hardswish())
        self.d = tnn.Sequential(
            tnn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), tnn.BatchNorm2d(16), tnn.Hardswish()
        )
        self.s1 = tnn.Conv2d(16, 4, 1)
        self.s2 = tnn.Conv2d(4, 16, 1)
        self.p = tnn.Sequential(tnn.Conv2d(16, 4, 1, bias=False), tnn.BatchNorm2d(4))

    def forward(self, x: Any) -> Any:
        y = self.d(self.e(x))
        w = tF.adaptive_avg_pool2d(y, 1)
        w = tF.hardsigmoid(self.s2(tF.relu(self.s1(w))))
        return x + self.p(y * w)


class PaddleDecoder(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c = pnn.GRUCell(6, 8)
        self.o = pnn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        h = paddle.zeros([x.shape[0], 8])
        outs = []
        for t in range(x.shape[1]):
            y, h = self.c(x[:, t], h)
            outs.append(self.o(y))
        return paddle.stack(outs, 1)


class TorchDecoder(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = tnn.GRUCell(6, 8)
        self.o = tnn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.shape[0], 8)
        outs = []
        for t in range(x.shape[1]):
            h = self.c(x[:, t], h)
            outs.append(self.o(h))
        return torch.stack(outs, 1)


class PaddleDicts(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a = pnn.Linear(4, 4)
        self.b = pnn.Linear(5, 4)

    def forward(self, x: Any, y: Any, flag: Any = True) -> Any:
        return {"s": self.a(x) + self.b(y), "p": (self.a(x) * 2,)}


class TorchDicts(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = tnn.Linear(4, 4)
        self.b = tnn.Linear(5, 4)

    def forward(self, x: Any, y: Any, flag: Any = True) -> Any:
        return {"s": self.a(x) + self.b(y), "p": (self.a(x) * 2,)}


class PaddlePlain(pnn.Layer):
    def forward(self, x: Any) -> Any:
        return pF.softmax(paddle.sin(x), -1)


class TorchPlain(tnn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sin(x).softmax(-1)


class PaddleFrozen(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a = pnn.Linear(4, 4)
        self.b = pnn.Linear(4, 4)
        for p in self.a.parameters():
            p.stop_gradient = True

    def forward(self, x: Any) -> Any:
        return self.b(paddle.tanh(self.a(x)))


class TorchFrozen(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = tnn.Linear(4, 4).requires_grad_(False)
        self.b = tnn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.b(torch.tanh(self.a(x)))


class PaddleLoop(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c = pnn.Conv2D(3, 3, 3, padding=1)
        self.b = pnn.BatchNorm2D(3)
        self.r = pnn.ReLU()

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = self.r(self.b(self.c(x))) + x
        return x


class TorchLoop(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = tnn.Conv2d(3, 3, 3, padding=1)
        self.b = tnn.BatchNorm2d(3)
        self.r = tnn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = self.r(self.b(self.c(x))) + x
        return x


class PaddleMixer(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = pnn.LayerList(
            [pnn.Sequential(pnn.LayerNorm(8), pnn.Linear(8, 16), pnn.GELU(), pnn.Linear(16, 8)) for _ in range(3)]
        )
        self.head = pnn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        for b in self.blocks:
            x = x + b(x)
        return self.head(x.mean(1))


class TorchMixerBlock(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = tnn.LayerNorm(8)
        self.up = tnn.Linear(8, 16)
        self.down = tnn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(tF.gelu(self.up(self.norm(x))))


class TorchMixer(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = tnn.ModuleList([TorchMixerBlock() for _ in range(3)])
        self.cls = tnn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        for b in self.layers:
            x = b(x)
        return self.cls(x.mean(1))


class PaddleTextCnn(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.e = pnn.Embedding(30, 8)
        self.cs = pnn.LayerList([pnn.Conv1D(8, 4, k) for k in (2, 3, 4)])
        self.f = pnn.Linear(12, 2)

    def forward(self, i: Any) -> Any:
        x = self.e(i).transpose([0, 2, 1])
        return self.f(paddle.concat([pF.relu(c(x)).max(-1) for c in self.cs], 1))


class TorchTextCnn(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = tnn.Embedding(30, 8)
        self.cs = tnn.ModuleList([tnn.Conv1d(8, 4, k) for k in (2, 3, 4)])
        self.f = tnn.Linear(12, 2)

    def forward(self, i: Any) -> Any:
        x = self.e(i).transpose(1, 2)
        return self.f(torch.cat([tF.relu(c(x)).max(-1)[0] for c in self.cs], 1))


class PaddleOwn(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.w = self.create_parameter([4, 4])
        self.pos = self.create_parameter([1, 3, 4])
        self.register_buffer("m", paddle.ones([4]))

    def forward(self, x: Any) -> Any:
        return (x + self.pos) @ self.w * self.m


class TorchOwn(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tnn.Parameter(torch.randn(4, 4))
        self.pos = tnn.Parameter(torch.randn(1, 3, 4))
        self.register_buffer("m", torch.ones(4))

    def forward(self, x: Any) -> Any:
        return (x + self.pos) @ self.w * self.m


class PaddleDouble(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a = pnn.Linear(4, 4)
        self.to(dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.a(x)


class PaddleShuffle(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c = pnn.Conv2D(3, 12, 3, padding=1)
        self.ps = pnn.PixelShuffle(2)
        self.up = pnn.Upsample(scale_factor=2, mode="nearest")
        self.gn = pnn.GroupNorm(1, 3)

    def forward(self, x: Any) -> Any:
        return self.gn(self.ps(self.c(pF.pad(x, [1, 1, 1, 1])))) + self.up(pF.pad(x, [1, 1, 1, 1]))


class TorchShuffle(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = tnn.Conv2d(3, 12, 3, padding=1)
        self.ps = tnn.PixelShuffle(2)
        self.up = tnn.Upsample(scale_factor=2, mode="nearest")
        self.gn = tnn.GroupNorm(1, 3)

    def forward(self, x: Any) -> Any:
        return self.gn(self.ps(self.c(tF.pad(x, [1, 1, 1, 1])))) + self.up(tF.pad(x, [1, 1, 1, 1]))


class PaddleOuter(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.model = pnn.Sequential(pnn.Linear(4, 4), pnn.ReLU(), pnn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        return self.model(x)


class PaddleTwoRecurrent(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.r1 = pnn.LSTM(4, 6)
        self.r2 = pnn.GRU(6, 5, direction="bidirect")
        self.f = pnn.Linear(10, 2)

    def forward(self, x: Any) -> Any:
        y, _ = self.r1(x)
        z, _ = self.r2(y)
        return self.f(z[:, -1])


class TorchTwoRecurrent(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.r1 = tnn.LSTM(4, 6, batch_first=True)
        self.r2 = tnn.GRU(6, 5, bidirectional=True, batch_first=True)
        self.f = tnn.Linear(10, 2)

    def forward(self, x: Any) -> Any:
        y, _ = self.r1(x)
        z, _ = self.r2(y)
        return self.f(z[:, -1])
