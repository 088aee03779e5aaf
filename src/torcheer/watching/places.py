"""Where in the model a tensor is seen, and the number of the series that shows it there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torcheer.capture.arguments import parts_of
from torcheer.capture.torch.private import is_compiled, original_of
from torcheer.store.series import Series

Tensor = torch.Tensor
Module = torch.nn.Module
Register = Callable[[Series], int]

_RELU_LIKE = (torch.nn.ReLU, torch.nn.ReLU6)
_SATURATING = {torch.nn.Tanh: "tanh", torch.nn.Sigmoid: "sigmoid"}


class Side:
    """The inputs, the outputs or the attached tensors of one call of a module."""

    __slots__ = ("_make", "grads", "values")

    def __init__(self, make: Callable[[str, str, Tensor], int], kind: str) -> None:
        self.values = _Numbers(make, kind)
        self.grads = _Numbers(make, f"{kind}_grad")


class _Numbers(dict[Any, int]):
    """Path → series."""

    def __init__(self, make: Callable[[str, str, Tensor], int], kind: str) -> None:
        super().__init__()
        self._make, self._kind = make, kind

    def of(self, path: Any, tensor: Tensor) -> int:
        number = self.get(path)
        if number is None:
            number = self[path] = self._make(self._kind, str(path), tensor)
        return number


class CallPlace:
    """One call of a module within a forward: the 2nd call of ``relu``."""

    __slots__ = ("attached", "call", "inputs", "is_new", "module", "outputs")

    def __init__(self, module: str, call: int, make: Callable[[str, str, Tensor], int]) -> None:
        self.module, self.call, self.is_new = module, call, True
        self.inputs, self.outputs = Side(make, "input"), Side(make, "output")
        self.attached = Side(make, "attached")


@dataclass
class ModulePlace:
    """A module of the watched model."""

    address: str
    module: weakref.ref[Module]
    with_gradients: bool  # whether gradients of its inputs and outputs are wanted
    counts_dead: bool
    saturating: str | None
    calls: list[CallPlace] = field(default_factory=list)  # seen so far, in any forward
    num_calls: int = 0  # in this forward
    current: CallPlace | None = None  # the call that is running, innermost


class Places:
    """All places of one model in one lane."""

    def __init__(self, model_name: str, lane: str, register: Register, ignored: tuple[type, ...]) -> None:
        self._model_name, self._lane, self._register, self._ignored = model_name, lane, register, ignored
        self.modules: dict[int, ModulePlace] = {}
        self.is_compiled = False  # some module of the model is, in place
        self._foreign: set[int] = set()  # ids of modules that are called and are not the model's
        self._by_address: dict[str, ModulePlace] = {}
        self._params: dict[tuple[str, str, str], int] = {}

    def refresh_if_changed(self, model: Module) -> None:
        """Look at the model again if a module has come or gone."""
        now = [id(module) for module in original_of(model).modules()]
        if len(now) != len(self.modules) or any(number not in self.modules for number in now):
            self.refresh(model)

    def refresh(self, model: Module) -> None:
        """Look at the model as it stands now: modules may have come, gone or been replaced."""
        found = {}
        for address, module in original_of(model).named_modules():
            place = self._by_address.get(address)
            if place is None or place.module() is not module:
                place = self._by_address[address] = ModulePlace(
                    address, weakref.ref(module), not isinstance(module, self._ignored),
                    isinstance(module, _RELU_LIKE), _SATURATING.get(type(module)),
                    place.calls if place is not None else [],
                )  # fmt: skip
            found[id(module)] = place
        self.modules = found
        self.is_compiled = any(map(is_compiled, model.modules()))
        self._foreign.clear()

    def place_of(self, module: Module, model: Module) -> ModulePlace | None:
        """The place of a module that is called; None for one that is not the model's."""
        place = self.modules.get(id(module))
        if (place is None or place.module() is not module) and id(module) not in self._foreign:
            self.refresh(model)
            place = self.modules.get(id(module))
            if place is None:
                self._foreign.add(id(module))
        return place

    def begin_forward(self) -> None:
        """Calls are counted within one forward."""
        for place in self.modules.values():
            place.num_calls, place.current = 0, None

    def begin(self, place: ModulePlace) -> CallPlace:
        """The place of the call that begins now."""
        place.num_calls += 1
        if place.num_calls > len(place.calls):
            address, call = place.address, place.num_calls

            def make(kind: str, path: str, tensor: Tensor) -> int:
                return self._make(address, call, kind, path, tensor)

            place.calls.append(CallPlace(address, call, make))
        return place.calls[place.num_calls - 1]

    def params(self) -> Iterator[tuple[str, str, Tensor]]:
        """(module, name, parameter) of every module's own parameters; a shared one comes with each of its names."""
        for place in self.modules.values():
            module = place.module()
            for name, parameter in module._parameters.items() if module is not None else ():
                if parameter is not None:
                    yield place.address, name, parameter

    def of_param(self, kind: str, module: str, name: str, parameter: Tensor) -> int:
        key = (kind, module, name)
        number = self._params.get(key)
        if number is None:
            number = self._params[key] = self._make(module, 0, kind, name, parameter)
        return number

    def _make(self, module: str, call: int, kind: str, path: str, tensor: Tensor) -> int:
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(int(size) for size in tensor.shape)
        facts = Series(
            0, self._lane, self._model_name, module, call, kind, path, shape, dtype, str(tensor.device)
        )  # fmt: skip
        return self._register(facts)


def tensors_in(structure: Any, path: Any = 0) -> Iterator[tuple[Any, Tensor]]:
    """Tensors with their paths: a bare tensor is ``0``, the parts of a tuple ``0``, ``1``, of a dict its keys."""
    if isinstance(structure, Tensor):
        yield path, structure
    elif isinstance(structure, (tuple, list, Mapping)) or hasattr(structure, "__dataclass_fields__"):
        yield from _parts(structure, "", set())


def _parts(structure: Any, path: str, around: set[int]) -> Iterator[tuple[Any, Tensor]]:
    if isinstance(structure, Tensor):
        yield path, structure
        return
    if id(structure) in around:  # a structure that holds itself
        return
    inside = around | {id(structure)}
    for key, item in parts_of(structure):
        yield from _parts(item, f"{path}.{key}" if path else str(key), inside)
