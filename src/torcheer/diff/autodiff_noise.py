"""Gradients that are zero in theory, as a key's bias under softmax, and rounding in practice.

An optimizer of Adam's kind divides by their size and so turns them into full steps in a random direction: weights that
differ there say nothing about the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from torcheer.diff.arrays import Array
from torcheer.diff.param_map import ParamPair

SHARE = 1e-6  # of the largest gradient of the model; single precision sums some dozen numbers more exactly than that

Gradients = Mapping[str, "Array | None"]


class NoiseFloor:
    """Which elements of B's parameters had nothing but noise for a gradient in any training step so far."""

    def __init__(self) -> None:
        self._noisy: dict[str, NDArray[np.bool_]] = {}  # by address in B

    def add(self, pairs: Sequence[ParamPair], gradients_a: Gradients, gradients_b: Gradients) -> None:
        """Look at the gradients of one step."""
        sizes = [float(np.abs(array).max()) for array in gradients_b.values() if array is not None and array.size]
        floor = SHARE * max(sizes, default=0.0)
        for pair in pairs:
            given = {name: array for name in pair.sources if (array := gradients_a.get(name)) is not None}
            other = gradients_b.get(pair.target)
            if other is None or len(given) < len(pair.sources):
                continue
            size = np.maximum(np.abs(pair.convert(given).reshape(other.shape)), np.abs(other))
            # Exactly zero is no noise: no optimizer moves by it.
            noisy = (size > 0) & (size <= floor)
            before = self._noisy.get(pair.target)
            self._noisy[pair.target] = noisy if before is None else before | noisy

    def without(self, target: str, expected: Array, other: Array) -> Array:
        """What is expected of a weight of B, with B's own numbers where only noise moved it."""
        noisy = self._noisy.get(target)
        return expected if noisy is None or not noisy.any() else np.where(noisy, other, expected)
