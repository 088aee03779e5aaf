"""A convolutional variational autoencoder: the noise is an input; the loss is reconstruction and divergence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

LATENT, C = 5, 6


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, C, 3, stride=2, padding=1), nn.BatchNorm2d(C), nn.LeakyReLU(0.1),
            nn.Conv2d(C, 2 * C, 3, stride=2, padding=1), nn.InstanceNorm2d(2 * C, affine=True), nn.LeakyReLU(0.1),
            nn.Flatten(),
        )  # fmt: skip
        self.to_mean, self.to_log_var = nn.Linear(2 * C * 16, LATENT), nn.Linear(2 * C * 16, LATENT)
        self.from_latent = nn.Linear(LATENT, 2 * C * 16)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(2 * C, C, 4, stride=2, padding=1), nn.ELU(),
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(C, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, image, noise):
        h = self.encoder(image)
        mean, log_var = self.to_mean(h), self.to_log_var(h).clamp(-1, 1)  # @a_clamp
        z = mean + noise * torch.exp(0.5 * log_var)  # @a_noise
        logits = self.decoder(self.from_latent(z).view(-1, 2 * C, 4, 4))
        rebuilt = F.binary_cross_entropy_with_logits(logits, image, reduction="none").sum((1, 2, 3))
        divergence = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1)
        return {"image": torch.sigmoid(logits), "loss": (rebuilt + 0.5 * divergence).mean()}


class B(nn.Module):
    """Channels last, mean and variance as one product, losses by their formulas."""

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.Parameter(torch.empty(*shape))  # noqa: E731
        self.k1, self.c1, self.s1, self.t1 = new(9, C), new(C), new(C), new(C)
        self.register_buffer("seen_mean", torch.zeros(C))
        self.register_buffer("seen_var", torch.ones(C))
        self.k2, self.c2, self.s2, self.t2 = new(9 * C, 2 * C), new(2 * C), new(2 * C), new(2 * C)
        self.stats = nn.Linear(2 * C * 16, 2 * LATENT)
        self.grow = nn.Linear(LATENT, 2 * C * 16)
        self.k3, self.c3 = new(2 * C, C, 4, 4), new(C)
        self.k4, self.c4 = new(9 * C, 1), new(1)

    def convolve(self, x, kernel, offset, stride):
        windows = F.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 3, stride).unfold(2, 3, stride)  # @windows
        return windows.flatten(3) @ kernel + offset  # @product

    def activate(self, x):
        return torch.maximum(x, 0.1 * x)  # @leaky

    def encode(self, image):
        x = self.convolve(image.permute(0, 2, 3, 1), self.k1, self.c1, 2)  # @first
        x = (x - self.seen_mean) / torch.sqrt(self.seen_var + 1e-5)  # @batch
        x = self.activate(x * self.s1 + self.t1)  # @batch_out
        x = self.convolve(x, self.k2, self.c2, 2)
        mean, var = x.mean((1, 2), keepdim=True), x.var((1, 2), correction=0, keepdim=True)  # @instance
        x = self.activate((x - mean) * torch.rsqrt(var + 1e-5) * self.s2 + self.t2)  # @instance
        return self.stats(x.permute(0, 3, 1, 2).flatten(1))  # @stats

    def decode(self, z):
        x = self.grow(z).view(-1, 2 * C, 4, 4)  # @grow
        x = F.conv_transpose2d(x, self.k3, self.c3, stride=2, padding=1)  # @up
        x = torch.where(x > 0, x, x.exp() - 1)  # @elu
        x = F.interpolate(x, size=(16, 16), mode="bilinear", align_corners=False)  # @bigger
        return self.convolve(x.permute(0, 2, 3, 1), self.k4, self.c4, 1)[..., 0]  # @last

    def forward(self, image, noise):
        mean, spread = self.encode(image).chunk(2, -1)
        spread = spread.clamp(min=-1.0, max=1.0)  # @clamp
        z = mean + noise * (spread / 2).exp()  # @noise
        x = self.decode(z)
        target = image[:, 0]
        losses = F.softplus(x) - target * x  # @entropy
        far = 0.5 * (mean.square() + spread.exp() - 1 - spread)  # @far
        total = losses.flatten(1).sum(1) + 0.5 * far.sum(-1)  # @total
        return {"image": x.sigmoid().unsqueeze(1), "loss": total.mean()}  # @result


def transfer(a, b):
    first, norm, _, second, instance, *_ = a.encoder
    b.k1.copy_(first.weight.permute(1, 2, 3, 0).reshape(9, C))
    b.k2.copy_(second.weight.permute(1, 2, 3, 0).reshape(9 * C, 2 * C))
    b.k3.copy_(a.decoder[0].weight)
    b.k4.copy_(a.decoder[3].weight.permute(1, 2, 3, 0).reshape(9 * C, 1))
    for own, conv in zip((b.c1, b.c2, b.c3, b.c4), (first, second, a.decoder[0], a.decoder[3]), strict=True):
        own.copy_(conv.bias)
    for own, value in zip(
        (b.s1, b.t1, b.s2, b.t2, b.seen_mean, b.seen_var),
        (norm.weight, norm.bias, instance.weight, instance.bias, norm.running_mean, norm.running_var),
        strict=True,
    ):
        own.copy_(value)
    b.stats.weight.copy_(torch.cat((a.to_mean.weight, a.to_log_var.weight)))
    b.stats.bias.copy_(torch.cat((a.to_mean.bias, a.to_log_var.bias)))
    b.grow.load_state_dict(a.from_latent.state_dict())


def inputs():
    source = torch.Generator().manual_seed(7)
    return torch.rand(3, 1, 16, 16, generator=source), torch.randn(3, LATENT, generator=source)


# fmt: off
BUGS = {
    "variance as deviation": Bug("scale", "z = mean + noise * (spread / 2).exp()", "z = mean + noise * spread.exp()"),
    "mean and variance swapped": Bug("index", "mean, spread = self.encode(image).chunk(2, -1)", "spread, mean = self.encode(image).chunk(2, -1)", "clamp noise"),
    "not clamped": Bug("clamp", "spread = spread.clamp(min=-1.0, max=1.0)  # @clamp", "pass", "noise a_clamp"),
    "clamped too early": Bug("clamp", "clamp(min=-1.0, max=1.0)", "clamp(min=-0.1, max=0.1)"),
    "corners aligned": Bug("align corners", "align_corners=False", "align_corners=True"),
    "nearest for bilinear": Bug("interpolation", "mode=\"bilinear\", align_corners=False", "mode=\"nearest\""),
    "transposed kernel flipped": Bug("flipped", "F.conv_transpose2d(x, self.k3,", "F.conv_transpose2d(x, self.k3.flip(2, 3),"),
    "norm over the batch": Bug("axis", "x.mean((1, 2), keepdim=True), x.var((1, 2),", "x.mean((0, 1, 2), keepdim=True), x.var((0, 1, 2),", "instance"),
    "flattened channels last": Bug("layout", "x.permute(0, 3, 1, 2).flatten(1)", "x.flatten(1)"),
    "padded on two sides only": Bug("padding", "F.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 3, stride)", "F.pad(x, (0, 0, 2, 0, 2, 0)).unfold(1, 3, stride)", "product"),
    "loss averaged over pixels": Bug("loss reduction", "losses.flatten(1).sum(1)", "losses.flatten(1).mean(1)"),
    "divergence of the wrong sign": Bug("sign", "0.5 * (mean.square() + spread.exp() - 1 - spread)", "0.5 * (mean.square() + spread.exp() - 1 + spread)", "total"),
    "noise cuts the mean's gradient": Bug("detach", "z = mean + noise * (spread / 2).exp()", "z = mean.detach() + noise * (spread / 2).exp()", tensors=("stats.weight", "stats.bias")),
}
# fmt: on
