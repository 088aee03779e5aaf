"""The tape: what happened during a run, in order, written as cheaply as possible.

While the model runs, an op costs a few tuple appends; turning the tape into a record (``finish.py``) waits
until the record is first read. Tensors are not kept alive: each tensor object seen gets a number (a ``Ref``),
its metadata is read once, and a weak reference tells whether an ``id()`` still means the same object.
"""

from __future__ import annotations

import enum
import sys
import weakref
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import torch

from torcheer.capture.arguments import parts_of
from torcheer.capture.torch.events import ValueRow
from torcheer.capture.torch.kinds import AtenKind, describe
from torcheer.capture.torch.private import (
    FRAMEWORK_CODES,
    no_function_mode,
    storage_id,
)
from torcheer.capture.torch.spread import is_spread, own_part, part_of
from torcheer.record.model import Opaque, Part, Ref, refs_in

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
_weak = weakref.ref

# Making a Ref takes four times as long as finding one.
_NUM_REFS = 4096
_REFS = tuple(map(Ref, range(_NUM_REFS)))

# Operators whose results PyTorch resolves before it hands them to most others.
_LAZY = frozenset({"aten._conj.default", "aten._neg_view.default", "aten._efficientzerotensor.default"})

# How a tensor object comes to the tape.
FRESH = 0  # an operator has just made it, in memory of its own
DERIVED = 1  # a call has just returned it; it may share memory with an argument
ARRIVED = 2  # it is used and was never seen being made
REREAD = 3  # it was seen, and an operator has changed its geometry

_NESTED = 2
_TENSOR = 1
_PLAIN = 0
_OTHER = 3
_KINDS: dict[type, int] = {
    Tensor: _TENSOR,
    torch.nn.Parameter: _TENSOR,
    tuple: _NESTED,
    list: _NESTED,
    dict: _NESTED,
    torch.Size: _PLAIN,
    slice: _NESTED,
    **dict.fromkeys((int, float, bool, str, complex, type(None), type(Ellipsis)), _PLAIN),
    **dict.fromkeys((torch.dtype, torch.device, torch.layout, torch.memory_format), _PLAIN),
}
_PLAIN_TYPES = frozenset(kind for kind, what in _KINDS.items() if what == _PLAIN)


def shared_ref(number: int) -> Ref:
    """The Ref of a number; the first few thousand are made once."""
    return _REFS[number] if number < _NUM_REFS else Ref(number)


class Tape:
    """Raw events of one run and the tensors they speak of."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.values: list[Any] = []
        self.live: dict[int, tuple[weakref.ref[Tensor], Ref]] = {}
        self.aten_kinds: dict[int, AtenKind] = {}  # by id() of the operator: hashing one is slow
        self.operators: list[Any] = []  # keeps the operators' ids their own
        self.sites: dict[tuple[int, ...], int] = {}
        self.codes: dict[int, CodeType] = {}
        self.op = -1
        self.call = -1
        self.start_ns = perf_counter_ns()
        self.now: Callable[[], int] = perf_counter_ns  # what the times of ops and module calls are read from
        self.host_now: Callable[[], int] = perf_counter_ns  # what the cost of writing them is read from
        self.call_costs: dict[int, int] | None = None  # event of a module call → ns that writing it took, if asked for
        self.stop_codes: set[int] = {id(code) for code in FRAMEWORK_CODES}
        self.unseen: list[Ref] = []  # tensors written down without being looked at; autograd may hand them out later
        self.storages: dict[int, Ref] = {}  # address → number, for the storage last seen there
        self.is_forward = True
        self.first_seq = self.last_seq = 0  # autograd sequence numbers given out during the forward pass: [first, last)
        self.forward_end = 0  # number of events of the forward pass; those of backward passes follow
        self.has_compiled_code = False
        self.is_paused = False  # ATen calls are torcheer's own
        self.is_sharded = False  # modules may have gathered params in place of their own while they run
        self.gathered: dict[int, tuple[int, str]] = {}  # number of such a param → id() of its module, its name there
        self.parts: dict[int, Part] = {}  # number of a tensor that is spread over processes → what this one has of it
        self.param_parts: dict[str, Part] = {}  # the same for params and buffers, by address, as the run began
        self.is_lazy = False  # there are conjugated, negated or zero tensors, which PyTorch resolves before a call
        self.root: Any = None  # the model
        self.root_entered = False
        self.num_ops = 0  # top-level operations so far; counted only when contents are kept
        self.at_leaf: Callable[[], None] | None = None  # backward: told that the engine has come to a leaf
        self.keep_outputs: Callable[[int, Any, Any], None] | None = None
        self.module_ids: frozenset[int] | None = None
        self.unseen_threads: dict[str, None] = {}  # names of threads that did work nobody recorded

    # -- tensors -------------------------------------------------------------------------------------

    def ref(self, tensor: Tensor) -> Ref:
        """The number of a tensor object, which may be new to the tape."""
        entry = self.live.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        return self.register(tensor, ARRIVED)

    def register(self, tensor: Tensor, origin: int) -> Ref:
        """Give a tensor object a number and read its metadata."""
        values = self.values
        number = len(values)
        ref = _REFS[number] if number < _NUM_REFS else Ref(number)
        if type(tensor) is not Tensor and type(tensor) is not Parameter:
            return self._register_odd(tensor, ref)
        if origin == ARRIVED and self.unseen and type(tensor) is Tensor and (known := self._met(tensor)) is not None:
            return known
        try:
            address = storage_id(tensor)
            if origin == FRESH or address not in self.storages:
                storage = self.storages[address] = ref
            elif origin == DERIVED:
                storage = self.storages[address]
            else:
                storage = self._known_storage(address, ref, origin)
            if origin >= ARRIVED and (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()):
                self.is_lazy = True
            values.append(
                (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, storage)
            )
        except (RuntimeError, NotImplementedError):
            del values[number:]
            values.append(self._odd_row(tensor))
        self.live[id(tensor)] = (_weak(tensor), ref)
        return ref

    def shares(self, tensor: Tensor, given: Any) -> bool:
        """Does it lie in the memory of one of these arguments? Its address may be that of memory that is gone."""
        try:
            storage = self.storages.get(storage_id(tensor))
        except (RuntimeError, NotImplementedError):
            return True
        return storage is not None and any(self.values[ref][5] == storage for ref in refs_in(tuple(given)))

    def _register_odd(self, tensor: Tensor, ref: Ref) -> Ref:
        """A tensor subclass, whose metadata may be a matter of ATen calls of its own."""
        paused, self.is_paused = self.is_paused, True
        try:
            self.values.append(self._odd_row(tensor))
            if self.is_sharded and is_spread(tensor):
                self.parts[ref] = part_of(tensor)
        finally:
            self.is_paused = paused
        self.live[id(tensor)] = (_weak(tensor), ref)
        return ref

    def _known_storage(self, address: int, ref: Ref, origin: int) -> Ref:
        """Number of the storage at ``address``; a new one if what was there before is gone."""
        storage = self.storages.get(address)
        if storage is None or (origin >= ARRIVED and self.is_forward and self._is_gone(storage)):
            storage = self.storages[address] = ref
        return storage

    def _is_gone(self, storage: Ref) -> bool:
        """Has every tensor seen with this storage died? Then its address may have been given away."""
        values = self.values
        return not any(values[ref][5] == storage and weak() is not None for weak, ref in reversed(self.live.values()))

    def _odd_row(self, tensor: Tensor) -> ValueRow:
        """Metadata of a tensor without ordinary storage: sparse, nested, functorch wrappers."""

        def tried(read: Callable[[], Any]) -> Any:
            try:
                return read()
            except (RuntimeError, NotImplementedError, TypeError, AttributeError):
                return None

        with no_function_mode():
            shape = tried(lambda: tuple(tensor.shape))
            if shape is None:
                sizes = tried(lambda: [tensor.size(axis) for axis in range(tensor.dim())])
                shape = tuple(sizes) if sizes is not None else (-1,) * tensor.dim()
            layout = tensor.layout
            is_strided = layout is torch.strided
            stride = tried(lambda: tuple(tensor.stride())) if is_strided else None
            size = tried(lambda: tensor.numel() * tensor.element_size()) if is_strided else None
            address = tried(lambda: storage_id(own_part(tensor))) if is_strided else None
            offset = tried(tensor.storage_offset) if is_strided else 0
            ref = Ref(len(self.values))
            storage = None if address is None else self._known_storage(address, ref, DERIVED)
            return ValueRow(shape, stride, offset or 0, tensor.dtype, tensor.device, storage, layout, size)

    def refresh(self, tensor: Tensor) -> Ref:
        """Read a tensor's metadata again, after an operator that changes geometry in place."""
        self.live.pop(id(tensor), None)
        return self.register(tensor, REREAD)

    def _met(self, tensor: Tensor) -> Ref | None:
        """The number of a tensor that was written down unseen: autograd saved it, and gives it to its backward."""
        if not tensor.requires_grad and not tensor._is_view():
            return None
        try:
            storage = self.storages.get(storage_id(tensor))
        except (RuntimeError, NotImplementedError):
            return None
        if storage is None:
            return None
        row = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, storage)
        for place in range(len(self.unseen) - 1, -1, -1):
            ref = self.unseen[place]
            if self.values[ref] == row:
                del self.unseen[place]
                self.live[id(tensor)] = (_weak(tensor), ref)
                return ref
        return None

    # -- structures ----------------------------------------------------------------------------------

    def template(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` with tensors replaced by their numbers and the rest copied as plain data."""
        live = self.live
        out = []
        for value in args:
            # Most arguments are tensors that are known; nothing else has the id() of one that is alive.
            entry = live.get(id(value))
            if entry is not None and entry[0]() is value:
                out.append(entry[1])
                continue
            kind = _KINDS.get(type(value), _OTHER)
            if kind == _PLAIN:
                out.append(value)
            elif kind == _TENSOR:
                out.append(self.register(value, ARRIVED))
            else:
                out.append(self.convert(value))
        return tuple(out)

    def template_dict(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The same for keyword arguments."""
        return {name: self.convert(value) for name, value in kwargs.items()}

    def convert(self, value: Any) -> Any:
        """One argument or result, tensors replaced by their numbers."""
        # Nearly everything is a tensor that is known; nothing else has the id() of one that is alive.
        entry = self.live.get(id(value))
        if entry is not None and entry[0]() is value:
            return entry[1]
        kind = _KINDS.get(type(value), _OTHER)
        if kind == _TENSOR:
            return self.register(value, ARRIVED)
        if kind == _PLAIN:
            return value
        if isinstance(value, Tensor):
            return self.ref(value)
        if isinstance(value, (tuple, list)):
            if _PLAIN_TYPES.issuperset(map(type, value)):  # sizes, strides
                return value[:] if type(value) is list else tuple(value)
            items = [self.convert(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Mapping):
            return {_plain_key(key): self.convert(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.convert(value.start), self.convert(value.stop), self.convert(value.step))
        fields = getattr(value, "__dataclass_fields__", None)
        if fields is not None and not isinstance(value, type):
            return {name: self.convert(getattr(value, name, None)) for name in fields}
        if isinstance(value, (enum.Enum, torch.Generator)) or callable(value):
            return Opaque(getattr(value, "__qualname__", None) or type(value).__qualname__)
        return Opaque(f"{type(value).__module__}.{type(value).__qualname__}")

    # -- call sites ----------------------------------------------------------------------------------

    def site(self, frame: FrameType | None) -> int:
        """Number of the call site: the way from the module's forward down to the call."""
        stop = self.stop_codes
        chain = []
        while frame is not None:
            code = frame.f_code
            key = id(code)
            if key in stop:
                break
            chain.append(key)
            chain.append(frame.f_lasti)
            frame = frame.f_back
        site_key = tuple(chain)
        number = self.sites.get(site_key)
        if number is None:
            number = self.sites[site_key] = len(self.sites)
            self._keep_codes(site_key)
        return number

    def _keep_codes(self, site_key: tuple[int, ...]) -> None:
        frame: FrameType | None = sys._getframe(2)
        wanted = set(site_key[::2]) - self.codes.keys()
        while frame is not None and wanted:
            code = frame.f_code
            if id(code) in wanted:
                self.codes[id(code)] = code
                wanted.discard(id(code))
            frame = frame.f_back

    def kind_of(self, func: Any) -> AtenKind:
        """What an ATen operator does to memory, read once per operator."""
        kind = self.aten_kinds[id(func)] = describe(func)
        self.operators.append(func)
        if kind.name in _LAZY:
            self.is_lazy = True
        return kind

    def note_gathered(self, args: tuple[Any, ...]) -> None:
        """Note which params of the running module these are; FSDP puts its own back when the module ends."""
        for value in args:
            if isinstance(value, Parameter) and (ref := self.ref(value)) not in self.gathered:
                module = self.present_module()
                for name, param in getattr(module, "_parameters", {}).items():
                    if param is value:
                        self.gathered[ref] = (id(module), name)

    def present_module(self) -> Any:
        """The module whose call is running. Until it ends, its event is the module itself."""
        return self.events[self.call] if self.call >= 0 else self.root

    def owns(self, module: Any) -> bool:
        """Is this module part of the model under capture?"""
        if self.module_ids is None:
            model = self.root
            self.module_ids = frozenset(map(id, model.modules())) if isinstance(model, torch.nn.Module) else frozenset()
        return id(module) in self.module_ids

    def close(self) -> None:
        """Let go of everything that belongs to the running model."""
        self.live = {}
        self.storages = {}


def named_tensors(structure: Any, path: str = "") -> list[tuple[str, Tensor]]:
    """All tensors of a nested structure, in order, with the paths that lead to them."""
    if isinstance(structure, Tensor):
        return [(path, structure)]
    prefix = f"{path}." if path else ""
    return [pair for key, item in parts_of(structure) for pair in named_tensors(item, f"{prefix}{key}")]


def _plain_key(key: Any) -> Any:
    return key if isinstance(key, (str, int)) else str(key)
