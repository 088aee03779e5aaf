"""TorchBug's demo: a network written again with two changes, of which one is a mistake.

The new model calls ReLU as a function where the target has a module, which changes nothing, and it has a ReLU where
the target has a PReLU, which does. The first six steps are TorchBug's; the last names the line.

python examples/torchbug_demo.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torcheer as tl


class Target(nn.Module):
    """The network to be written again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.conv3 = nn.Conv2d(6, 6, 3, padding=1)
        self.relu = nn.ReLU()
        self.prelu = nn.PReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2 = nn.Linear(6 * 7 * 7, 20), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.relu(self.conv2(x))
        x = self.pool(self.prelu(self.conv3(x)))
        return self.fc2(self.relu(self.fc1(x.flatten(1))))


class New(nn.Module):
    """The same network, or nearly."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.first = nn.Conv2d(6, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.activation = nn.ReLU()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 7 * 7, 20), nn.ReLU(), nn.Linear(20, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(self.stem(x)))
        x = self.activation(self.second(x))
        return self.head(F.max_pool2d(x, 2))


def heading(text: str) -> None:
    print(f"\n---- {text} {'-' * max(0, 94 - len(text))}\n")


def main() -> None:
    torch.manual_seed(0)
    target_model, new_model, images = Target(), New(), torch.rand(4, 3, 32, 32) - 0.5
    target, new = tl.ModelSummary(target_model, "Target Model"), tl.ModelSummary(new_model, "New Model")

    heading('1. Summary of a model: tl.ModelSummary(model, "Target Model").print()')
    target.print()

    heading("2. Leaf modules that are registered: target.compare(new)")
    target.compare(new).print()

    heading("3. Leaf modules that forward calls: target.compare_invoked(new, images)")
    target.compare_invoked(new, images).print()

    heading("4. Outputs, on equal weights: target.compare_outputs(new, images)")
    target.compare_outputs(new, images).print()

    heading("5. Outputs of all leaf modules: target.compare_module_outputs(new, images)")
    target.compare_module_outputs(new, images).print()

    heading("6. Outputs of marked modules: tl.mark, tl.mark_all, marked_only=True")
    tl.mark(new_model.second, "Second Convolution")
    tl.mark(new_model.head[1], "First Linear Layer")
    tl.mark(target_model.conv3, "Third Convolution")
    tl.mark_all(target_model)
    target.compare_module_outputs(new, images, marked_only=True).print()

    heading("7. Which line is wrong: tl.equal_weights, tl.compare(target_model, new_model, images)")
    tl.equal_weights(target_model, new_model)
    print(tl.compare(target_model, new_model, images))


if __name__ == "__main__":
    main()
