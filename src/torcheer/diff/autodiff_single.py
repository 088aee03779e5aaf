"""Layer by layer: each layer of the second model is given what its counterpart in the first was given.

No difference travels from one layer to the next, so every layer that differs by itself is found, and the first is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.autodiff_blame import Seen
from torcheer.diff.autodiff_steps import StepPair
from torcheer.diff.numbers import Tolerance, distance
from torcheer.diff.side import Side
from torcheer.record.payload import is_kept

_SHOWN = 8  # layers named in a note


def single_steps(pairs: Sequence[StepPair], side_b: Side, tolerance: Tolerance) -> tuple[Seen | None, list[str]]:
    """The first layer that differs on equal inputs, and notes: all others that do, and what could not be run."""
    found: list[Seen] = []
    skipped: list[str] = []
    for pair in pairs:
        if pair.call_a.parent is None:
            continue
        inputs = _positional(pair)
        expected = pair.outputs_of_a()
        if inputs is None or not expected:
            skipped.append(pair.addresses[1])
            continue
        for a, b in zip(expected, side_b.run_layer(pair.addresses[1], inputs), strict=False):
            apart = distance(a, b, tolerance) if a.shape == b.shape else None
            if apart is None or not apart.is_equal:
                found.append(Seen(pair, (a, b), apart, pair.addresses, "it was given equal inputs by itself"))
                break
    notes = []
    if len(found) > 1:
        notes.append(f"by themselves differ too: {_listed([seen.blamed[1] for seen in found[1:]])}")
    if skipped:
        notes.append(f"not run by themselves, for their inputs are more than tensors in order: {_listed(skipped)}")
    return (found[0] if found else None), notes


def _positional(pair: StepPair) -> list[Array] | None:
    record, payloads = pair.run_a
    arrays = []
    for place, item in enumerate(pair.call_a.inputs):
        name = record.saved.get(item.value)
        if item.path != str(place) or name is None or not is_kept(payloads, name):
            return None
        arrays.append(as_array(payloads[name]))
    return arrays or None


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:_SHOWN]) + (f" and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else "")
