"""Equal initialisation: weights drawn from seeds that follow from what a layer is, not from where it stands.

The seed of a tensor is the hash of its layer's kind and attributes, of its name, and of how many equal layers came
before it. So two models with the same layers get the same weights whatever they call them, and two equal layers of one
model get different ones, which makes swapping or reusing a layer visible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.forms import COUNTERS, MEANS, VARIANCES, form_of
from torcheer.diff.param_map import ParamMap, join
from torcheer.diff.side import Leaf, Side, Weights


def seeded_weights(leaves: Sequence[Leaf], weights: Weights, seed: int = 0) -> dict[str, Array]:
    """Parameters and running statistics for every layer, of the shape and dtype of the given ones.

    Other buffers are left out: a mask or a table of positions is part of how a model is written.
    """
    seen: dict[str, int] = {}
    drawn: dict[str, Array] = {}
    for leaf in leaves:
        kind = form_of("", leaf).kind
        identity = f"{kind}{sorted((k, repr(v)) for k, v in leaf.attributes.items())}{sorted(leaf.tensors.items())}"
        count = seen[identity] = seen.get(identity, -1) + 1
        for name in leaf.tensors:
            address = join(leaf.address, name)
            given = weights.get(address)
            if given is not None and name in COUNTERS:
                drawn[address] = np.zeros_like(given)
            if given is None or given.dtype.kind not in "fc" or name in leaf.constants:
                continue
            digest = hashlib.sha256(f"{seed}/{identity}/{count}/{name}".encode()).digest()
            source = np.random.default_rng(int.from_bytes(digest[:8], "little"))
            drawn[address] = _draw(source, name, given).astype(given.dtype)
    return drawn


def carried_weights(found: ParamMap, side_a: Side, side_b: Side, seed: int = 0) -> None:
    """Give A such weights, and B the same, by the map. Each keeps its own constants."""
    leaves_a, leaves_b = side_a.leaves(), side_b.leaves()
    side_a.set_weights(seeded_weights(leaves_a, side_a.weights(), seed))
    weights_a, weights_b = side_a.weights(), side_b.weights()
    constants = {join(leaf.address, name) for leaf in leaves_a for name in leaf.constants}
    pairs = [pair for pair in found.pairs if not constants.intersection(pair.sources)]
    shapes = {name: array.shape for name, array in weights_b.items()}
    counters = {join(leaf.address, name) for leaf in leaves_b for name in leaf.tensors if name in COUNTERS}
    zeros = {name: np.zeros_like(weights_b[name]) for name in counters if name in weights_b}
    side_b.set_weights({**ParamMap(pairs).convert(weights_a, shapes), **zeros})


def _draw(source: np.random.Generator, name: str, given: Array) -> Array:
    """Numbers of the size that keeps activations alive: a variance is positive, a norm's scale is about one."""
    if name in VARIANCES:
        return source.uniform(0.5, 1.5, given.shape)
    if name in MEANS:
        return 0.1 * source.standard_normal(given.shape)
    normal = source.standard_normal(given.shape)
    if given.ndim < 2:
        return 1 + 0.1 * normal if "weight" in name and given.ndim == 1 else 0.1 * normal
    fan = max(1, given.size // given.shape[0])
    return np.asarray(normal / np.sqrt(fan))
