"""Networks that make things: autoencoders, adversaries, flows, diffusion, fields."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.specimen import quick


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(20, 8), nn.Sequential(nn.Linear(4, 20), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(spread) * (0.5 * spread).exp()
        divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
        return self.decode(z), divergence


class VQVAE(nn.Module):
    """Straight-through estimator: the gradient passes by the nearest code."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes, self.decode = nn.Linear(20, 4), nn.Embedding(8, 4), nn.Linear(4, 20)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(x)
        codes = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        loss = F.mse_loss(codes, z.detach()) + 0.25 * F.mse_loss(z, codes.detach())
        return self.decode(z + (codes - z).detach()), loss


class MaskedAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encode, self.decode = (
            nn.Linear(6, 16),
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
            nn.Linear(16, 6),
        )
        self.mask = nn.Parameter(torch.zeros(1, 1, 16))

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        order = torch.rand(n, length).argsort(1)
        kept = order[:, : length // 2]
        seen = self.encode(torch.gather(self.embed(x), 1, kept[..., None].expand(-1, -1, 16)))
        whole = torch.cat([seen, self.mask.expand(n, length - kept.shape[1], -1)], 1)
        return self.decode(torch.gather(whole, 1, order.argsort(1)[..., None].expand(-1, -1, 16)))


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()
        )
        self.critic = nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(128, 1),
        )

    def forward(self, noise: Tensor) -> Tensor:
        return self.critic(self.generator(noise))


class StyleGAN(nn.Module):
    """Weights made from a style, one set per sample, in a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.weight = nn.Parameter(torch.randn(1, 8, 4, 4)), nn.Parameter(torch.randn(8, 8, 3, 3))
        self.mapping, self.style = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2)), nn.Linear(8, 8)

    def forward(self, z: Tensor) -> Tensor:
        style = self.style(self.mapping(F.normalize(z)))
        n = len(z)
        weight = self.weight[None] * style[:, None, :, None, None]
        weight = weight * (weight.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        x = self.start.expand(n, -1, -1, -1).reshape(1, n * 8, 4, 4)
        x = F.conv2d(x, weight.view(n * 8, 8, 3, 3), padding=1, groups=n).view(n, 8, 4, 4)
        return F.leaky_relu(x + 0.1 * torch.randn(n, 1, 4, 4), 0.2)


class RealNVP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = x.chunk(2, 1)
        determinant = x.new_zeros(len(x))
        for net in self.nets:
            scale, shift = net(left).chunk(2, 1)
            left, right = right * scale.tanh().exp() + shift, left
            determinant = determinant + scale.tanh().sum(1)
        return torch.cat([left, right], 1), determinant


class Glow(nn.Module):
    """An invertible convolution: determinants and triangular solves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(6, 6))[0])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.conv1d(x, self.weight[..., None]), torch.linalg.slogdet(self.weight)[1] * x.shape[-1]


class TimeBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(2, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(16, outside)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.conv(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]


class DiffusionUNet(nn.Module):
    """Predicts the noise at a time step; attention in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down, self.middle = nn.Conv2d(3, 8, 3, padding=1), TimeBlock(8, 16), TimeBlock(16, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.out = TimeBlock(24, 8), nn.Conv2d(8, 3, 1)
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        angles = step[:, None] * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        skip = self.stem(x)
        x = self.middle(F.avg_pool2d(self.down(skip, time), 2), time)
        flat = x.flatten(2).mT
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].mT.reshape(x.shape)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([x, skip], 1), time))


class Sampler(nn.Module):
    """Draws a sample in four steps: the network runs in a loop, with fresh noise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = DiffusionUNet()
        self.register_buffer("betas", torch.linspace(1e-4, 0.02, 4))

    def forward(self, x: Tensor) -> Tensor:
        alphas = (1 - self.betas).cumprod(0)
        for step in reversed(range(4)):
            noise = self.net(x, torch.full((len(x),), float(step)))
            x = (x - self.betas[step] / (1 - alphas[step]).sqrt() * noise) / (1 - self.betas[step]).sqrt()
            if step > 0:
                x = x + self.betas[step].sqrt() * torch.randn_like(x)
        return x


class DiT(nn.Module):
    """A diffusion transformer: normalisation whose scale and shift come from the time."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm, self.modulate = (
            nn.Conv2d(3, 16, 4, 4),
            nn.LayerNorm(16, elementwise_affine=False),
            nn.Linear(1, 48),
        )
        self.attention, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 48)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).mT
        shift, scale, gate = self.modulate(step[:, None]).unsqueeze(1).chunk(3, -1)
        inner = self.norm(tokens) * (1 + scale) + shift
        tokens = tokens + gate * self.attention(inner, inner, inner)[0]
        return F.pixel_shuffle(self.out(tokens).mT.reshape(len(x), 48, 4, 4), 4)


class ScoreMatching(nn.Module):
    """Its forward takes a gradient of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (score,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return score


class NeRF(nn.Module):
    """Rays, positional encoding, volume rendering."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.density, self.colour = (
            nn.Sequential(nn.Linear(24, 16), nn.ReLU()),
            nn.Linear(16, 1),
            nn.Linear(16, 3),
        )

    def forward(self, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        depths = torch.linspace(0.1, 1.0, 8) + torch.rand(len(origins), 8) * 0.1
        points = origins[:, None] + depths[..., None] * directions[:, None]
        angles = (points[..., None] * 2.0 ** torch.arange(4)).flatten(-2)
        hidden = self.body(torch.cat([angles.sin(), angles.cos()], -1))
        opacity = 1 - torch.exp(-F.relu(self.density(hidden)[..., 0]) * 0.1)
        passed = torch.cumprod(torch.cat([torch.ones(len(origins), 1), 1 - opacity + 1e-10], 1), 1)[:, :-1]
        weights = opacity * passed
        return (weights[..., None] * self.colour(hidden).sigmoid()).sum(1), (weights * depths).sum(1)


class Siren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(30 * layer(x))
        return self.layers[-1](x)


class HashGrid(nn.Module):
    """Instant NGP: features looked up in a table by a hash of the place."""

    def __init__(self) -> None:
        super().__init__()
        self.tables, self.net = nn.Parameter(torch.randn(3, 64, 2)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for level in range(3):
            cell = (x * 4 * 2**level).long()
            key = (cell[:, 0] * 1 ^ cell[:, 1] * 265443567) % 64
            found.append(self.tables[level, key])
        return self.net(torch.cat(found, 1))


class DeepEquilibrium(nn.Module):
    """Iterates to a fixed point without a graph, then once with one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(20):
                new = torch.tanh(0.3 * self.inner(z) + self.outer(x))
                if (new - z).norm() < 1e-3:
                    break
                z = new
        return torch.tanh(0.3 * self.inner(z) + self.outer(x))


class NeuralODE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def slope(self, time: float, x: Tensor) -> Tensor:
        return self.field(torch.cat([x, x.new_full((len(x), 1), time)], 1))

    def forward(self, x: Tensor) -> Tensor:
        step = 0.25
        for turn in range(4):
            time = turn * step
            k1 = self.slope(time, x)
            k2 = self.slope(time + step / 2, x + step / 2 * k1)
            k3 = self.slope(time + step / 2, x + step / 2 * k2)
            k4 = self.slope(time + step, x + step * k3)
            x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


class FourierOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift, self.local, self.out = nn.Linear(1, 8), nn.Conv1d(8, 8, 1), nn.Linear(8, 1)
        self.spectral = nn.Parameter(torch.randn(8, 8, 4, dtype=torch.cfloat) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x).mT
        modes = torch.fft.rfft(x)
        out = torch.zeros_like(modes)
        out[..., :4] = torch.einsum("bim,iom->bom", modes[..., :4], self.spectral)
        x = F.gelu(torch.fft.irfft(out, n=x.shape[-1]) + self.local(x))
        return self.out(x.mT)


def _image(model: type[nn.Module]) -> tuple[nn.Module, dict[str, Tensor]]:
    return model(), {"x": torch.randn(2, 3, 16, 16), "step": torch.tensor([3.0, 7.0])}


SPECIMENS = [
    *quick(
        "generative",
        VAE=lambda: (VAE(), {"x": torch.randn(3, 20)}),
        VQVAE=lambda: (VQVAE(), {"x": torch.randn(3, 20)}),
        MaskedAutoencoder=lambda: (MaskedAutoencoder(), {"x": torch.randn(2, 8, 6)}),
        GAN=lambda: (GAN(), {"noise": torch.randn(2, 8, 1, 1)}),
        StyleGAN=lambda: (StyleGAN(), {"z": torch.randn(2, 8)}),
        RealNVP=lambda: (RealNVP(), {"x": torch.randn(4, 6)}),
        Glow=lambda: (Glow(), {"x": torch.randn(2, 6, 5)}),
        DiffusionUNet=lambda: _image(DiffusionUNet),
        DiT=lambda: _image(DiT),
        Sampler=lambda: (Sampler(), {"x": torch.randn(2, 3, 8, 8)}),
        ScoreMatching=lambda: (ScoreMatching(), {"x": torch.randn(3, 4)}),
    ),
    *quick(
        "field",
        NeRF=lambda: (NeRF(), {"origins": torch.randn(5, 3), "directions": torch.randn(5, 3)}),
        Siren=lambda: (Siren(), {"x": torch.rand(5, 2)}),
        HashGrid=lambda: (HashGrid(), {"x": torch.rand(9, 2)}),
    ),
    *quick(
        "implicit",
        DeepEquilibrium=lambda: (DeepEquilibrium(), {"x": torch.randn(2, 6)}),
        NeuralODE=lambda: (NeuralODE(), {"x": torch.randn(3, 2)}),
        FourierOperator=lambda: (FourierOperator(), {"x": torch.randn(2, 16, 1)}),
    ),
]
