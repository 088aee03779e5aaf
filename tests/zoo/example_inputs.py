"""Inputs for a model of transformers, found from what its forward takes and its config says."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from tests.zoo.tiny_configs import IMAGE_SIZE

Tensor = torch.Tensor


def ids(length: int = 12, *, first: int = 3, last: int = 90) -> Tensor:
    """Tokens that are none of the special ones."""
    return torch.randint(first, last, (1, length))


def image(size: int = IMAGE_SIZE, channels: int = 3) -> Tensor:
    return torch.randn(1, channels, size, size)


def video(frames: int = 4, size: int = IMAGE_SIZE) -> Tensor:
    return torch.randn(1, frames, 3, size, size)


def wave(length: int = 4000) -> Tensor:
    """Sound, as samples."""
    return torch.randn(1, length)


def spectrogram(bins: int = 16, frames: int = 64) -> Tensor:
    return torch.randn(1, bins, frames)


def ids_with(token: int, count: int, around: int = 3) -> Tensor:
    """Tokens with places for the features of an image between them."""
    return torch.cat([ids(around), torch.full((1, count), token), ids(around)], 1)


def inputs_for(model: torch.nn.Module) -> dict[str, Any]:
    """Tokens, an image, a sound or a spectrogram, as the model's forward asks for."""
    config: Any = model.config
    takes = inspect.signature(model.forward).parameters
    found: dict[str, Any] = {}
    if "input_ids" in takes:
        found["input_ids"] = ids()
    elif "input_values" in takes:
        found["input_values"] = wave()
    elif "input_features" in takes:
        bins = _first(config, "num_mel_bins", "input_feat_per_channel", "feature_size") or 16
        found["input_features"] = spectrogram(bins)
    if "pixel_values" in takes and ("input_ids" not in takes or _needs_image(model, takes)):
        eye = getattr(config, "vision_config", None) or config
        size = _first(eye, "image_size") or _first(config, "image_size") or 64
        size = size[0] if isinstance(size, (list, tuple)) else size
        channels = _first(eye, "num_channels", "in_channels")
        found["pixel_values"] = image(size, channels if isinstance(channels, int) else 3)
    if "decoder_input_ids" in takes:
        found["decoder_input_ids"] = ids(6)
    return found


def _needs_image(model: torch.nn.Module, takes: Any) -> bool:
    two_towers = ("CLIP", "Siglip", "Blip", "Vilt")
    return takes["pixel_values"].default is inspect.Parameter.empty or type(model).__name__.startswith(two_towers)


def _first(config: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)
