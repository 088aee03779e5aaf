"""Gradients of tensors that the parameter map does not know, compared as bags of numbers.

A table that B keeps where A has three, a bias where A has two that are added: the numbers of one are those of the
others in another arrangement, and so are the numbers of their gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.comparison import DIVERGED, EQUAL, UNDETERMINED, TensorResult

_CLOSE = 1e-3  # of the root mean square of all of them
_MOST_TIMES = 4  # tensors that are added where the other side has one

Gradients = Mapping[str, "Array | None"]


def compare_unmapped(names_a: Sequence[str], names_b: Sequence[str], a: Gradients, b: Gradients) -> TensorResult | None:
    """Judge what is left of both sides' gradients together; None where one side has nothing left."""
    if not names_a or not names_b:
        return None
    # One that nothing is done with is no part of the bag.
    names_a, names_b = (_used(one, names) or names for one, names in ((a, names_a), (b, names_b)))
    result = TensorResult("gradient", ", ".join(names_b), list(names_a), 0, EQUAL, None)
    own, others = _numbers(b, names_b), _numbers(a, names_a)
    if not own.size and not others.size:
        result.reason = "nothing flows back to it on either side"
    elif not own.size or not others.size:
        result.verdict = DIVERGED
        side, other = ("B", f"A's {', '.join(names_a)}") if not own.size else ("A", "B's")
        result.reason = f"{side} has none: nothing flows back to it, as it does to {other}"
    elif _are_alike(own, others):
        result.reason = "it holds the numbers of A's in another arrangement"
    else:
        result.verdict = UNDETERMINED
        result.reason = (
            "no tensor of A has the numbers of this one, and its gradient has not those of the ones left in A"
        )
    return result


def _used(gradients: Gradients, names: Sequence[str]) -> list[str]:
    return [name for name in names if (one := gradients.get(name)) is not None and one.any()]


def _numbers(gradients: Gradients, names: Sequence[str]) -> Array:
    """All that are not zero, in order of size."""
    found = [one.ravel().astype(np.float64) for name in names if (one := gradients.get(name)) is not None]
    joined = np.concatenate([*found, np.zeros(0)])
    return np.sort(joined[joined != 0])


def _are_alike(one: Array, other: Array) -> bool:
    few, many = sorted((one, other), key=len)
    times, rest = divmod(len(many), len(few))
    if rest or times > _MOST_TIMES:
        return False
    apart = np.abs(np.repeat(few, times) - many)
    return bool(apart.max() <= _CLOSE * np.sqrt(np.mean(np.square(many))))
