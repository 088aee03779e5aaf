"""VQ-VAE on sequences: the nearest of a table of codes, gradients straight through, losses of commitment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

GIVEN, C, CODES = 4, 6, 7


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(C, C, 3, padding=1), nn.Conv1d(C, C, 1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))  # @a_residual


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.inner = nn.Conv1d(GIVEN, C, 4, stride=2, padding=1), Residual()
        self.codebook = nn.Embedding(CODES, C)
        self.outer, self.outward = Residual(), nn.ConvTranspose1d(C, GIVEN, 4, stride=2, padding=1)

    def forward(self, x):
        z = self.inner(self.inward(x)).transpose(1, 2)
        far = torch.cdist(z, self.codebook.weight[None], compute_mode="donot_use_mm_for_euclid_dist")
        index = far.argmin(-1)
        q = self.codebook(index)
        commit = F.mse_loss(z, q.detach())
        move = F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        rebuilt = self.outward(self.outer(q.transpose(1, 2)))
        return {"rebuilt": rebuilt, "index": index, "loss": F.mse_loss(rebuilt, x) + move + 0.25 * commit}  # @a_loss


class B(nn.Module):
    """Channels last; distances by a product; strided windows for convolutions, sums of taps for the transposed one."""

    def __init__(self):
        super().__init__()
        new = lambda *shape: nn.Parameter(torch.empty(*shape))  # noqa: E731
        self.k_in, self.c_in = new(GIVEN, 4, C), new(C)
        self.table = new(C, CODES)
        self.k1, self.c1, self.k2, self.c2 = new(2, C, 3, C), new(2, C), new(2, C, C), new(2, C)
        self.k_out, self.c_out = new(4, C, GIVEN), new(GIVEN)

    def refine(self, x, i):
        y = F.pad(x.relu(), (0, 0, 1, 1)).unfold(1, 3, 1)  # @windows
        y = torch.einsum("btck,cko->bto", y, self.k1[i]) + self.c1[i]  # @conv1
        return torch.relu(y) @ self.k2[i] + self.c2[i] + x  # @refined

    def grow(self, x):
        n, t, _ = x.shape
        taps = torch.einsum("btc,kco->btko", x, self.k_out)  # @taps
        y = F.fold(taps.permute(0, 3, 2, 1).reshape(n, 4 * GIVEN, t), (1, 2 * t + 2), (1, 4), stride=(1, 2))  # @folded
        return y[:, :, 0, 1:-1] + self.c_out[:, None]  # @cut

    def forward(self, x):
        y = F.pad(x.mT, (0, 0, 1, 1)).unfold(1, 4, 2)  # @strided
        z = self.refine(torch.einsum("btck,cko->bto", y, self.k_in) + self.c_in, 0)  # @inward
        squares = self.table.square().sum(0) - 2 * z @ self.table  # @squares
        index = squares.min(-1).indices  # @index
        q = self.table.T[index]  # @codes
        apart = (q - z.detach()).square().mean()  # @apart
        kept = (z - q.detach()).pow(2).mean()  # @kept
        q = (q - z).detach() + z  # @through
        rebuilt = self.grow(self.refine(q, 1))
        error = (rebuilt - x).square().mean()  # @error
        return {"rebuilt": rebuilt, "index": index, "loss": error + apart + kept / 4}  # @loss


def transfer(a, b):
    b.k_in.copy_(a.inward.weight.permute(1, 2, 0))
    b.c_in.copy_(a.inward.bias)
    b.table.copy_(a.codebook.weight.T)
    for i, own in enumerate((a.inner, a.outer)):
        b.k1[i].copy_(own.conv1.weight.permute(1, 2, 0))
        b.c1[i].copy_(own.conv1.bias)
        b.k2[i].copy_(own.conv2.weight[..., 0].T)
        b.c2[i].copy_(own.conv2.bias)
    b.k_out.copy_(a.outward.weight.permute(2, 0, 1))
    b.c_out.copy_(a.outward.bias)


def inputs():
    return (1.5 * torch.randn(3, GIVEN, 12, generator=torch.Generator().manual_seed(22)),)


# fmt: off
BUGS = {
    "farthest code": Bug("flipped", "squares.min(-1).indices", "squares.max(-1).indices", "codes"),
    "nearest by product alone": Bug("missing step", "squares = self.table.square().sum(0) - 2 * z @ self.table", "squares = -2 * z @ self.table", "index codes"),
    "product not doubled": Bug("scale", "- 2 * z @ self.table", "- z @ self.table", "index codes"),
    "not padded on the left": Bug("padding", "F.pad(x.mT, (0, 0, 1, 1)).unfold(1, 4, 2)", "F.pad(x.mT, (0, 0, 0, 2)).unfold(1, 4, 2)", "inward"),
    "refining without residual": Bug("residual", "return torch.relu(y) @ self.k2[i] + self.c2[i] + x", "return torch.relu(y) @ self.k2[i] + self.c2[i]", "a_residual"),
    "residual of the activated state": Bug("wrong tensor", "return torch.relu(y) @ self.k2[i] + self.c2[i] + x", "return torch.relu(y) @ self.k2[i] + self.c2[i] + x.relu()"),
    "activation before the first refining convolution left out": Bug("activation", "F.pad(x.relu(), (0, 0, 1, 1))", "F.pad(x, (0, 0, 1, 1))", "conv1"),
    "taps reversed in the transposed convolution": Bug("flipped", "\"btc,kco->btko\", x, self.k_out", "\"btc,kco->btko\", x, self.k_out.flip(0)"),
    "cut at the end only": Bug("off by one", "y[:, :, 0, 1:-1]", "y[:, :, 0, :-2]"),
    "commitment weighed by one": Bug("scale", "error + apart + kept / 4", "error + apart + kept"),
    "reconstruction summed": Bug("loss reduction", "error = (rebuilt - x).square().mean()", "error = (rebuilt - x).square().sum()"),
    "reconstruction by distance": Bug("wrong function", "error = (rebuilt - x).square().mean()", "error = (rebuilt - x).abs().mean()"),
    "not straight through": Bug("detach", "q = (q - z).detach() + z", "q = (q - z).detach() + z.detach()", tensors=("k2", "c2")),
    "codes moved by the commitment too": Bug("detach", "kept = (z - q.detach()).pow(2).mean()", "kept = (z - q).pow(2).mean()", tensors=("table",)),
    "table not moved": Bug("detach", "apart = (q - z.detach()).square().mean()", "apart = (q.detach() - z.detach()).square().mean()", tensors=("table",)),
}
# fmt: on


def loss(out):
    return out["loss"]
