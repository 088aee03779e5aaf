"""Train a small network and watch it: histograms and statistics of every tensor, followed live in the browser.

python examples/watch.py [STEPS] [BACKEND]
"""

import sys
import time

import torch
from torch import nn

import torcheer as tl


class Net(nn.Module):
    """Two moons apart: in-place activations, a shared module, an attached tensor."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        hidden = self.act(self.fc1(x))
        hidden = tl.attach(self.fc2(hidden), self, "before the second activation")
        return self.fc3(self.act(hidden))


def moons(count):
    angle, label = torch.rand(count) * torch.pi, torch.randint(2, (count,))
    side = 1 - 2 * label
    x = torch.stack([torch.cos(angle) * side + label, torch.sin(angle) * side + label / 2], dim=1)
    return x + torch.randn(count, 2) / 10, label.float()


def main(steps=600, backend="standalone"):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with tl.watch(model, log_freq=10, backend=backend, nan="warn") as w:
        for _ in range(int(steps)):
            x, label = moons(256)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss, lr=optimizer.param_groups[0]["lr"])
            time.sleep(0.005)  # so that there is something to follow
    with w.open() as run:
        loss = run.scalars("loss").values
        print(f"loss: {loss[0]:.3f} → {loss[-1]:.3f}")
        for name in ("fc1/param_grad/weight", "fc3/param_grad/weight"):
            norm = run.rows(name)["norm"]
            print(f"{name}: norm {norm[0]:.4f} → {norm[-1]:.4f}")
        for alert in run.alerts():
            print(f"step {alert.step}: {alert.message}")
    print(f"Look again: torcheer open {w.folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
