"""``layers_to_save``: what the user asked for, checked before the model runs and decided while it runs.

A key may name a module (``"features.6"``), a layer (``"conv2d_3_7"``, ``"conv2d_3"``, with or without a pass)
or a position (``7``, ``-17``). Labels are only final when the run is over, because a later op may turn out to
be another pass of an earlier layer; so while it runs everything is kept that may turn out to be meant.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.function import Function

from torcheer.capture.asked import LayersToSave, OpPreview, Predicate
from torcheer.capture.torch.names import function_name, short_name
from torcheer.capture.torch.private import all_operator_names
from torcheer.capture.torch.tape import Tape
from torcheer.errors import CaptureError, LookupKeyError, near_misses

Tensor = torch.Tensor
_LABEL = re.compile(r"^([a-z][a-z0-9]*?)_(\d+)(?:_(\d+))?(?::(\d+))?$")
_ADDRESS = re.compile(r"^(.*?)(?::(\d+))?$")


class Everything:
    """``layers_to_save="all"``."""

    def wants(self, _func: Any, _tensor: Tensor, _tape: Tape) -> bool:
        """Every result is kept."""
        return True


class Matching:
    """``layers_to_save=predicate``."""

    def __init__(self, predicate: Predicate, addresses: dict[int, str]) -> None:
        self.predicate = predicate
        self.addresses = addresses

    def wants(self, func: Any, tensor: Tensor, tape: Tape) -> bool:
        """Ask the user's predicate."""
        function = function_name(func)
        module = tape.present_module()
        preview = OpPreview(
            short_name(function),
            function,
            self.addresses.get(id(module), ""),
            type(module).__name__,
            tuple(tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
            tape.num_ops,
        )
        return bool(self.predicate(preview))


class Keys:
    """``layers_to_save=[...]``: the checked keys of a list."""

    def __init__(self, keys: list[str | int], addresses: dict[str, int]) -> None:
        self.keys = keys
        self.modules: set[int] = set()  # id() of modules whose outputs are asked for
        self.least: dict[str, int] = {}  # layer name → lowest number asked for
        self.positions: set[int] = set()
        self.from_end = 0  # how many operations before the end, at most
        self._seen: dict[str, int] = {}
        for key in keys:
            self._add(key, addresses)

    def _add(self, key: str | int, addresses: dict[str, int]) -> None:
        if isinstance(key, int):
            if key >= 0:
                self.positions.add(key)
            else:
                self.from_end = max(self.from_end, -key)
            return
        address = _ADDRESS.match(key)
        if address is not None and address[1] in addresses:
            self.modules.add(addresses[address[1]])
            return
        label = _LABEL.match(key)
        if label is None or not _is_op_name(label[1]):
            if _is_op_name(key):
                raise LookupKeyError(
                    f"layers_to_save: {key!r} is the name of many layers. Say which one, such as '{key}_1', "
                    f"or keep them all with layers_to_save=lambda op: op.name == {key!r}."
                )
            names = list(addresses) if label is None else [*addresses, *_label_names(key)]
            raise LookupKeyError(
                f"layers_to_save: {key!r} names no module of the model and no layer.{near_misses(key, names)} "
                "A key is a module address ('features.6'), a layer label ('conv2d_3', 'conv2d_3_7:1') "
                "or a position (7, -1); a run with layers_to_save=None lists them all."
            )
        self.least[label[1]] = min(self.least.get(label[1], 1 << 62), int(label[2]))

    def wants(self, func: Any, _tensor: Tensor, tape: Tape) -> bool:
        """May this op turn out to be one that was asked for?"""
        if self.from_end or tape.num_ops in self.positions:
            return True
        name = short_name(function_name(func))
        if name in self.least:
            seen = self._seen[name] = self._seen.get(name, 0) + 1
            return seen >= self.least[name]
        return False


def parse(layers: LayersToSave, model: Any) -> Everything | Matching | Keys | None:
    """Check ``layers_to_save`` against the model. None: nothing is to be kept."""
    if layers is None or (isinstance(layers, str) and layers == "none"):
        return None
    if isinstance(layers, str) and layers == "all":
        return Everything()
    addresses = module_addresses(model)
    if callable(layers):
        return Matching(layers, {module: address for address, module in addresses.items()})
    if isinstance(layers, (str, int)) and not isinstance(layers, bool):
        layers = [layers]
    if isinstance(layers, bool) or not isinstance(layers, Iterable):
        raise CaptureError(
            f"layers_to_save is {layers!r}. It takes 'all', 'none', None, a list of keys such as "
            "['conv2d_3', 'features.6', -1], or a function that takes an op and returns True to keep it."
        )
    keys: list[str | int] = []
    for key in layers:
        if isinstance(key, bool) or not (isinstance(key, str) or hasattr(key, "__index__")):
            raise CaptureError(
                f"layers_to_save: {key!r} is a {type(key).__name__}. Keys are module addresses, layer labels "
                "or positions, such as 'features.6', 'conv2d_3' or -1."
            )
        keys.append(key if isinstance(key, str) else int(key))
    return Keys(keys, addresses) if keys else None


def module_addresses(model: Any) -> dict[str, int]:
    """Address → id() of every module below the model."""
    if not isinstance(model, torch.nn.Module):
        return {}
    named = model.named_modules(remove_duplicate=False)
    return {address: id(module) for address, module in named if address}


def _is_op_name(name: str) -> bool:
    return name in {"input", "output"} or name in _op_names() or name in _custom_names()


def _label_names(key: str) -> list[str]:
    rest = key[key.index("_") :] if "_" in key else ""
    return [name + rest for name in sorted(_op_names() | {"input", "output"})]


@functools.cache
def _op_names() -> frozenset[str]:
    """Short names of everything PyTorch calls an op."""
    names: set[str] = set()
    spaces = (
        torch,
        torch.Tensor,
        torch.nn.functional,
        torch.fft,
        torch.linalg,
        torch.special,
        torch.ops.aten,
    )
    for space in spaces:
        names.update(short_name(f"torch.{name}") for name in dir(space))
    return frozenset(names)


def _custom_names() -> set[str]:
    """Short names of the user's autograd functions and operators, as they are now."""
    names: set[str] = set()
    pending: list[type] = [Function]
    while pending:
        kind = pending.pop()
        names.add(short_name(kind.__name__))
        pending.extend(kind.__subclasses__())
    for operator in all_operator_names():
        names.add(short_name(operator.split("::")[-1].split(".")[0]))
    return names
