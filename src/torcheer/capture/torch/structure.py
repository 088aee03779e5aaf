"""The model as it stands: its modules, parameters and buffers, called or not.

A snapshot of which modules and tensors there are is taken when the run ends; it is described when the
record is first read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Module, Param

_PLAIN = (bool, int, float, str, type(None))


@dataclass
class Structure:
    """Modules and tensors of a model, found once."""

    model: Any
    modules: list[tuple[int, str, Any]] = field(default_factory=list)  # (parent, name, module), parents first
    tensors: list[tuple[int, str, str, Any]] = field(default_factory=list)  # (module, name, kind, tensor or None)
    positions: dict[int, int] = field(default_factory=dict)  # id(module) → position in ``modules``
    repeats: list[tuple[int, str, int]] = field(default_factory=list)  # (parent, name, position): other addresses

    def index_of(self, module: Any, described: list[Module]) -> int:
        """Position of a module; one that is not part of the model is added."""
        position = self.positions.get(id(module))
        if position is None:
            position = self.positions[id(module)] = len(self.modules)
            self.modules.append((-1, "", module))
            name = type(module).__name__
            taken = sum(1 for known in described if known.address.startswith(f"<{name}"))
            address = f"<{name}>" if not taken else f"<{name} {taken + 1}>"
            described.append(_module(module, address, 0))
        return position


def snapshot(model: Any) -> Structure:
    """Find every module and tensor of a model, each once. Part of every capture, so written to be quick."""
    structure = Structure(model)
    modules, positions, tensors = structure.modules, structure.positions, structure.tensors
    stack: list[tuple[int, str, Any]] = [(-1, "", model)]
    while stack:
        entry = parent, name, module = stack.pop()
        if module is None:
            continue
        known = positions.get(id(module))
        if known is not None:
            structure.repeats.append((parent, name, known))
            continue
        position = positions[id(module)] = len(modules)
        modules.append(entry)
        if not isinstance(module, torch.nn.Module):
            continue
        if module._parameters:
            tensors += [(position, key, "param", tensor) for key, tensor in module._parameters.items()]
        if module._buffers:
            tensors += [(position, key, "buffer", tensor) for key, tensor in module._buffers.items()]
        if module._modules:
            stack += [(position, key, child) for key, child in module._modules.items()][::-1]
    return structure


def own_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers with their addresses, each tensor once."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def describe_structure(structure: Structure, tape: Tape) -> tuple[list[Module], list[Param], dict[int, int]]:
    """Modules and params as data, and which tensor objects on the tape are which params."""
    addresses: list[str] = []
    modules: list[Module] = []
    same: dict[str, dict[str, Any]] = {}
    for parent, name, module in structure.modules:
        address = name if parent <= 0 else f"{addresses[parent]}.{name}"
        addresses.append(address)
        described = _module(module, address, parent if parent >= 0 else None)
        # Blocks of a network repeat: their modules have the same attributes.
        described.attributes = same.setdefault(repr(described.attributes), described.attributes)
        modules.append(described)
    for parent, name, position in structure.repeats:
        address = name if parent <= 0 else f"{addresses[parent]}.{name}"
        modules[position].aliases += (address,)
    params: list[Param] = []
    by_id: dict[int, int] = {}
    refs: dict[int, int] = {}
    for position, name, kind, tensor in structure.tensors:
        if not isinstance(tensor, torch.Tensor):
            continue  # registered as None
        address = f"{addresses[position]}.{name}" if addresses[position] else name
        index = by_id.get(id(tensor))
        if index is None:
            index = by_id[id(tensor)] = len(params)
            params.append(_param(tensor, address, kind))
            entry = tape.live.get(id(tensor))
            if entry is not None and entry[0]() is tensor:
                refs[entry[1]] = index
        else:
            params[index].aliases += (address,)
        modules[position].params += (index,)
    for ref, (module_id, name) in tape.gathered.items():
        held = structure.positions.get(module_id)
        if held is not None:
            for index in modules[held].params:
                if _names(params[index], addresses[held], name):
                    refs.setdefault(ref, index)
    return modules, params, refs


def _names(param: Param, address: str, name: str) -> bool:
    """Is this the module's param of that name?"""
    full = f"{address}.{name}" if address else name
    return full == param.address or full in param.aliases


def _module(module: Any, address: str, parent: int | None) -> Module:
    kind = type(module)
    if not isinstance(module, torch.nn.Module):
        name = getattr(module, "__qualname__", kind.__qualname__)
        return Module(
            address,
            name.rsplit(".", 1)[-1],
            f"{getattr(module, '__module__', kind.__module__)}.{name}",
            parent,
        )
    name = getattr(module, "original_name", None) or kind.__name__
    attributes = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and key != "training" and _is_plain(value)
    }
    return Module(
        address,
        str(name),
        sys.intern(f"{kind.__module__}.{kind.__qualname__}"),
        parent,
        extra=sys.intern(_extra(module)),
        training=bool(module.training),
        attributes=attributes,
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return len(value) <= 16 and all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _extra(module: torch.nn.Module) -> str:
    try:
        return str(module.extra_repr())
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # The user's own code, which may rely on attributes a wrapper took away.
        return ""


def _param(tensor: torch.Tensor, address: str, kind: str) -> Param:
    lazy = torch.nn.parameter.is_lazy(tensor)
    shape = () if lazy else tuple(int(size) for size in tensor.shape)
    num = None if lazy else int(tensor.numel())
    return Param(
        address,
        kind,
        shape,
        str(tensor.dtype).removeprefix("torch."),
        str(tensor.device),
        None if num is None else num * tensor.element_size(),
        num,
        bool(tensor.requires_grad),
    )
