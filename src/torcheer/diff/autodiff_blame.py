"""Which layer is to blame for the first difference: the one that was given equal tensors and made different ones.

Where a layer's inputs differ already although every layer before it agrees, the difference comes from the code between
them, which is that of the layer around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torcheer.diff.arrays import Array
from torcheer.diff.autodiff_steps import StepPair
from torcheer.diff.numbers import Distance, Tolerance, distance
from torcheer.record.model import ModuleCall, Record

Arrays = tuple[Array, Array]


class Seen(NamedTuple):
    """The first pair of calls whose tensors differ, and who is to blame."""

    pair: StepPair
    arrays: tuple[Array | None, Array | None]  # None: one side has none
    distance: Distance | None  # None: the shapes differ, or one side has none
    blamed: tuple[str, str]  # addresses of the layers
    why: str


def first_in_forward(pairs: Sequence[StepPair], tolerance: Tolerance, suspects: Sequence[StepPair] = ()) -> Seen | None:
    """The first call whose outputs differ, in order of execution. ``suspects``: what ``replaced`` found."""
    for pair in pairs:
        found = _differing(pair.tensors("forward"), tolerance)
        if found is None:
            continue
        given = _differing(pair.inputs("forward"), tolerance)
        if pair.call_a.parent is not None and given is None:
            return Seen(pair, *found, pair.addresses, f"its inputs are equal and its outputs are not{_about(pair)}")
        for suspect in suspects:
            apart = _differing(suspect.tensors("forward"), tolerance)
            is_before = pair.call_a.parent is None or suspect.call_a.end_op <= pair.call_a.first_op
            if is_before and apart is not None and _differing(suspect.inputs("forward"), tolerance) is None:
                return Seen(suspect, *apart, suspect.addresses, "it is another kind of layer on each side")
        if pair.call_a.parent is None or given is None:
            return Seen(
                pair, *found, pair.addresses, "the layers inside agree: the code of the model after them differs"
            )
        around = _around(pair, tolerance)
        why = (
            f"the inputs of {_name(pair.addresses[0])} differ already, and every layer before it agrees: "
            "the code before its call differs"
        )
        return Seen(pair, *given, around, why)
    return None


def first_in_backward(pairs: Sequence[StepPair], tolerance: Tolerance, equal_grads: Mapping[str, bool]) -> Seen | None:
    """The first call whose gradients differ, in the order in which backward comes by.

    ``equal_grads``: by address of A's layer, whether the gradients of its parameters agree.
    """
    for pair in reversed(pairs):
        found = _differing(pair.tensors("backward"), tolerance)
        if found is not None:
            why = (
                f"the gradient of what {_name(pair.addresses[0])} returns differs, and every layer after it agrees: "
                "the code after its call differs"
            )
            return Seen(pair, *found, _around(pair, None), why)
        if pair.call_a.parent is None:
            continue
        agrees = equal_grads.get(pair.addresses[0])
        alone = pair.one_sided() if agrees is False else None
        if alone is not None:
            returned = f"what {_name(pair.addresses[0])} returns"
            why = f"only one side has a gradient of {returned}: the code after its call differs"
            return Seen(pair, alone, None, _around(pair, None), why)
        found = _differing(pair.inputs("backward"), tolerance)
        if agrees is False and found is None:
            outputs = pair.tensors("backward")
            if outputs:
                return Seen(pair, outputs[0], None, pair.addresses, "the gradients of its parameters differ")
        if found is not None:
            if agrees:
                why = f"the gradient of what {_name(pair.addresses[0])} is given differs, and not by its own doing"
                return Seen(pair, *found, _around(pair, None), why)
            return Seen(pair, *found, pair.addresses, "the gradients of its outputs are equal, of its inputs not")
    return None


def _differing(tensors: Sequence[Arrays], tolerance: Tolerance) -> tuple[Arrays, Distance | None] | None:
    for a, b in tensors:
        if a.shape != b.shape:
            return (a, b), None
        apart = distance(a, b, tolerance)
        if not apart.is_equal:
            return (a, b), apart
    return None


def _around(pair: StepPair, tolerance: Tolerance | None) -> tuple[str, str]:
    """Addresses of the innermost calls around a pair that were given equal inputs."""
    call_a, call_b = _parent(pair.run_a.record, pair.call_a), _parent(pair.run_b.record, pair.call_b)
    while call_a.parent is not None and call_b.parent is not None and tolerance is not None:
        outer = StepPair(pair.run_a, pair.run_b, call_a, call_b)
        if _differing(outer.inputs("forward"), tolerance) is None:
            break
        call_a, call_b = _parent(pair.run_a.record, call_a), _parent(pair.run_b.record, call_b)
    return StepPair(pair.run_a, pair.run_b, call_a, call_b).addresses


def _about(pair: StepPair) -> str:
    """What else is to be said of a layer that makes something else of equal inputs."""
    call, kind = pair.call_a, pair.types[0].lower()
    if "dropout" not in kind or not call.training:
        return ""
    return "; in training mode each side drops at random: put both in eval mode, or compare with p=0"


def _parent(record: Record, call: ModuleCall) -> ModuleCall:
    return record.calls[call.parent] if call.parent is not None else call


def _name(address: str) -> str:
    return f"`{address}`" if address else "the model"
