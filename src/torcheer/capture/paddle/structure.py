"""A Paddle model as it stands: its layers, parameters and buffers, called or not."""

from __future__ import annotations

from typing import Any

import paddle

from torcheer.capture.paddle.private import has_contents
from torcheer.capture.paddle.tensors import Origin, device_name, dtype_name
from torcheer.record.model import Module, Param, Record, Run

_PLAIN = (bool, int, float, str, type(None))
# What every layer has and nobody asked for.
_BOOKKEEPING = frozenset(
    "training _full_name _built _dtype _init_in_dynamic_mode _cast_to_low_precision _helper _op_recorder name "
    "_loaddict_holder".split()
)
# Paddle keeps running statistics as parameters that are not trained; they are what others call buffers.
_STATISTICS = frozenset({"_mean", "_variance"})


class Structure:
    """Layers and tensors of a model, found once and described as data."""

    def __init__(self, model: Any) -> None:
        self.modules: list[Module] = []
        self.params: list[Param] = []
        self.origins: dict[int, Origin] = {}  # id() of a tensor → which param it is
        self._places: dict[int, int] = {}  # id() of a layer → index into ``modules``
        self._layers: list[Any] = []  # in the order of ``modules``; that they are held keeps their ids their own
        self._tensors: list[Any] = []  # in the order of ``params``
        self._visit(model, "", None)

    def place_of(self, layer: Any) -> int:
        """Index of a layer; one that is not part of the model is added."""
        place = self._places.get(id(layer))
        if place is None:
            name = type(layer).__name__
            taken = sum(1 for module in self.modules if module.address.startswith(f"<{name}"))
            self._visit(layer, f"<{name}>" if not taken else f"<{name} {taken + 1}>", 0)
            place = self._places[id(layer)]
        return place

    def param_tensors(self) -> list[tuple[int, Any]]:
        """Every parameter and buffer with its index."""
        return list(enumerate(self._tensors))

    def refresh(self) -> None:
        """The run is over: say which mode the layers are in now."""
        for module, layer in zip(self.modules, self._layers, strict=True):
            module.training = bool(getattr(layer, "training", module.training))

    def _visit(self, layer: Any, address: str, parent: int | None) -> None:
        known = self._places.get(id(layer))
        if known is not None:
            self.modules[known].aliases += (address,)
            return
        place = self._places[id(layer)] = len(self.modules)
        self._layers.append(layer)
        module = _described(layer, address, parent)
        self.modules.append(module)
        if not isinstance(layer, paddle.nn.Layer):
            return
        prefix = f"{address}." if address else ""
        for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            if isinstance(tensor, paddle.Tensor):
                is_buffer = name in layer._buffers or (name in _STATISTICS and tensor.stop_gradient)
                module.params += (self._param(tensor, prefix + name, "buffer" if is_buffer else "param"),)
        for name, child in layer._sub_layers.items():
            if child is not None:
                self._visit(child, prefix + name, place)

    def _param(self, tensor: Any, address: str, kind: str) -> int:
        origin = self.origins.get(id(tensor))
        if origin is not None and origin.param is not None:
            self.params[origin.param].aliases += (address,)
            return origin.param
        index = len(self.params)
        self._tensors.append(tensor)
        self.origins[id(tensor)] = Origin(kind, index)
        is_known = has_contents(tensor)
        num = int(tensor.size) if is_known else None
        self.params.append(
            Param(
                address,
                kind,
                tuple(int(size) for size in tensor.shape),
                dtype_name(tensor),
                device_name(tensor),
                None if num is None else num * int(tensor.element_size()),
                num,
                not tensor.stop_gradient,
            )
        )
        return index


def structure_record(model: Any) -> Record:
    """A record of the model as it stands: layers and tensors, nothing run."""
    version = str(paddle.version.full_version)
    run = Run(type(model).__name__, framework="paddle", framework_version=version, measured=("structure",))
    structure = Structure(model)
    return Record(run, modules=structure.modules, params=structure.params)


def _described(layer: Any, address: str, parent: int | None) -> Module:
    kind = type(layer)
    if not isinstance(layer, paddle.nn.Layer):
        name = getattr(layer, "__qualname__", kind.__qualname__)
        home = getattr(layer, "__module__", kind.__module__)
        return Module(address, name.rsplit(".", 1)[-1], f"{home}.{name}", parent)
    return Module(
        address,
        kind.__name__,
        f"{kind.__module__}.{kind.__qualname__}",
        parent,
        extra=_extra(layer),
        training=bool(layer.training),
        attributes=_attributes(layer),
    )


def _attributes(layer: Any) -> dict[str, Any]:
    # Paddle's own layers keep what they were made with under names that begin with "_".
    is_paddles = type(layer).__module__.startswith("paddle.")
    return {
        name.removeprefix("_"): tuple(value) if isinstance(value, list) else value
        for name, value in vars(layer).items()
        if name not in _BOOKKEEPING and (is_paddles or not name.startswith("_")) and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return len(value) <= 16 and all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _extra(layer: Any) -> str:
    try:
        return str(layer.extra_repr())
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return ""  # the user's own code
