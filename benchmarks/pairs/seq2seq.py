"""A sequence to sequence model: ``nn.LSTM`` encoder and decoder with attention, against cells written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

E, H, VOCAB = 12, 16, 31
BUGS = {
    "gate_order": Label("gates"),
    "gate_activation": Label("gate_activation gates"),
    "missing_bias": Label("sum"),
    "state_init": Label("state_init sum", missing_in_a="zeros"),
    "state_not_passed": Label("state_init state_not_passed sum"),
    "cell_tanh": Label("cell_tanh"),
    "forget_bias": Label("forget_bias gates"),
    "reversed_input": Label("reversed_input"),
    "missing_scale": Label("missing_scale attend"),
    "softmax_axis": Label("attend"),
    "mask_value": Label("mask"),
    "dropout_on": Label("dropout_on"),
    "transposed_weight": Label("sum"),
    "context_order": Label("context_order"),
    "wrong_activation": Label("wrong_activation"),
    "padding_idx": Label("", tensor="src.weight"),
    "detached": Label("", tensor="enc"),
    "reset_each_step": Label("recur sum"),
}


class ModelA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.src, self.tgt = nn.Embedding(VOCAB, E, padding_idx=0), nn.Embedding(VOCAB, E)
        self.encoder, self.decoder = nn.LSTM(E, H, batch_first=True), nn.LSTM(E, H, batch_first=True)
        self.mix, self.out = nn.Linear(2 * H, H), nn.Linear(H, VOCAB)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.src(source))
        hidden, _ = self.decoder(self.tgt(target), state)
        scores = torch.bmm(hidden, memory.transpose(1, 2)) / H**0.5
        scores = scores.masked_fill((source == 0)[:, None], float("-inf"))
        context = torch.bmm(torch.softmax(scores, -1), memory)
        return self.out(torch.tanh(self.mix(torch.cat((context, hidden), -1))))


class Cell(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.wx, self.wh, self.bias = (
            nn.Parameter(torch.zeros(E, 4 * H)),
            nn.Parameter(torch.zeros(H, 4 * H)),
            nn.Parameter(torch.zeros(4 * H)),
        )

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wh = self.wh.view(4, H, H).mT.reshape(H, 4 * H) if self.bug == "transposed_weight" else self.wh  # @sum
        z = x @ self.wx + h @ wh  # @sum
        if self.bug != "missing_bias":
            z = z + self.bias  # @sum
        i, f, g, o = z.chunk(4, -1)
        if self.bug == "gate_order":
            f, g = g, f
        if self.bug == "forget_bias":
            f = f + 1  # @forget_bias
        g = torch.sigmoid(g) if self.bug == "gate_activation" else torch.tanh(g)  # @gates
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)  # @gates
        c = f * c + i * g
        return o * (c if self.bug == "cell_tanh" else torch.tanh(c)), c  # @cell_tanh


class ModelB(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.src, self.tgt = (
            nn.Embedding(VOCAB, E, padding_idx=None if bug == "padding_idx" else 0),
            nn.Embedding(VOCAB, E),
        )
        self.enc, self.dec = Cell(bug), Cell(None)
        self.mix_h, self.mix_c = nn.Parameter(torch.zeros(H, H)), nn.Parameter(torch.zeros(H, H))
        self.mix_b = nn.Parameter(torch.zeros(H))
        self.out = nn.Linear(H, VOCAB)

    def run(self, cell: Cell, xs: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        states = []
        for x in xs.unbind(1):
            if self.bug == "reset_each_step" and cell is self.enc:
                c = torch.zeros_like(c)
            h, c = cell(x, h, c)  # @recur
            states.append(h)
        return torch.stack(states, 1), h, c

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        n = source.shape[0]
        start = torch.ones(n, H) if self.bug == "state_init" else torch.zeros(n, H)  # @state_init
        words = self.src(source)
        if self.bug == "reversed_input":
            words = words.flip(1)  # @reversed_input
        memory, h, c = self.run(self.enc, words, start, start)
        if self.bug == "detached":
            memory, h, c = memory.detach(), h.detach(), c.detach()
        if self.bug == "state_not_passed":
            h, c = start, start
        hidden, _, _ = self.run(self.dec, self.tgt(target), h, c)  # @state_not_passed
        scores = torch.einsum("btd,bsd->bts", hidden, memory)  # @missing_scale
        if self.bug != "missing_scale":
            scores = scores * H**-0.5
        value = -1.0 if self.bug == "mask_value" else -1e9
        scores = scores + (source == 0).to(scores.dtype)[:, None] * value  # @mask @missing_scale
        probs = F.softmax(scores, 1 if self.bug == "softmax_axis" else -1)  # @attend
        if self.bug == "dropout_on":
            probs = F.dropout(probs, 0.1)  # @dropout_on
        context = probs @ memory
        if self.bug == "context_order":
            context, hidden = hidden, context
        y = context @ self.mix_c + hidden @ self.mix_h + self.mix_b  # @context_order
        y = torch.relu(y) if self.bug == "wrong_activation" else torch.tanh(y)  # @wrong_activation
        return self.out(y)


def make(bug: str | None, seed: int) -> Case:
    a, b = lively(ModelA(), seed), ModelB(bug)
    s = a.state_dict()
    new = {name: s[name] for name in ("src.weight", "tgt.weight", "out.weight", "out.bias")}
    for mine, theirs in (("enc", "encoder"), ("dec", "decoder")):
        new[f"{mine}.wx"], new[f"{mine}.wh"] = s[f"{theirs}.weight_ih_l0"].t(), s[f"{theirs}.weight_hh_l0"].t()
        new[f"{mine}.bias"] = s[f"{theirs}.bias_ih_l0"] + s[f"{theirs}.bias_hh_l0"]
    new["mix_c"], new["mix_h"] = s["mix.weight"][:, :H].t(), s["mix.weight"][:, H:].t()
    new["mix_b"] = s["mix.bias"]
    b.load_state_dict(new)
    source = torch.Generator().manual_seed(seed + 100)
    x = torch.randint(1, VOCAB, (3, 6), generator=source)
    x[1, 4:] = 0
    y = torch.randint(1, VOCAB, (3, 5), generator=source)
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(a, b, (x, y))
