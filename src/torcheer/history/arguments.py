"""The arguments of an op as a reader wants to see them: tensors by the label of the op that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torcheer.history.structure import Structure
from torcheer.record.model import Opaque, Ref


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments of an op."""

    value: int  # index into Record.values
    label: str  # label of the op that made it, or address of the param

    def __repr__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """An argument that is neither a tensor nor plain data; only its type is recorded."""

    type_name: str

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


def readable(structure: Structure, argument: Any) -> Any:
    """Return an argument with every tensor and object inside it replaced by something that prints."""
    if isinstance(argument, Ref):
        return TensorArgument(int(argument), structure.value_label(int(argument)))
    if isinstance(argument, Opaque):
        return ObjectArgument(argument.type_name)
    if type(argument) is tuple:
        return tuple(readable(structure, item) for item in argument)
    if type(argument) is list:
        return [readable(structure, item) for item in argument]
    if type(argument) is dict:
        return {key: readable(structure, item) for key, item in argument.items()}
    if isinstance(argument, slice):
        parts = (argument.start, argument.stop, argument.step)
        return slice(*(readable(structure, part) for part in parts))
    return argument
