"""TorchLens, measured beside torcheer where it is installed (``pip install torchlens``).

TorchLens replaces PyTorch's functions when it first traces and leaves the replacements in place. They slow
down whatever runs later, so they are put in and taken out around each of its turns, outside the timed region:
neither plain PyTorch nor torcheer pays for them, and TorchLens does not pay for putting them in.
"""

from __future__ import annotations

from typing import Any

from measure import Task

try:
    import torchlens
    from torchlens.backends.torch.wrappers import unwrap_torch, wrap_torch
    from torchlens.options import CaptureOptions
except ImportError:
    torchlens = None

NAME = "torchlens"
MISSING = "not installed"


def is_installed() -> bool:
    return torchlens is not None


def version() -> str | None:
    return None if torchlens is None else str(torchlens.__version__)


def trace(model: Any, x: Any, saved: str = "none") -> Any:
    """Record a forward pass: metadata only, or with ``saved="all"`` every activation."""
    return torchlens.trace(model, x, capture=CaptureOptions(layers_to_save=saved))


def trace_backward(model: Any, x: Any) -> Any:
    """Record a forward pass of a model that returns its loss, and the backward pass, with all gradients."""
    record = torchlens.trace(model, x, capture=CaptureOptions(layers_to_save="all", save_grads=True))
    record.log_backward(record[record.output_layers[0]].out)
    return record


def num_ops(record: Any) -> int:
    return int(record.num_ops)


def task(run: Any, every: int, before: Any = None) -> Task:
    """A task with TorchLens's replacements in place while it runs."""

    def enter() -> None:
        wrap_torch()
        if before is not None:
            before()

    return Task(run, before=enter, after=unwrap_torch, every=every, num_warm_up=1)


def unwrap() -> None:
    """Take TorchLens's replacements out of PyTorch."""
    unwrap_torch()
