"""A recommender: bags of categories embedded, every pair of them multiplied, dense features beside; crossed layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

DENSE, D, BAGS, WORDS, FIELDS = 5, 6, 3, 13, 4
WIDE = D + FIELDS * (FIELDS - 1) // 2


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 9), nn.ReLU(), nn.Linear(9, D), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(WORDS, D, mode="mean") for _ in range(BAGS))
        self.cross = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(2))
        self.top = nn.Sequential(nn.Linear(WIDE, 8), nn.PReLU(8), nn.Linear(8, 1))

    def forward(self, dense, bags):
        x = self.bottom(torch.log(dense + 1))  # @a_log
        fields = torch.stack([x] + [table(bags[:, i]) for i, table in enumerate(self.tables)], 1)
        products = torch.bmm(fields, fields.transpose(1, 2))
        row, column = torch.tril_indices(FIELDS, FIELDS, offset=-1)
        x0 = torch.cat((x, products[:, row, column]), 1)
        y = x0
        for layer in self.cross:
            y = x0 * layer(y) + y  # @a_cross
        return torch.sigmoid(self.top(y)).squeeze(1)


class B(nn.Module):
    """One table for all bags with offsets, bags as products with counts, products pair by pair."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(BAGS * WORDS, D))
        self.w1, self.c1 = nn.Parameter(torch.empty(DENSE, 9)), nn.Parameter(torch.empty(9))
        self.w2, self.c2 = nn.Parameter(torch.empty(9, D)), nn.Parameter(torch.empty(D))
        self.wx, self.cx = nn.Parameter(torch.empty(2, WIDE, WIDE)), nn.Parameter(torch.empty(2, WIDE))
        self.t1, self.d1 = nn.Parameter(torch.empty(WIDE, 8)), nn.Parameter(torch.empty(8))
        self.slope = nn.Parameter(torch.empty(8))
        self.t2, self.d2 = nn.Parameter(torch.empty(8)), nn.Parameter(torch.empty(1))

    def embed(self, bags):
        rows = bags + WORDS * torch.arange(BAGS)[:, None]  # @rows
        counts = F.one_hot(rows, BAGS * WORDS).sum(2).float()  # @counts
        return counts @ self.table / bags.shape[2]  # @bags

    def forward(self, dense, bags):
        x = torch.log1p(dense)  # @log
        x = (x @ self.w1 + self.c1).clamp(min=0)  # @bottom1
        x = (x @ self.w2 + self.c2).clamp(min=0)  # @bottom2
        fields = [x, *self.embed(bags).unbind(1)]
        pairs = [(fields[i] * fields[j]).sum(-1) for i in range(1, FIELDS) for j in range(i)]  # @pairs
        x0 = torch.cat((x, torch.stack(pairs, -1)), -1)  # @joined
        y = x0
        for i in range(2):
            y = torch.addmm(self.cx[i], y, self.wx[i]) * x0 + y  # @cross
        h = y @ self.t1 + self.d1  # @top1
        h = h.clamp(min=0) + self.slope * h.clamp(max=0)  # @prelu
        return (h @ self.t2 + self.d2).sigmoid()  # @top2


def transfer(a, b):
    b.table.copy_(torch.cat([table.weight for table in a.tables]))
    for (weight, offset), layer in zip(
        ((b.w1, b.c1), (b.w2, b.c2), (b.t1, b.d1)), (a.bottom[0], a.bottom[2], a.top[0]), strict=True
    ):
        weight.copy_(layer.weight.T)
        offset.copy_(layer.bias)
    for i, layer in enumerate(a.cross):
        b.wx[i].copy_(layer.weight.T)
        b.cx[i].copy_(layer.bias)
    b.slope.copy_(a.top[1].weight)
    b.t2.copy_(a.top[2].weight[0])
    b.d2.copy_(a.top[2].bias)


def inputs():
    source = torch.Generator().manual_seed(16)
    return 3 * torch.rand(6, DENSE, generator=source), torch.randint(0, WORDS, (6, BAGS, 4), generator=source)


# fmt: off
BUGS = {
    "bags summed": Bug("reduction", "counts @ self.table / bags.shape[2]", "counts @ self.table", "pairs"),
    "offsets of the tables left out": Bug("index", "rows = bags + WORDS * torch.arange(BAGS)[:, None]  # @rows", "rows = bags  # @rows", "counts bags"),
    "log of the features themselves": Bug("off by one", "torch.log1p(dense)", "torch.log(dense + 1e-6)"),
    "features not taken by log": Bug("missing step", "x = torch.log1p(dense)  # @log", "x = dense  # @log", "bottom1 a_log"),
    "products in another order": Bug("shuffled", "for i in range(1, FIELDS) for j in range(i)]", "for j in range(FIELDS) for i in range(j + 1, FIELDS)]", "joined"),
    "products after the dense features swapped": Bug("order", "torch.cat((x, torch.stack(pairs, -1)), -1)", "torch.cat((torch.stack(pairs, -1), x), -1)"),
    "cross with the layer before": Bug("wrong tensor", "torch.addmm(self.cx[i], y, self.wx[i]) * x0 + y", "torch.addmm(self.cx[i], y, self.wx[i]) * y + y"),
    "cross without residual": Bug("residual", "torch.addmm(self.cx[i], y, self.wx[i]) * x0 + y", "torch.addmm(self.cx[i], y, self.wx[i]) * x0", "a_cross"),
    "bias not crossed": Bug("order", "torch.addmm(self.cx[i], y, self.wx[i]) * x0 + y", "(y @ self.wx[i]) * x0 + self.cx[i] + y"),
    "one slope for all": Bug("broadcast", "self.slope * h.clamp(max=0)", "self.slope.mean() * h.clamp(max=0)"),
    "slope of the positive side": Bug("activation", "h.clamp(min=0) + self.slope * h.clamp(max=0)", "self.slope * h.clamp(min=0) + h.clamp(max=0)"),
    "last row of the batch corrupted": Bug("batch rows", "return (h @ self.t2 + self.d2).sigmoid()", "return (h.index_fill(0, torch.tensor(5), 0.0) @ self.t2 + self.d2).sigmoid()"),
    "rounded to half precision": Bug("dtype", "h = y @ self.t1 + self.d1", "h = (y.bfloat16() @ self.t1.bfloat16()).float() + self.d1"),
    "momentum without dampening": Bug("optimizer", tensors=("",), optimizer=lambda b: torch.optim.SGD(b.parameters(), 0.1, momentum=0.9, dampening=0.5)),
    "rate of the tables": Bug("optimizer", tensors=("table",), optimizer=lambda b: torch.optim.SGD([{"params": [b.table], "lr": 0.05}, {"params": [p for n, p in b.named_parameters() if n != "table"]}], 0.1, momentum=0.9)),
    "loss averaged twice": Bug("loss reduction", tensors=("",), loss=lambda out: out.square().mean() / len(out)),
}
# fmt: on


def optimizer(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def loss(out):
    return out.square().mean()
