"""Networks on graphs, sets, points and tables, and those that act: written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from tests.zoo.specimen import Built, quick


class GCN(nn.Module):
    """A sparse adjacency matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.relu(torch.sparse.mm(adjacency, self.first(x)))
        return torch.sparse.mm(adjacency, self.second(x)).log_softmax(1)


class GAT(nn.Module):
    """Softmax over the edges of each node, by scattering."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.score = nn.Linear(4, 8, bias=False), nn.Linear(16, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.project(x)
        scores = F.leaky_relu(self.score(torch.cat([x[source], x[target]], 1)), 0.2)[:, 0]
        top = torch.full((len(x),), -torch.inf).scatter_reduce(0, target, scores, "amax")
        weights = (scores - top[target]).exp()
        total = torch.zeros(len(x)).index_add(0, target, weights)
        weights = weights / total[target]
        return torch.zeros_like(x).index_add(0, target, weights[:, None] * x[source])


class GraphSAGE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.near = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        total = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 4), x[source])
        count = torch.bincount(target, minlength=len(x)).clamp(min=1)[:, None]
        return F.normalize(self.own(x) + self.near(total / count))


class MessagePassing(nn.Module):
    """Gated messages for some rounds, then a readout per graph (MPNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update, self.read = nn.Linear(10, 4), nn.GRUCell(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor, edges: Tensor, bonds: Tensor, graph: Tensor) -> Tensor:
        source, target = edges
        for _ in range(3):
            messages = self.message(torch.cat([x[source], x[target], bonds], 1)).relu()
            x = self.update(torch.zeros_like(x).index_add_(0, target, messages), x)
        return self.read(torch.zeros(2, 4).index_add_(0, graph, x))


class EquivariantGNN(nn.Module):
    """Moves the points themselves (EGNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.move, self.node = nn.Linear(9, 8), nn.Linear(8, 1), nn.Linear(12, 4)

    def forward(self, x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        between = points[:, None] - points[None]
        pairs = torch.cat([x[:, None].expand(-1, len(x), -1), x[None].expand(len(x), -1, -1),
                           between.pow(2).sum(-1, keepdim=True)], -1)  # fmt: skip
        messages = F.silu(self.edge(pairs))
        points = points + (between * self.move(messages)).mean(1)
        return self.node(torch.cat([x, messages.sum(1)], 1)), points


class DeepSets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 8), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        each = F.relu(self.inner(x))
        return self.outer(torch.cat([each.sum(1), each.amax(1), each.std(1)], 1))


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Linear(3, 9)
        self.body, self.head = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 4)

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turn(points.mean(1)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.body(torch.bmm(points, turn).mT).max(2).values)


class DynamicGraph(nn.Module):
    """Neighbours are found anew from the features (DGCNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Linear(6, 8)

    def forward(self, points: Tensor) -> Tensor:
        near = torch.cdist(points, points).topk(3, largest=False).indices
        around = points[torch.arange(len(points))[:, None, None], near]
        own = points[:, :, None].expand_as(around)
        return F.leaky_relu(self.edge(torch.cat([own, around - own], -1))).amax(2)


class SpectralGraph(nn.Module):
    """Filters in the eigenbasis of the Laplacian."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.head = nn.Parameter(torch.rand(6)), nn.Linear(4, 2)

    def forward(self, x: Tensor, laplacian: Tensor) -> Tensor:
        _, basis = torch.linalg.eigh(laplacian)
        return self.head(basis @ (self.filter[:, None] * (basis.mT @ x)))


class DeepFM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.offsets = (0, 10, 20)
        self.embed, self.linear = nn.Embedding(30, 4, sparse=False), nn.EmbeddingBag(30, 1, mode="sum")
        self.deep = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))

    def forward(self, fields: Tensor) -> Tensor:
        ids = fields + torch.tensor(self.offsets)
        x = self.embed(ids)
        pairs = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(ids) + pairs + self.deep(x.flatten(1)))[:, 0]


class TabularAttention(nn.Module):
    """Sparse feature masks in steps (TabNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mask, self.step = nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 4)

    @staticmethod
    def sparsemax(x: Tensor) -> Tensor:
        ordered, _ = x.sort(1, descending=True)
        sums = ordered.cumsum(1) - 1
        ranks = torch.arange(1, x.shape[1] + 1)
        size = (ordered * ranks > sums).sum(1, keepdim=True)
        return (x - sums.gather(1, size - 1) / size).clamp(min=0)

    def forward(self, x: Tensor) -> Tensor:
        x, prior, out = self.norm(x), torch.ones(()), 0
        for _ in range(2):
            mask = self.sparsemax(self.mask(x) * prior)
            prior = prior * (1.5 - mask)
            out = out + F.relu(self.step(mask * x))
        return out


class KolmogorovArnold(nn.Module):
    """Splines on the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.randn(3, 2, 8) * 0.1)
        self.register_buffer("knots", torch.linspace(-2, 2, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = x[..., None]
        basis = ((x >= self.knots[:-1]) & (x < self.knots[1:])).to(x.dtype)
        for order in range(1, 4):
            left = (x - self.knots[: -order - 1]) / (self.knots[order:-1] - self.knots[: -order - 1])
            right = (self.knots[order + 1 :] - x) / (self.knots[order + 1 :] - self.knots[1:-order])
            basis = left * basis[..., :-1] + right * basis[..., 1:]
        return torch.einsum("bik,oik->bo", basis, self.coefficients)


class DuelingDQN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.value, self.advantage = nn.Linear(4, 16), nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.body(state))
        advantage = self.advantage(hidden)
        values = self.value(hidden) + advantage - advantage.mean(1, keepdim=True)
        return values, values.argmax(1)


class ActorCritic(nn.Module):
    """Samples an action from a distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden = torch.tanh(self.body(state))
        policy = Categorical(logits=self.actor(hidden))
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), self.critic(hidden)[:, 0]


class SoftActor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.body(state).chunk(2, 1)
        policy = Normal(mean, spread.clamp(-5, 2).exp())
        raw = policy.rsample()
        action = torch.tanh(raw)
        return action, (policy.log_prob(raw) - torch.log1p(-action.pow(2) + 1e-6)).sum(1)


class WorldModel(nn.Module):
    """Imagines some steps, with discrete states and straight-through gradients (Dreamer)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.prior, self.act, self.reward = (
            nn.GRUCell(9, 8),
            nn.Linear(8, 6),
            nn.Linear(8, 3),
            nn.Linear(8, 1),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        rewards = []
        for _ in range(3):
            state = F.gumbel_softmax(self.prior(hidden), hard=True)
            hidden = self.cell(torch.cat([state, self.act(hidden)], 1), hidden)
            rewards.append(self.reward(hidden))
        return torch.cat(rewards, 1)


class TreeSearch(nn.Module):
    """Recursion whose depth and branches depend on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 2)

    def visit(self, x: Tensor, depth: int) -> Tensor:
        left, right = self.net(x).tanh().unbind(-1)
        if depth == 0:
            return left
        return torch.maximum(self.visit(x + left, depth - 1), right) if bool(left > right) else right + left

    def forward(self, x: Tensor) -> Tensor:
        return self.visit(x, 3)


class PhysicsInformed(nn.Module):
    """The residual of a differential equation: second derivatives inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        def solution(point: Tensor) -> Tensor:
            return self.net(point)[0]

        hessians = torch.func.vmap(torch.func.hessian(solution))(x)
        return hessians.diagonal(dim1=1, dim2=2).sum(1)


class HyperNetwork(nn.Module):
    """One network writes the weights of another."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.target = nn.Linear(2, 15), nn.Linear(4, 3)

    def forward(self, task: Tensor, x: Tensor) -> Tensor:
        made = self.body(task)
        weights = {"weight": made[:12].view(3, 4), "bias": made[12:]}
        return torch.func.functional_call(self.target, weights, (x,))


class MAML(nn.Module):
    """An inner step of gradient descent inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        params = dict(self.net.named_parameters())
        with torch.enable_grad():
            loss = F.mse_loss(torch.func.functional_call(self.net, params, (support,)), labels)
            steps = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        moved = {name: param - 0.1 * step for (name, param), step in zip(params.items(), steps, strict=True)}
        return torch.func.functional_call(self.net, moved, (query,))


_EDGES = ((0, 1, 2, 3, 4, 5, 0, 2), (1, 2, 3, 4, 5, 0, 3, 5))


def _graph(model: type[nn.Module]) -> Built:
    return model(), {"x": torch.randn(6, 4), "edges": torch.tensor(_EDGES)}


def _sparse_graph() -> Built:
    adjacency = torch.sparse_coo_tensor(torch.tensor(_EDGES), torch.ones(8), (6, 6), check_invariants=True).coalesce()
    return GCN(), {"x": torch.randn(6, 4), "adjacency": adjacency}


def _molecules() -> Built:
    model, inputs = _graph(MessagePassing)
    return model, {**inputs, "bonds": torch.randn(8, 2), "graph": torch.tensor([0, 0, 0, 1, 1, 1])}


def _laplacian() -> Built:
    weights = torch.rand(6, 6)
    weights = weights + weights.mT
    return SpectralGraph(), {"x": torch.randn(6, 4), "laplacian": torch.diag(weights.sum(1)) - weights}


SPECIMENS = [
    *quick(
        "graph",
        GCN=_sparse_graph,
        GAT=lambda: _graph(GAT),
        GraphSAGE=lambda: _graph(GraphSAGE),
        MessagePassing=_molecules,
        EquivariantGNN=lambda: (EquivariantGNN(), {"x": torch.randn(5, 4), "points": torch.randn(5, 3)}),
        SpectralGraph=_laplacian,
        DynamicGraph=lambda: (DynamicGraph(), {"points": torch.randn(2, 7, 3)}),
        PointNet=lambda: (PointNet(), {"points": torch.randn(2, 9, 3)}),
        DeepSets=lambda: (DeepSets(), {"x": torch.randn(2, 5, 3)}),
    ),
    *quick(
        "table",
        DeepFM=lambda: (DeepFM(), {"fields": torch.randint(0, 10, (4, 3))}),
        TabularAttention=lambda: (TabularAttention(), {"x": torch.randn(5, 6)}),
        KolmogorovArnold=lambda: (KolmogorovArnold(), {"x": torch.rand(4, 2)}),
    ),
    *quick(
        "acting",
        DuelingDQN=lambda: (DuelingDQN(), {"state": torch.randn(5, 4)}),
        ActorCritic=lambda: (ActorCritic(), {"state": torch.randn(5, 4)}),
        SoftActor=lambda: (SoftActor(), {"state": torch.randn(5, 4)}),
        WorldModel=lambda: (WorldModel(), {"hidden": torch.randn(2, 8)}),
        TreeSearch=lambda: (TreeSearch(), {"x": torch.randn(3)}),
    ),
    *quick(
        "meta",
        PhysicsInformed=lambda: (PhysicsInformed(), {"x": torch.rand(4, 2)}),
        HyperNetwork=lambda: (HyperNetwork(), {"task": torch.randn(2), "x": torch.randn(5, 4)}),
        MAML=lambda: (MAML(), {"support": torch.randn(4, 3), "labels": torch.randn(4, 1), "query": torch.randn(2, 3)}),
    ),
]
