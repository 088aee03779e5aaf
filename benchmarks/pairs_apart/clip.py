"""Two towers and a contrastive loss: patches and words, each normalised, compared over the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

VOCAB, D, HEADS, JOINT, WORDS = 17, 12, 2, 8, 6


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, HEADS)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), QuickGELU(), nn.Linear(2 * D, D))

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, D, 4, 4, bias=False)
        self.class_embedding, self.positions = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(5, D))
        self.ln_pre, self.ln_post, self.visual = nn.LayerNorm(D), nn.LayerNorm(D), Layer()
        self.visual_projection = nn.Parameter(torch.empty(D, JOINT))
        self.tokens, self.text_positions = nn.Embedding(VOCAB, D), nn.Parameter(torch.empty(WORDS, D))
        self.textual, self.ln_final = Layer(), nn.LayerNorm(D)
        self.text_projection, self.log_scale = nn.Parameter(torch.empty(D, JOINT)), nn.Parameter(torch.empty(()))

    def encode_image(self, image):
        x = self.conv1(image).flatten(2).permute(2, 0, 1)
        x = torch.cat((self.class_embedding.expand(1, x.shape[1], D), x))
        x = self.visual(self.ln_pre(x + self.positions[:, None]))  # @a_pre
        return self.ln_post(x[0]) @ self.visual_projection  # @a_post

    def encode_text(self, ids):
        x = self.tokens(ids) + self.text_positions
        mask = torch.full((WORDS, WORDS), -torch.inf).triu(1)
        x = self.ln_final(self.textual(x.transpose(0, 1), mask)).transpose(0, 1)
        return x[torch.arange(len(ids)), ids.argmax(-1)] @ self.text_projection

    def forward(self, image, ids):
        image, text = (
            F.normalize(self.encode_image(image), dim=-1),
            F.normalize(self.encode_text(ids), dim=-1),
        )  # @a_unit
        logits = self.log_scale.exp() * image @ text.T
        own = torch.arange(len(logits))
        loss = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
        return {"logits": logits, "loss": loss}


class B(nn.Module):
    """Batch first, heads by reshaping, losses by log-sum-exp."""

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.Parameter(torch.empty(2, 2, D))
            self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
            self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

        def attend(self, x, causal):
            n, t, _ = x.shape
            q, k, v = (
                each(x).reshape(n, t, HEADS, D // HEADS).permute(0, 2, 1, 3) for each in (self.q, self.k, self.v)
            )
            scores = torch.matmul(q, k.transpose(-1, -2)) / (D // HEADS) ** 0.5  # @scores
            if causal:
                later = torch.arange(t)[None] > torch.arange(t)[:, None]  # @later
                scores = scores.masked_fill(later, -1e4)  # @masked
            y = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3)  # @mixed
            return self.o(y.reshape(n, t, D))  # @merged

        def forward(self, x, causal=False):
            x = x + self.attend(normed(x, *self.norms[0]), causal)  # @attended
            y = self.up(normed(x, *self.norms[1]))
            y = y / (1 + torch.exp(-1.702 * y))  # @gelu
            return x + self.down(y)  # @down

    def __init__(self):
        super().__init__()
        self.patch = nn.Parameter(torch.empty(48, D))
        self.places = nn.Parameter(torch.empty(5, D))
        self.whole = nn.Parameter(torch.empty(1, 1, D))
        self.seeing, self.reading = B.Tower(), B.Tower()
        self.norms = nn.Parameter(torch.empty(3, 2, D))
        self.table, self.spots = nn.Parameter(torch.empty(VOCAB, D)), nn.Parameter(torch.empty(WORDS, D))
        self.from_image, self.from_text = nn.Linear(D, JOINT, bias=False), nn.Linear(D, JOINT, bias=False)
        self.log_scale = nn.Parameter(torch.empty(1))

    def see(self, image):
        n = len(image)
        x = image.view(n, 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(n, 4, 48) @ self.patch  # @patches
        x = torch.cat((self.whole.expand(n, -1, -1), x), 1) + self.places  # @placed
        x = self.seeing(normed(x, *self.norms[0]))  # @seeing
        return self.from_image(normed(x[:, 0], *self.norms[1]))  # @from_image

    def read(self, ids):
        x = F.embedding(ids, self.table) + self.spots  # @words
        x = self.reading(x, causal=True)
        last = ids.max(-1, keepdim=True).indices  # @ends
        x = x.gather(1, last[..., None].expand(-1, -1, D))[:, 0]  # @picked
        return self.from_text(normed(x, *self.norms[2]))  # @from_text

    def forward(self, image, ids):
        seen, read = self.see(image), self.read(ids)
        seen = seen / seen.norm(dim=-1, keepdim=True)  # @unit_image
        read = read / read.norm(dim=-1, keepdim=True)  # @unit_text
        logits = torch.einsum("ic,jc->ij", seen, read) * self.log_scale.exp()  # @logits
        own = logits.diagonal()  # @own
        losses = logits.logsumexp(1) - own + logits.logsumexp(0) - own  # @losses
        return {"logits": logits, "loss": losses.mean() / 2}  # @loss


def normed(x, gain, offset):
    centred = x - x.mean(-1, keepdim=True)  # @norm
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5) ** 0.5 * gain + offset  # @norm


def transfer(a, b):
    b.patch.copy_(a.conv1.weight.flatten(1).T)
    b.whole.copy_(a.class_embedding.view(1, 1, D))
    b.places.copy_(a.positions)
    b.table.copy_(a.tokens.weight)
    b.spots.copy_(a.text_positions)
    b.log_scale.copy_(a.log_scale.view(1))
    b.from_image.weight.copy_(a.visual_projection.T)
    b.from_text.weight.copy_(a.text_projection.T)
    for i, norm in enumerate((a.ln_pre, a.ln_post, a.ln_final)):
        b.norms[i].copy_(torch.stack((norm.weight, norm.bias)))
    for layer, tower in ((a.visual, b.seeing), (a.textual, b.reading)):
        for i, norm in enumerate((layer.ln_1, layer.ln_2)):
            tower.norms[i].copy_(torch.stack((norm.weight, norm.bias)))
        for i, own in enumerate((tower.q, tower.k, tower.v)):
            own.weight.copy_(layer.attn.in_proj_weight.chunk(3)[i])
            own.bias.copy_(layer.attn.in_proj_bias.chunk(3)[i])
        tower.o.load_state_dict(layer.attn.out_proj.state_dict())
        tower.up.load_state_dict(layer.mlp[0].state_dict())
        tower.down.load_state_dict(layer.mlp[2].state_dict())


def inputs():
    source = torch.Generator().manual_seed(10)
    ids = torch.randint(0, VOCAB - 1, (4, WORDS), generator=source)
    ids[torch.arange(4), torch.tensor([3, 5, 2, 4])] = VOCAB - 1
    return torch.randn(4, 3, 8, 8, generator=source), ids


# fmt: off
BUGS = {
    "temperature not exponentiated": Bug("temperature", "* self.log_scale.exp()", "* self.log_scale"),
    "temperature divides": Bug("temperature", "* self.log_scale.exp()", "/ self.log_scale.exp()"),
    "normalised over the batch": Bug("axis", "read = read / read.norm(dim=-1, keepdim=True)", "read = read / read.norm(dim=0, keepdim=True)"),
    "images not normalised": Bug("missing step", "seen = seen / seen.norm(dim=-1, keepdim=True)  # @unit_image", "pass", "logits a_unit"),
    "exact gelu": Bug("activation", "y = y / (1 + torch.exp(-1.702 * y))", "y = F.gelu(y)"),
    "last word for the end": Bug("index", "last = ids.max(-1, keepdim=True).indices", "last = torch.full((len(ids), 1), WORDS - 1)", "picked"),
    "text sees all words": Bug("mask", "x = self.reading(x, causal=True)", "x = self.reading(x)", "scores mixed"),
    "whole image without a place": Bug("position", "torch.cat((self.whole.expand(n, -1, -1), x), 1) + self.places", "torch.cat((self.whole.expand(n, -1, -1), x + self.places[1:]), 1)", "norm seeing"),
    "norm before the towers left out": Bug("missing step", "x = self.seeing(normed(x, *self.norms[0]))", "x = self.seeing(x)", "norm a_pre"),
    "mean of patches for the whole": Bug("reduction", "normed(x[:, 0], *self.norms[1])", "normed(x.mean(1), *self.norms[1])"),
    "one side of the loss twice": Bug("axis", "logits.logsumexp(1) - own + logits.logsumexp(0) - own", "logits.logsumexp(1) - own + logits.logsumexp(1) - own", "loss"),
    "loss summed": Bug("loss reduction", "losses.mean() / 2", "losses.sum() / 2"),
    "patches transposed": Bug("transposed", "permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 1, 5, 3)"),
    "temperature not trained": Bug("detach", "* self.log_scale.exp()", "* self.log_scale.detach().exp()", tensors=("log_scale",)),
    "image tower not trained by the loss": Bug("no grad", "seen, read = self.see(image), self.read(ids)", "seen, read = self.see(image).detach(), self.read(ids)", tensors=("from_image",)),
}
# fmt: on
