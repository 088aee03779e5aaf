"""A model's modules as plain data, for the structure of a run."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.private import original_of


def modules_of(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Address, class, what ``extra_repr`` tells, and own parameters of each module."""
    return [
        {
            "address": address, "type": type(module).__name__, "parent": _parent(address),
            "extra": extra_of(module), "params": [_param(name, one) for name, one in _own(module)],
        }
        for address, module in original_of(model).named_modules()
    ]  # fmt: skip


def extra_of(module: torch.nn.Module) -> list[list[str]]:
    """``extra_repr`` as [key, value] pairs; the key is empty for values without a name."""
    pairs = []
    for part in split_at_commas(module.extra_repr()):
        key, equals, value = part.partition("=")
        named = bool(equals) and key.strip().isidentifier()
        pairs.append([key.strip(), value.strip()] if named else ["", part])
    return pairs


def split_at_commas(text: str) -> list[str]:
    """``"3, 4, size=(1, 2)"`` → ``["3", "4", "size=(1, 2)"]``: at commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _parent(address: str) -> str | None:
    if not address:
        return None
    return address.rpartition(".")[0]


def _own(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, one) for name, one in module._parameters.items() if one is not None]


def _param(name: str, parameter: torch.Tensor) -> dict[str, Any]:
    shape, dtype = [int(size) for size in parameter.shape], str(parameter.dtype).removeprefix("torch.")
    return {"name": name, "shape": shape, "dtype": dtype, "trained": parameter.requires_grad}
