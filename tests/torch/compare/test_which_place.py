"""Of several places that look different, the one that is wrong is named: rewrites that no mistake ever joins again."""

import torch
import torch.nn.functional as F
from torch import nn

import torcheer as tl


class Upsampler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.entry = nn.ConvTranspose2d(4, 3, 3, padding=1), nn.Linear(5, 4 * 36)

    def forward(self, x):
        return self.up(torch.tanh(self.entry(x)).view(-1, 4, 6, 6))


class Flipped(nn.Module):
    """The transposed convolution as one with its kernel flipped, after an activation that may be wrong."""

    def __init__(self, model, activation) -> None:
        super().__init__()
        self.model, self.activation = model, activation

    def forward(self, x):
        x = self.activation(F.linear(x, self.model.entry.weight, self.model.entry.bias)).view(-1, 4, 6, 6)
        return F.conv2d(x, self.model.up.weight.transpose(0, 1).flip(2, 3), self.model.up.bias, padding=1)


def test_a_rewrite_after_the_mistake_is_not_blamed():
    torch.manual_seed(0)
    model, x = Upsampler(), torch.randn(2, 5)
    assert tl.compare(model, Flipped(model, torch.tanh), x)
    found = tl.compare(model, Flipped(model, torch.sigmoid), x)
    assert found.first_divergence.b.aten == "sigmoid"
    assert "B gives A's outputs" in found.first_divergence.confirmed


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.inner, self.outer = nn.Linear(6, 3), nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x):
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        rows = torch.where(chosen == 0)[0]
        return out.index_add(0, rows, self.outer(F.gelu(self.inner(x[rows]))))


class Dense(nn.Module):
    """All rows, of which a mask leaves those that are wanted."""

    def __init__(self, model, approximate) -> None:
        super().__init__()
        self.model, self.approximate = model, approximate

    def forward(self, x):
        model = self.model
        wanted = model.router(x).argmax(-1, keepdim=True) == 0
        made = F.gelu(model.inner(x), approximate=self.approximate)
        return torch.where(wanted, model.outer(made), torch.zeros_like(x))


def test_what_one_side_computes_in_part_is_followed():
    torch.manual_seed(0)
    model, x = Routed(), torch.randn(24, 6)
    assert tl.compare(model, Dense(model, "none"), x)
    found = tl.compare(model, Dense(model, "tanh"), x)
    assert found.first_divergence.b.aten == "gelu"


class Halves(nn.Module):
    def __init__(self, swapped: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.both, self.swapped = nn.Linear(5, 8), swapped

    def forward(self, x):
        y = self.both(x)
        left, right = (y[:, 4:], y[:, :4]) if self.swapped else (y[:, :4], y[:, 4:])
        return {"left": left, "gated": left * torch.sigmoid(right)}


def test_what_picked_the_wrong_half_is_named():
    found = tl.compare(Halves(False), Halves(True), torch.randn(3, 5))
    assert found.first_divergence.b.aten in ("slice", "select")
    assert "picks" in found.first_divergence.headline


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.factor = nn.Linear(5, 5), nn.Linear(5, 3), factor

    def forward(self, x):
        x = x + self.one(x)
        return self.two(x if self.factor == 1 else x * self.factor)


def test_a_factor_left_out_is_named():
    found = tl.compare(Scaled(0.5), Scaled(1), torch.randn(3, 5))
    assert found.first_divergence.kind == "missing"
    assert "A multiplies it by 0.5 first" in found.first_divergence.headline


def test_a_report_is_as_wide_as_a_page_and_names_files_from_here():
    torch.manual_seed(0)
    model = Upsampler()
    text = str(tl.compare(model, Flipped(model, torch.sigmoid), torch.randn(2, 5)))
    assert max(map(len, text.splitlines())) <= 120
    assert "site-packages" not in text
