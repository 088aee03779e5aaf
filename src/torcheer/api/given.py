"""What a command line gives a model: tensors out of shapes and files, and weights.

torch is imported when the first tensor is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.api.history import is_paddle

if TYPE_CHECKING:
    from torcheer.capture.torch.given import Maker


def maker(model: Any, seed: int) -> Maker:
    """What makes tensors for a model, on its device and of its framework."""
    if is_paddle(model):
        # Paddle is an extra.
        from torcheer.capture.paddle.given import PaddleMaker

        return PaddleMaker(model, seed)
    # torch takes seconds to import.
    from torcheer.capture.torch.given import Maker

    return Maker(model, seed)


def seed_all(seed: int) -> None:
    """Seed what draws random numbers, so that a model made afterwards is the same in every run."""
    # As above.
    from torcheer.capture.torch.given import seed_all

    seed_all(seed)


def load_weights(model: Any, path: Path) -> None:
    """Set the weights in a file into a model. Both must have the same names and shapes."""
    # As above.
    from torcheer.capture.torch.given import load_weights

    load_weights(model, path)


def loss_of(output: Any) -> Any:
    """One number to run backward from: the model's own loss, or the mean of what it returned."""
    if is_paddle(output):
        return output.mean()
    # As above.
    from torcheer.capture.torch.profiled import loss_of

    return loss_of(output, None)


__all__ = ["load_weights", "loss_of", "maker", "seed_all"]
