"""What ``layers_to_save`` may ask for, whichever framework runs: what a predicate is told, what a key names.

Labels are final only when the run is over, so keys are looked up in the finished record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torcheer.errors import LookupKeyError, near_misses
from torcheer.record.model import Record


@dataclass(frozen=True)
class OpPreview:
    """What a predicate is told of an op whose result may be kept."""

    name: str  # "conv2d"
    function: str  # "torch.conv2d"
    module: str  # address of the module it runs in
    module_type: str
    shape: tuple[int, ...]
    dtype: str
    position: int  # how many operations came before it, inputs included


Predicate = Callable[[OpPreview], bool]
LayersToSave = str | None | int | Iterable[str | int] | Predicate


def asked_values(record: Record, keys: Iterable[str | int]) -> set[int]:
    """Values that the keys name, now that the labels are final. Raises for a key that names nothing."""
    listed = [op for op in record.ops if op.layer >= 0]
    layers: dict[str, list[int]] = {}
    for layer in record.layers:
        for label in (layer.label, f"{layer.name}_{layer.number}"):
            layers[label] = list(layer.ops)
            layers.update({f"{label}:{count}": [op] for count, op in enumerate(layer.ops, 1)})
    calls: dict[str, list[int]] = {}
    for call in record.calls:
        for address in (record.modules[call.module].address, *record.modules[call.module].aliases):
            values = [item.value for item in call.outputs]
            calls.setdefault(address, []).extend(values)
            calls[f"{address}:{call.call_index}"] = values
    asked: set[int] = set()
    for key in keys:
        if isinstance(key, int):
            if not -len(listed) <= key < len(listed):
                raise LookupKeyError(
                    f"layers_to_save: {key} is no position of this run, which has {len(listed)} operations. "
                    f"Give one from {-len(listed)} to {len(listed) - 1}."
                )
            asked.update(item.value for item in listed[key].outputs)
        elif key in layers:
            asked.update(item.value for op in layers[key] for item in record.ops[op].outputs)
        elif key in calls:
            asked.update(calls[key])
        else:
            raise LookupKeyError(
                f"layers_to_save: the model ran, and {key!r} names nothing in the run."
                f"{near_misses(key, [*layers, *calls])} Look at the error's model_history, which lists every layer."
            )
    return asked
