"""Recordings to look at, checked for soundness, and a model for when any will do."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from torcheer.history import ModelHistory


def recorded(model: Any, *args: Any, **kwargs: Any) -> ModelHistory:
    history = tl.log_forward_pass(model, *args, layers_to_save=None, **kwargs)
    check_record(history.record)
    return history


def layers(history: ModelHistory) -> dict[str, int]:
    """Label of each layer and how many passes it has, inputs and outputs left out."""
    found = {layer.label: len(layer.ops) for layer in history.record.layers}
    return {label: count for label, count in found.items() if not label.startswith(("input", "output"))}


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
