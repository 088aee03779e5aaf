"""Which contents to keep, and how: without copying until somebody writes.

A kept tensor shares its memory with the original. When an operator is about to write into that memory, the
kept one is copied first (the operator's schema says what it writes). After the run a write can no longer be
seen coming, but PyTorch counts writes per storage, and a kept tensor that was overwritten says so instead of
showing the wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from torcheer.capture.torch.kinds import AtenKind
from torcheer.capture.torch.private import (
    id_of_storage,
    is_functional_wrapper,
    no_dispatch_mode,
    no_function_mode,
    num_function_modes,
    storage_id,
)
from torcheer.capture.torch.spread import own_part
from torcheer.capture.torch.tape import Tape
from torcheer.errors import NotSavedError
from torcheer.record.interrupts import no_interrupts
from torcheer.record.model import Ref

Tensor = torch.Tensor
_ORDINARY = (Tensor, torch.nn.Parameter)


class Wanted(Protocol):
    """Decides what to keep while the model runs. It may keep too much; what is not asked for is dropped."""

    def wants(self, func: Any, tensor: Tensor, tape: Tape, /) -> bool: ...


class Store(Protocol):
    """Takes kept tensors: in memory (``Kept``) or on their way to a file (``record.file.TensorWriter``)."""

    def put(self, name: str, tensor: Any) -> None: ...

    def skip(self, name: str, reason: str) -> None: ...

    def is_pending(self, name: str) -> bool: ...

    def __getitem__(self, name: str) -> Any: ...

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __len__(self) -> int: ...


class Kept(dict[str, Tensor]):
    """Kept tensors by name, each with the number of writes its memory had seen."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int | None] = {}
        self.unsaved: dict[str, str] = {}  # name → why its contents could not be kept

    def put(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor that shares memory with the run's."""
        self[name] = tensor
        self.versions[name] = _version(tensor)

    def skip(self, name: str, reason: str) -> None:
        """Say why a tensor's contents are not kept."""
        self.unsaved[name] = reason

    def peek(self, name: str) -> Tensor:
        """A kept tensor, whether it has been overwritten or not."""
        return super().__getitem__(name)

    def settle(self) -> None:
        """The run is over: from here on a write is one that nobody copied for."""
        for name in self:
            self.versions[name] = _version(self.peek(name))

    def is_pending(self, name: str) -> bool:
        """Does it share memory with the run's?"""
        return name in self

    def drop(self, name: str) -> None:
        """Let go of a tensor nobody asked for."""
        self.pop(name, None)
        self.versions.pop(name, None)

    def __getitem__(self, name: str) -> Tensor:
        tensor = super().__getitem__(name)
        if _has_lost_memory(tensor):
            raise NotSavedError(
                "its memory was given back during the run (a sharded parameter that was gathered). "
                "Record with save_to=path."
            )
        if not self.is_current(name):
            raise NotSavedError(
                "it was overwritten in place after the run (by an optimizer step, an in-place op on the output, or a "
                "new batch copied into the input). Save the history before going on (history.save(path)), or record "
                "with save_to=path."
            )
        return tensor

    def is_current(self, name: str) -> bool:
        """Has nobody written to it since the run?"""
        tensor = self.peek(name)
        return self.versions.get(name) == _version(tensor) and not _has_lost_memory(tensor)


class Keeper:
    """Keeps the contents of one run."""

    def __init__(self, tape: Tape, wanted: Wanted, store: Store) -> None:
        self.tape = tape
        self.wanted = wanted
        self.store = store
        self.names: dict[tuple[int, int], str] = {}  # (event, ref) → name of the contents
        self._by_storage: dict[int, list[str]] = {}
        self._borrowed: set[int] = set()

    def borrow(self, tensors: Iterable[Tensor]) -> None:
        """The memory of these outlives the run and is written to after it: what shares it is copied at once."""
        self._borrowed.update(storage for storage in map(_storage, tensors) if storage is not None)

    def offer(self, event: int, func: Any, ref: Ref, tensor: Tensor) -> None:
        """An op returned a tensor; keep it if it is wanted."""
        if self.wanted.wants(func, tensor, self.tape):
            self.keep(event, ref, tensor)

    def keep(self, event: int, ref: Ref, tensor: Tensor) -> None:
        """Keep a tensor as it is now."""
        if (event, ref) not in self.names:
            name = self.names[event, ref] = f"value.{len(self.names)}"
            self.put(name, tensor)

    def put(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor under a name of the caller's."""
        if num_function_modes():
            with no_function_mode():
                self._put(name, tensor)
        else:  # as nearly always: asking takes a tenth of a `with`
            self._put(name, tensor)

    def _put(self, name: str, tensor: Tensor) -> None:
        reason = _why_not(tensor)
        if reason is not None:
            self.store.skip(name, reason)
            return
        storage = _storage(own_part(tensor))
        if type(tensor) in _ORDINARY and not tensor.is_inference():
            # Without its autograd graph, which the kept tensor would otherwise hold in memory.
            off = no_dispatch_mode()  # not by a `with`, which takes twice as long
            try:
                alias = tensor.detach()
                self.store.put(name, _copy(alias) if storage in self._borrowed else alias)
            finally:
                del off
        else:
            with self._own_calls(tensor):
                alias = tensor.view_as(tensor) if tensor.is_inference() else tensor.detach()
                self.store.put(name, _copy(alias) if storage in self._borrowed else alias)
        if storage is not None and storage not in self._borrowed:
            self._by_storage.setdefault(storage, []).append(name)

    @contextmanager
    def _own_calls(self, tensor: Tensor) -> Iterator[None]:
        """Calls on a tensor that are torcheer's own, and are not to be recorded."""
        if type(tensor) in _ORDINARY:
            with no_interrupts(), no_dispatch_mode(), no_function_mode(), torch.no_grad():
                yield
            return
        # A subclass (DTensor) does its work in its own __torch_dispatch__, which must stay on.
        paused, self.tape.is_paused = self.tape.is_paused, True
        try:
            with no_interrupts(), no_function_mode(), torch.no_grad():
                yield
        finally:
            self.tape.is_paused = paused

    def before_write(self, kind: AtenKind, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """An operator is about to write: copy what was kept of the memory it writes to."""
        for place in kind.writes:
            if isinstance(place, int):
                target = args[place] if place < len(args) else None
            else:
                target = (kwargs or {}).get(place)
            self._copy_all(target)

    def _copy_all(self, target: Any) -> None:
        if isinstance(target, Tensor):
            self._copy_kept(target)
        elif isinstance(target, (list, tuple)):
            for item in target:
                self._copy_all(item)

    def before_resize(self, storage: torch.UntypedStorage) -> None:
        """A storage is about to be freed or moved: copy what was kept of it."""
        self._copy_storage(id_of_storage(storage))

    def _copy_kept(self, tensor: Tensor) -> None:
        storage = _storage(own_part(tensor))
        if storage is not None:
            self._copy_storage(storage)

    def _copy_storage(self, storage: int) -> None:
        for name in self._by_storage.pop(storage, ()):
            if self.store.is_pending(name):
                # Not store[name]: some operators count their write before they make it.
                held = self.store.peek(name) if isinstance(self.store, Kept) else self.store[name]
                with self._own_calls(held):
                    self.store.put(name, _copy(held))


def _copy(tensor: Tensor) -> Tensor:
    """A copy that keeps the strides where it can, so that it looks as it was recorded."""
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return tensor.clone()
    if any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
        return tensor.clone()
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _why_not(tensor: Tensor) -> str | None:
    """Why a tensor's contents cannot be kept, None where they can."""
    is_other = type(tensor) not in _ORDINARY
    if tensor.is_meta or (is_other and type(tensor).__name__ == "FakeTensor"):
        return "it is a fake or meta tensor, which has no contents"
    if is_other and torch.nn.parameter.is_lazy(tensor):
        return "it is a parameter that had no shape yet"
    if tensor._is_zerotensor():
        return "it is a zero tensor, which has no memory"
    if is_functional_wrapper(tensor):
        return "it only exists inside a function transform (vmap, grad, jvp); the ATen ops under it are recorded"
    return None


def _has_lost_memory(tensor: Tensor) -> bool:
    """Was its storage freed under it, as FSDP does? Reading it would end the process."""
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    return tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


def _version(tensor: Tensor) -> int | None:
    tensor = own_part(tensor)
    return None if tensor.is_inference() else tensor._version


def _storage(tensor: Tensor) -> int | None:
    try:
        return storage_id(tensor)
    except (RuntimeError, NotImplementedError):
        return None
