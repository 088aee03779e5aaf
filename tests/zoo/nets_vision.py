"""Networks for images, written out as their papers have them, with few channels."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.specimen import Built, quick


def conv(inside: int, outside: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, normalisation, activation."""
    layer = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(nn.Linear(16 * 25, 24), nn.Tanh(), nn.Linear(24, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.head(torch.flatten(x, 1))


class VGG(nn.Sequential):
    def __init__(self) -> None:
        pool = nn.MaxPool2d(2, 2)  # one module at several places
        super().__init__(conv(3, 8), conv(8, 8), pool, conv(8, 16), pool, nn.Flatten(), nn.Linear(16 * 64, 16),
                         nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))  # fmt: skip


class Fire(nn.Module):
    def __init__(self, inside: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inside, squeeze, 1)
        self.expand1, self.expand3 = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x), inplace=True)
        return torch.cat([F.relu(self.expand1(x)), F.relu(self.expand3(x))], 1)


class SqueezeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, 2), nn.ReLU(True), Fire(8, 4, 8), nn.MaxPool2d(3, 2, ceil_mode=True),
                         Fire(16, 4, 8), nn.Conv2d(16, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())  # fmt: skip


class Inception(nn.Module):
    def __init__(self, inside: int) -> None:
        super().__init__()
        self.one = conv(inside, 4, 1)
        self.three = nn.Sequential(conv(inside, 4, 1), conv(4, 8))
        self.five = nn.Sequential(conv(inside, 4, 1), conv(4, 4, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inside, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in (self.one, self.three, self.five, self.pool)], 1)


class GoogLeNet(nn.Module):
    """Two outputs while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second = conv(3, 8, 7, 2), Inception(8), Inception(20)
        self.side, self.head = nn.Linear(20, 10), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        middle = self.first(self.stem(x))
        out = self.head(F.dropout(self.second(middle).mean((2, 3)), 0.4, self.training))
        return (out, self.side(middle.mean((2, 3)))) if self.training else out


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.second = conv(inside, outside, 3, stride), nn.Conv2d(outside, outside, 3, 1, 1)
        self.norm = nn.BatchNorm2d(outside)
        self.down = nn.Conv2d(inside, outside, 1, stride) if stride > 1 or inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.down is None else self.down(x)
        out = self.norm(self.second(self.first(x)))
        out += identity
        return F.relu(out, inplace=True)


class ResNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(conv(3, 8), Residual(8, 8), Residual(8, 16, 2), Residual(16, 16),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))  # fmt: skip


class StochasticDepth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = (
            conv(3, 8),
            nn.ModuleList(Residual(8, 8) for _ in range(4)),
            nn.Linear(8, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                x = block(x)
        return self.head(x.mean((2, 3)))


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.layers = nn.ModuleList(conv(8 + 4 * i, 4) for i in range(4))
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(torch.cat(features, 1).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, 4 * width, 1), conv(4 * width, 4 * width, groups=4 * width),
                                  nn.Conv2d(4 * width, width, 1), nn.BatchNorm2d(width))  # fmt: skip
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 2, 1), nn.Hardswish(),
                                  nn.Conv2d(2, width, 1), nn.Hardsigmoid())  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        return x + out * self.gate(out)


class MobileNetV3(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(conv(3, 8, 3, 2), InvertedResidual(8), InvertedResidual(8), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 10))  # fmt: skip


class ShuffleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch, self.head = (
            conv(3, 16),
            nn.Sequential(conv(8, 8, 1), conv(8, 8, groups=8)),
            nn.Linear(16, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(2):
            left, right = x.chunk(2, 1)
            x = torch.cat([left, self.branch(right)], 1)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.head(x.mean((2, 3)))


class SelectiveKernel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.paths = conv(3, 8), nn.ModuleList([conv(8, 8, 3), conv(8, 8, 5)])
        self.choose, self.head = nn.Linear(8, 16), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        paths = torch.stack([path(x) for path in self.paths], 1)
        weights = self.choose(paths.sum(1).mean((2, 3))).view(-1, 2, 8).softmax(1)
        return self.head((paths * weights[..., None, None]).sum(1).mean((2, 3)))


class MLPMixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 8, 8)
        self.tokens = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2)
        x = x + self.tokens(x)
        x = x.mT
        return (x + self.channels(x)).mean(1)


class GlobalFilter(nn.Module):
    """Mixes in the frequency domain: complex params."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 10)
        self.filter = nn.Parameter(torch.randn(8, 8, 5, dtype=torch.complex64) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * self.filter, s=x.shape[-2:], norm="ortho")
        return self.head(x.mean((2, 3)))


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 6))
        self.net = LeNet()

    def forward(self, x: Tensor) -> Tensor:
        grid = F.affine_grid(self.where(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return self.net(F.grid_sample(x, grid, align_corners=False))


class Capsules(nn.Module):
    """Routing by agreement: a loop whose weights come from its own outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.weight = nn.Conv2d(3, 16, 9, 4), nn.Parameter(torch.randn(10, 72, 4, 8) * 0.1)

    @staticmethod
    def squash(x: Tensor) -> Tensor:
        norm = (x**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * x / norm.sqrt()

    def forward(self, x: Tensor) -> Tensor:
        capsules = self.squash(F.relu(self.stem(x)).reshape(len(x), -1, 8))
        votes = torch.einsum("kiod,bid->bkio", self.weight, capsules)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            out = self.squash((logits.softmax(1)[..., None] * votes).sum(2))
            logits = logits + (votes * out[:, :, None]).sum(-1)
        return out.norm(dim=-1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([conv(3, 8), conv(8, 16)])
        self.middle = conv(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.merge = nn.ModuleList([conv(32, 16), conv(16, 8)])

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return x


class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8, 3, 2)
        self.rates = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=rate, dilation=rate) for rate in (1, 2, 4))
        self.head = nn.Conv2d(12, 5, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        out = self.head(torch.cat([rate(self.stem(x)) for rate in self.rates], 1))
        return {"out": F.interpolate(out, x.shape[-2:], mode="bilinear", align_corners=False)}


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = LeNet()

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return F.pairwise_distance(self.net(first), self.net(second))


class OpticalFlow(nn.Module):
    """Features of two frames, their correlation, and a recurrent refinement (RAFT)."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.cell, self.flow = conv(3, 8, 3, 4), nn.GRUCell(66, 16), nn.Linear(16, 2)

    def forward(self, first: Tensor, second: Tensor) -> list[Tensor]:
        one, two = self.features(first).flatten(2), self.features(second).flatten(2)
        correlation = torch.einsum("bci,bcj->bij", one, two)[0]
        flow, hidden, steps = torch.zeros(64, 2), torch.zeros(64, 16), []
        for _ in range(3):
            hidden = self.cell(torch.cat([correlation, flow], 1), hidden)
            flow = flow.detach() + self.flow(hidden)
            steps.append(flow)
        return steps


class Video3D(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.space, self.time = (
            nn.Conv3d(3, 8, (1, 3, 3), padding=(0, 1, 1)),
            nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)),
        )
        self.norm, self.head = nn.BatchNorm3d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool3d(F.relu(self.norm(self.time(self.space(x)))), 1).flatten(1))


class SuperResolution(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
        )


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = ResNet().to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.contiguous(memory_format=torch.channels_last))


def _of_image(model: type[nn.Module]) -> Built:
    name = "input" if issubclass(model, nn.Sequential) else "x"
    return model(), {name: torch.randn(2, 3, 32, 32)}


def _of_two(model: type[nn.Module]) -> Built:
    return model(), {"first": torch.randn(1, 3, 32, 32), "second": torch.randn(1, 3, 32, 32)}


_IMAGES = (
    LeNet, VGG, SqueezeNet, GoogLeNet, ResNet, StochasticDepth, DenseNet, MobileNetV3, ShuffleNet, SelectiveKernel,
    MLPMixer, GlobalFilter, SpatialTransformer, Capsules, UNet, DeepLab, SuperResolution, ChannelsLast,
)  # fmt: skip

SPECIMENS = [
    *quick("vision", **{model.__name__: partial(_of_image, model) for model in _IMAGES}),
    *quick("vision", Siamese=partial(_of_two, Siamese), OpticalFlow=partial(_of_two, OpticalFlow)),
    *quick("video", Video3D=lambda: (Video3D(), {"x": torch.randn(2, 3, 4, 8, 8)})),
]
