"""A tagger with a conditional random field on a two-layer LSTM in both directions: scores of paths, the best one."""

from __future__ import annotations

import torch
from torch import nn

from .case import Bug

VOCAB, D, H, TAGS, LENGTH = 15, 6, 5, 4, 7


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.lstm = nn.LSTM(D, H, 2, batch_first=True, bidirectional=True)
        self.norm, self.emit = nn.LayerNorm(2 * H), nn.Linear(2 * H, TAGS)
        self.transitions = nn.Parameter(torch.empty(TAGS, TAGS))
        self.start, self.end = nn.Parameter(torch.empty(TAGS)), nn.Parameter(torch.empty(TAGS))

    def forward(self, ids, tags):
        scores = self.emit(self.norm(self.lstm(self.embed(ids))[0]))  # @a_norm
        mask = ids != 0
        alpha = self.start + scores[:, 0]
        path = self.start[tags[:, 0]] + scores[:, 0].gather(1, tags[:, :1])[:, 0]
        for t in range(1, LENGTH):
            step = alpha[:, :, None] + self.transitions + scores[:, t, None]
            alpha = torch.where(mask[:, t, None], step.logsumexp(1), alpha)  # @a_alpha
            here = self.transitions[tags[:, t - 1], tags[:, t]] + scores[:, t].gather(1, tags[:, t, None])[:, 0]
            path = path + here * mask[:, t]
        total = (alpha + self.end).logsumexp(1)  # @a_total
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
        path = path + self.end[last]  # @a_path
        return {"scores": scores, "loss": (total - path).mean()}


class B(nn.Module):
    """Cells by hand; sums of exponentials as products of matrices; the path by one gather."""

    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(VOCAB, D))
        sizes = (D, D, 2 * H, 2 * H)
        self.cells = nn.ParameterList(nn.Parameter(torch.empty(size + H, 4 * H)) for size in sizes)
        self.offsets = nn.ParameterList(nn.Parameter(torch.empty(2, 4 * H)) for _ in sizes)
        self.scale, self.shift = nn.Parameter(torch.empty(2 * H)), nn.Parameter(torch.empty(2 * H))
        self.out = nn.Linear(2 * H, TAGS)
        self.moves = nn.Parameter(torch.empty(TAGS + 2, TAGS + 2))  # the last two: begin and end

    def run(self, x, number, order):
        h, c = x.new_zeros(len(x), H), x.new_zeros(len(x), H)  # @zeros
        states = [h] * LENGTH
        for t in order:
            gates = torch.cat((x[:, t], h), 1) @ self.cells[number] + self.offsets[number].sum(0)  # @gates
            i, f, g, o = gates.view(len(x), 4, H).unbind(1)  # @unbind
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()  # @cell
            h = o.sigmoid() * c.tanh()  # @state
            states[t] = h
        return torch.stack(states, 1)  # @states

    def layer(self, x, number):
        there = self.run(x, number, range(LENGTH))  # @there
        back = self.run(x, number + 1, reversed(range(LENGTH)))  # @back
        return torch.cat((there, back), 2)  # @ways

    def partition(self, scores, mask):
        moves, begin, end = self.moves[:TAGS, :TAGS], self.moves[TAGS, :TAGS], self.moves[:TAGS, TAGS + 1]
        alpha = begin + scores[:, 0]  # @begin
        for t in range(1, LENGTH):
            top = alpha.amax(1, keepdim=True)
            new = torch.log(torch.exp(alpha - top) @ moves.exp()) + top + scores[:, t]  # @new
            alpha = torch.where(mask[:, t : t + 1], new, alpha)  # @alpha
        return torch.logsumexp(alpha + end, 1)  # @total

    def path(self, scores, tags, mask):
        n = len(tags)
        before = torch.cat((torch.full((n, 1), TAGS), tags[:, :-1]), 1)  # @shifted
        moved = self.moves[before, tags]  # @moved
        emitted = torch.take_along_dim(scores, tags[..., None], 2)[..., 0]  # @emitted
        last = tags[torch.arange(n), mask.sum(1) - 1]  # @last
        return ((moved + emitted) * mask).sum(1) + self.moves[last, TAGS + 1]  # @path

    def forward(self, ids, tags):
        x = self.words[ids]  # @words
        x = self.layer(self.layer(x, 0), 2)  # @layers
        mean, var = x.mean(2, True), x.var(2, False, keepdim=True)  # @norm
        x = (x - mean) / (var + 1e-5).sqrt() * self.scale + self.shift  # @norm
        scores = self.out(x)  # @scores
        mask = ids > 0  # @mask
        losses = self.partition(scores, mask) - self.path(scores, tags, mask)  # @losses
        return {"scores": scores, "loss": losses.mean()}  # @loss


def transfer(a, b):
    b.words.copy_(a.embed.weight)
    for number, suffix in enumerate(("l0", "l0_reverse", "l1", "l1_reverse")):
        weights = (getattr(a.lstm, f"weight_ih_{suffix}"), getattr(a.lstm, f"weight_hh_{suffix}"))
        b.cells[number].copy_(torch.cat(weights, 1).T)
        offsets = (getattr(a.lstm, f"bias_ih_{suffix}"), getattr(a.lstm, f"bias_hh_{suffix}"))
        b.offsets[number].copy_(torch.stack(offsets))
    b.scale.copy_(a.norm.weight)
    b.shift.copy_(a.norm.bias)
    b.out.load_state_dict(a.emit.state_dict())
    b.moves.zero_()
    b.moves[:TAGS, :TAGS] = a.transitions
    b.moves[TAGS, :TAGS] = a.start
    b.moves[:TAGS, TAGS + 1] = a.end


def inputs():
    source = torch.Generator().manual_seed(17)
    ids = torch.randint(1, VOCAB, (3, LENGTH), generator=source)
    ids[1, 5:], ids[2, 4:] = 0, 0
    tags = torch.randint(0, TAGS, (3, LENGTH), generator=source)
    tags[1, 4], tags[1, 6], tags[2, 3], tags[2, 6] = 0, 1, 2, 3
    return ids, tags


# fmt: off
BUGS = {
    "gates in the order of another library": Bug("index", "i, f, g, o = gates.view(len(x), 4, H).unbind(1)", "i, g, f, o = gates.view(len(x), 4, H).unbind(1)", "cell state"),
    "cell forgets by the input gate": Bug("wrong tensor", "c = f.sigmoid() * c + i.sigmoid() * g.tanh()", "c = f.sigmoid() * c + (1 - f.sigmoid()) * g.tanh()"),
    "state without tanh": Bug("activation", "h = o.sigmoid() * c.tanh()", "h = o.sigmoid() * c"),
    "second direction forwards": Bug("direction", "reversed(range(LENGTH))", "range(LENGTH)", "gates"),
    "second layer with the weights of the first way": Bug("index", "self.run(x, number + 1, reversed", "self.run(x, number + (number == 0), reversed", "gates"),
    "directions joined the other way": Bug("order", "torch.cat((there, back), 2)", "torch.cat((back, there), 2)", "gates"),
    "moves transposed": Bug("transposed", "torch.exp(alpha - top) @ moves.exp()", "torch.exp(alpha - top) @ moves.exp().T"),
    "padding counted in the partition": Bug("mask", "alpha = torch.where(mask[:, t : t + 1], new, alpha)", "alpha = new", "new total a_alpha"),
    "padding counted in the path": Bug("mask", "((moved + emitted) * mask).sum(1)", "(moved + emitted).sum(1)", "path"),
    "end of the path at the last place": Bug("index", "last = tags[torch.arange(n), mask.sum(1) - 1]", "last = tags[:, -1]", "path"),
    "no end in the partition": Bug("missing step", "torch.logsumexp(alpha + end, 1)", "torch.logsumexp(alpha, 1)", "a_total"),
    "eps of the norm": Bug("eps", "(var + 1e-5).sqrt()", "(var + 1e-2).sqrt()", "norm"),
    "variance by n minus one": Bug("correction", "x.var(2, False, keepdim=True)", "x.var(2, True, keepdim=True)", "norm"),
    "maximum for the sum over tags": Bug("reduction", "new = torch.log(torch.exp(alpha - top) @ moves.exp()) + top + scores[:, t]", "new = (alpha[:, :, None] + moves).amax(1) + scores[:, t]"),
    "loss summed": Bug("loss reduction", "\"loss\": losses.mean()", "\"loss\": losses.sum()"),
    "partition does not train the moves": Bug("detach", "moves, begin, end = self.moves[:TAGS, :TAGS],", "moves, begin, end = self.moves.detach()[:TAGS, :TAGS],", tensors=("moves",)),
    "coupled weight decay": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.Adam(b.parameters(), 1e-2, weight_decay=0.1)),
}
# fmt: on


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1)


def loss(out):
    return out["loss"]
