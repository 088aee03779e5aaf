"""A loop over positions or chunks against the same done at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torcheer as tl


class Looped(nn.Module):
    """A running sum over positions, weighted, one position after another."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, found = x.new_zeros(x.shape[0], 6), []
        for t in range(x.shape[1]):
            state = state + torch.tanh(self.inner(x[:, t])) * self.gate(x[:, t]).exp()
            found.append(state.sin())
        return torch.stack(found, 1)


class AtOnce(Looped):
    """The same in closed form."""

    bug = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x).exp()
        inner = self.inner(x)
        inner = inner.sigmoid() if self.bug == "gate" else inner.tanh()
        total = (inner * gate).cumsum(1)
        return total.cos() if self.bug == "end" else total.sin()


class Chunked(nn.Module):
    """Rows in chunks, of which the last is shorter."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)
        self.size = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.down(self.up(part).relu()) for part in x.split(self.size)])


def pair(kind: type[Looped], bug: str) -> tuple[Looped, AtOnce]:
    torch.manual_seed(0)
    looped, at_once = kind(), AtOnce()
    at_once.load_state_dict(looped.state_dict())
    at_once.bug = bug
    return looped.eval(), at_once.eval()


@pytest.mark.parametrize(
    ("bug", "line"), [("gate", 'inner = inner.sigmoid() if self.bug == "gate"'), ("end", "return total.cos()")]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_what_a_loop_does_pass_by_pass_is_no_difference(bug: str, line: str, swapped: bool) -> None:
    a, b = pair(Looped, bug)
    x = torch.randn(3, 5, 6)
    found = tl.compare(b, a, x) if swapped else tl.compare(a, b, x)
    assert found.first_divergence is not None
    place = found.first_divergence.a if swapped else found.first_divergence.b
    assert place is not None
    assert place.frame is not None
    assert line in place.frame.text
    joined = {(one.a, one.b) for one in found.matches if one.layout.startswith("passes joined")}
    assert any("linear" in one + other for one, other in joined), found.matches


def test_chunks_of_unlike_length_are_one_value() -> None:
    torch.manual_seed(0)
    chunked, whole = Chunked().eval(), Chunked().eval()
    whole.load_state_dict(chunked.state_dict())
    whole.size = 11
    x = torch.randn(11, 6)
    assert tl.compare(chunked, whole, x)
    with torch.no_grad():
        whole.down.bias.add_(1)
    found = tl.compare(chunked, whole, x)
    assert found.first_divergence is not None
    assert found.first_divergence.b is not None
    assert found.first_divergence.b.module == "down"
    assert any(one.layout.startswith("passes joined") and one.b.startswith("relu") for one in found.matches)
