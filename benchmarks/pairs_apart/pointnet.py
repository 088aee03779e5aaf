"""PointNet: a learned turn of the cloud, the same layers for each point, the maximum over points, labels for each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .case import Bug

CLASSES, PARTS = 4, 5
TRAINS = False  # batch norms are folded into weights in B: its steps are others


class Turn(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.conv, self.bn1 = nn.Conv1d(k, 10, 1), nn.BatchNorm1d(10)
        self.fc1, self.bn2, self.fc2 = nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Linear(8, k * k)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv(x))).max(2)[0]
        x = self.fc2(F.relu(self.bn2(self.fc1(x))))
        return x.view(-1, self.k, self.k) + torch.eye(self.k)  # @a_eye


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.turn_features = Turn(3), Turn(6)
        self.conv1, self.bn1 = nn.Conv1d(3, 6, 1), nn.BatchNorm1d(6)
        self.conv2, self.bn2 = nn.Conv1d(6, 14, 1), nn.BatchNorm1d(14)
        self.fc1, self.bn3, self.fc2 = nn.Linear(14, 9), nn.BatchNorm1d(9), nn.Linear(9, CLASSES)
        self.seg1, self.bn4, self.seg2 = nn.Conv1d(20, 9, 1), nn.BatchNorm1d(9), nn.Conv1d(9, PARTS, 1)

    def forward(self, points):
        turn = self.turn(points)
        x = torch.bmm(points.transpose(2, 1), turn).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        turned = self.turn_features(x)
        local = torch.bmm(x.transpose(2, 1), turned).transpose(2, 1)
        whole = self.bn2(self.conv2(local)).max(2)[0]
        y = self.fc2(F.relu(self.bn3(self.fc1(whole))))
        both = torch.cat((whole[..., None].expand(-1, -1, points.shape[2]), local), 1)
        parts = self.seg2(F.relu(self.bn4(self.seg1(both))))
        off = turned @ turned.mT - torch.eye(6)
        penalty = off.square().sum((1, 2)).sqrt().mean()
        return {"class": F.log_softmax(y, 1), "parts": parts.log_softmax(1), "penalty": penalty}


class B(nn.Module):
    """Points before channels, batch norms folded into the layers before them."""

    def __init__(self):
        super().__init__()
        sizes = {
            "t1": (3, 10), "t2": (10, 8), "t3": (8, 9), "u1": (6, 10), "u2": (10, 8), "u3": (8, 36),
            "m1": (3, 6), "m2": (6, 14), "c1": (14, 9), "c2": (9, CLASSES), "s1": (20, 9), "s2": (9, PARTS),
        }  # fmt: skip
        for name, (given, made) in sizes.items():
            self.register_parameter(f"{name}_w", nn.Parameter(torch.empty(given, made)))
            self.register_parameter(f"{name}_b", nn.Parameter(torch.empty(made)))

    def dense(self, x, name):
        return x @ getattr(self, f"{name}_w") + getattr(self, f"{name}_b")  # @dense

    def turning(self, x, name, k):
        x = self.dense(x, f"{name}1").relu().amax(1)  # @top
        x = self.dense(x, f"{name}2").relu()  # @turn_hidden
        x = self.dense(x, f"{name}3").unflatten(-1, (k, k))  # @turn
        return x + torch.eye(k)  # @eye

    def forward(self, points):
        x = points.mT
        x = torch.einsum("bni,bij->bnj", x, self.turning(x, "t", 3))  # @turned
        x = self.dense(x, "m1").relu()  # @m1
        turn = self.turning(x, "u", 6)  # @features
        local = torch.einsum("bni,bij->bnj", x, turn)  # @local
        whole = self.dense(local, "m2").amax(1)  # @whole
        y = self.dense(F.relu(self.dense(whole, "c1")), "c2")  # @classes
        split = self.s1_w.split([14, 6])
        both = (whole @ split[0])[:, None] + local @ split[1] + self.s1_b  # @both
        parts = self.dense(both.relu(), "s2").mT  # @parts
        off = torch.einsum("bik,bjk->bij", turn, turn) - torch.eye(6)  # @off
        penalty = torch.linalg.matrix_norm(off).mean()  # @penalty
        return {
            "class": y - y.logsumexp(1, True),
            "parts": parts - parts.logsumexp(1, True),
            "penalty": penalty,
        }  # @result


def folded(layer, norm):
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight = layer.weight.flatten(1) * factor[:, None]
    return weight.T, (layer.bias - norm.running_mean) * factor + norm.bias


def transfer(a, b):
    pairs = {
        "t1": folded(a.turn.conv, a.turn.bn1), "t2": folded(a.turn.fc1, a.turn.bn2),
        "u1": folded(a.turn_features.conv, a.turn_features.bn1), "u2": folded(a.turn_features.fc1, a.turn_features.bn2),
        "m1": folded(a.conv1, a.bn1), "m2": folded(a.conv2, a.bn2), "c1": folded(a.fc1, a.bn3), "s1": folded(a.seg1, a.bn4),
    }  # fmt: skip
    for name, layer in (("t3", a.turn.fc2), ("u3", a.turn_features.fc2), ("c2", a.fc2), ("s2", a.seg2)):
        pairs[name] = layer.weight.flatten(1).T, layer.bias
    for name, (weight, offset) in pairs.items():
        getattr(b, f"{name}_w").copy_(weight)
        getattr(b, f"{name}_b").copy_(offset)


def inputs():
    return (torch.randn(3, 3, 11, generator=torch.Generator().manual_seed(13)),)


# fmt: off
BUGS = {
    "turn transposed": Bug("transposed", "local = torch.einsum(\"bni,bij->bnj\", x, turn)", "local = torch.einsum(\"bni,bji->bnj\", x, turn)"),
    "identity not added": Bug("missing step", "return x + torch.eye(k)  # @eye", "return x", "turned local off a_eye"),
    "maximum over channels": Bug("axis", "x = self.dense(x, f\"{name}1\").relu().amax(1)", "x = self.dense(x, f\"{name}1\").relu(); x = x.amax(2).mean(1, True) + 0 * x[:, 0]", "turn_hidden"),
    "mean for maximum": Bug("reduction", "whole = self.dense(local, \"m2\").amax(1)", "whole = self.dense(local, \"m2\").mean(1)"),
    "activation before the maximum": Bug("doubled step", "whole = self.dense(local, \"m2\").amax(1)", "whole = self.dense(local, \"m2\").relu().amax(1)"),
    "segmentation from features not turned": Bug("wrong tensor", "(whole @ split[0])[:, None] + local @ split[1]", "(whole @ split[0])[:, None] + x @ split[1]"),
    "whole cloud of another row": Bug("batch rows", "(whole @ split[0])[:, None] + local", "(whole.roll(1, 0) @ split[0])[:, None] + local"),
    "softmax over points": Bug("axis", "\"parts\": parts - parts.logsumexp(1, True)", "\"parts\": parts - parts.logsumexp(2, True)"),
    "parts flipped along the points": Bug("flipped", "parts = self.dense(both.relu(), \"s2\").mT", "parts = self.dense(both.relu(), \"s2\").mT.flip(2)"),
    "hidden layer without activation": Bug("activation", "F.relu(self.dense(whole, \"c1\"))", "self.dense(whole, \"c1\")"),
    "penalty squared": Bug("missing step", "torch.linalg.matrix_norm(off).mean()", "torch.linalg.matrix_norm(off).square().mean()"),
    "penalty by one norm over the batch": Bug("loss reduction", "torch.linalg.matrix_norm(off).mean()", "off.norm() / len(off)"),
    "logits by softmax only": Bug("activation", "\"class\": y - y.logsumexp(1, True)", "\"class\": y.softmax(1)"),
    "penalty does not train the turn": Bug("detach", "torch.einsum(\"bik,bjk->bij\", turn, turn) - torch.eye(6)", "torch.einsum(\"bik,bjk->bij\", turn, turn.detach()) - torch.eye(6)", tensors=("u3_w", "u3_b")),
}
# fmt: on
