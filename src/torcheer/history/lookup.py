"""What a lookup key means: label, short label, pass, module address, position.

All string keys of a record live in one table, made once. The keys an op is shown with are read from the same
table, so every key shown is a key that works. Where a key could mean two things it is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from operator import index as as_index
from typing import NamedTuple, SupportsIndex

from torcheer.errors import LookupKeyError, near_misses
from torcheer.history.structure import Structure

SHOWN = 8  # how many candidates an error lists
NO_KEY = "is no key. Give a layer's label, a module's address, a position or a slice"


class Target(NamedTuple):
    """What a key stands for: one op, one layer, or several candidates."""

    ops: tuple[int, ...]
    layer: int | None = None  # set where the ops are exactly the several passes of this layer

    @property
    def is_unique(self) -> bool:
        """Whether the key means one thing."""
        return len(self.ops) == 1 or self.layer is not None


class Lookup:
    """Resolves keys on one record."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.record = structure.record

    def position(self, key: object) -> int:
        """Return the op at a position of the listing; negative positions count from the end."""
        listed = self.structure.listed
        # bool is an int to Python; history[True] is a slip.
        if isinstance(key, bool) or not isinstance(key, SupportsIndex):
            raise LookupKeyError(f"{key!r} {NO_KEY}")
        try:
            position = as_index(key)
        except TypeError:  # numpy's bool and tensors that are not one whole number
            raise LookupKeyError(f"{key!r} {NO_KEY}") from None
        if not -len(listed) <= position < len(listed):
            raise LookupKeyError(f"There is no operation {position}. {self._valid_positions()}")
        return listed[position]

    def find(self, key: str) -> Target | None:
        """Return what a string key means, None when it means nothing or more than one thing."""
        target = self.table.get(key)
        return target if target is not None and target.is_unique else None

    def resolve(self, key: str) -> Target:
        """Return what a string key means, or raise an error that says what would work."""
        target = self.find(key)
        if target is None:
            raise LookupKeyError(self._explain(key))
        return target

    def keys_of(self, op: int) -> list[int | str]:
        """Return every key that means this op alone."""
        keys: list[int | str] = []
        if op in self.structure.ordinal:
            position = self.structure.ordinal[op]
            keys += [position - len(self.structure.listed), position]
        return keys + sorted(self._keys_by_op.get(op, ()))

    def keys_of_layer(self, layer: int) -> list[str]:
        """Return every key that means all passes of this layer."""
        return sorted(self._keys_by_layer.get(layer, ()))

    @cached_property
    def completions(self) -> list[str]:
        """Keys worth offering while typing: labels, passes where there are several, module addresses."""
        names = [layer.label for layer in self.record.layers]
        names += [self.structure.labels[op] for op in self.structure.listed]
        for address, module in self._modules.items():
            calls = self.structure.module_calls.get(module, ())
            numbered = [f"{address}:{self.record.calls[call].call_index}" for call in calls]
            names += [address, *(numbered if len(calls) > 1 else ())]
        return [name for name in dict.fromkeys(names) if self.find(name) is not None]

    @cached_property
    def table(self) -> dict[str, Target]:
        """Every string key."""
        table: dict[str, Target] = {}
        for number, layer in enumerate(self.record.layers):
            self._add_layer(table, layer.label, number)
        for op, label in enumerate(self.structure.labels):
            if label:
                table.setdefault(label, Target((op,)))
        full_labels = frozenset(table)
        for number, layer in enumerate(self.record.layers):
            self._add_layer(table, f"{layer.name}_{layer.number}", number)
        for address, target in self._addresses():
            # A full label is always its layer; a short one that is also another op's address is refused.
            other = table.get(address)
            if other is None:
                table[address] = target
            elif address not in full_labels and other.ops != target.ops:
                table[address] = Target(tuple(dict.fromkeys(other.ops + target.ops)))
        return table

    @cached_property
    def _keys_by_op(self) -> dict[int, list[str]]:
        keys: dict[int, list[str]] = {}
        for key, target in self.table.items():
            if len(target.ops) == 1:
                keys.setdefault(target.ops[0], []).append(key)
        return keys

    @cached_property
    def _keys_by_layer(self) -> dict[int, list[str]]:
        keys: dict[int, list[str]] = {}
        for key, target in self.table.items():
            if target.layer is not None:
                keys.setdefault(target.layer, []).append(key)
        return keys

    @cached_property
    def _modules(self) -> dict[str, int]:
        modules = enumerate(self.record.modules)
        return {name: index for index, module in modules for name in (module.address, *module.aliases) if name}

    @cached_property
    def _params(self) -> dict[str, int]:
        params = enumerate(self.record.params)
        return {name: index for index, param in params for name in (param.address, *param.aliases)}

    def _add_layer(self, table: dict[str, Target], name: str, number: int) -> None:
        ops = self.record.layers[number].ops
        table.setdefault(name, Target(ops, number if len(ops) > 1 else None))
        for pass_index, op in enumerate(ops, 1):
            table.setdefault(f"{name}:{pass_index}", Target((op,)))

    def _addresses(self) -> Iterator[tuple[str, Target]]:
        """Yield every module address, and address with call, that some op's output belongs to."""
        calls = self.record.calls
        for address, module in self._modules.items():
            together: list[int] = []
            for call in self.structure.module_calls.get(module, ()):
                ops = self.structure.producers(calls[call].outputs)
                together += ops
                if ops:
                    yield f"{address}:{calls[call].call_index}", self._target(ops)
            if together:
                yield address, self._target(tuple(dict.fromkeys(together)))

    def _target(self, ops: tuple[int, ...]) -> Target:
        number = self.record.ops[ops[0]].layer
        if len(ops) > 1 and number >= 0 and set(ops) == set(self.record.layers[number].ops):
            return Target(self.record.layers[number].ops, number)
        return Target(ops)

    def _explain(self, key: str) -> str:
        base, _, number = key.rpartition(":")
        if key in self.table:
            return self._explain_several(key, self.table[key])
        if key in self._modules:
            return self._explain_no_output(key, self._modules[key])
        if base in self.table and number:
            return self._explain_pass(base, number)
        if base in self._modules:
            return self._explain_no_output(base, self._modules[base])
        param = self._params.get(key)
        if param is not None:
            noun = "parameter" if self.record.params[param].kind == "param" else "buffer"
            return f"{key!r} is a {noun}, not a layer or module. Use history.params[{key!r}]"
        short_labels = (f"{layer.name}_{layer.number}" for layer in self.record.layers)
        hint = near_misses(key, [*short_labels, *self.completions])
        lists = " Look in history.layer_labels, or in list(history.modules)"
        return f"No layer, operation or module of this run is called {key!r}.{hint or lists}"

    def _explain_several(self, key: str, target: Target) -> str:
        labels = self._quoted([self.structure.labels[op] for op in target.ops])
        module = self._modules.get(key)
        if module is None:
            return f"{key!r} ends in several operations. Ask for one of them: {labels}"
        short_label = next((x for x in self.record.layers if f"{x.name}_{x.number}" == key), None)
        if short_label is not None:
            return (
                f"{key!r} is short for the layer {short_label.label} and also the address of a module that "
                f"ends in another operation. Ask for one of them: {labels}"
            )
        calls = self.structure.module_calls[module]
        if len(calls) == 1:
            return f"Module {key!r} returns tensors of several operations. Ask for one of them: {labels}"
        names = self._quoted([f"{key}:{self.record.calls[call].call_index}" for call in calls])
        return f"Module {key!r} was called {len(calls)} times. Ask for one call: {names}"

    def _explain_pass(self, base: str, number: str) -> str:
        module = self._modules.get(base)
        if module is None:
            count, noun, nouns = len(self.table[base].ops), "pass", "passes"
        else:
            count, noun, nouns = len(self.structure.module_calls[module]), "call", "calls"
        if count == 1:
            return f"{base!r} has one {noun}, there is no {noun} {number!r}. Ask for '{base}:1'"
        valid = f"'{base}:1' to '{base}:{count}'"
        return f"{base!r} has {count} {nouns}, there is no {noun} {number!r}. Ask for {valid}"

    def _explain_no_output(self, address: str, module: int) -> str:
        calls = self.structure.module_calls.get(module, ())
        if not calls:
            below = [name for name in self.completions if name.startswith(f"{address}.")]
            hint = f"Ask for one of its modules that were: {self._quoted(below)}" if below else "Take another module"
            return f"Module {address!r} exists but was not called in this run. {hint}"
        return (
            f"Module {address!r} was called but returned no tensor made by a recorded operation. "
            f"See history.modules[{address!r}]"
        )

    def _valid_positions(self) -> str:
        count = len(self.structure.listed)
        if not count:
            return "This run recorded no operations. Record a call of the model."
        return f"Give one from 0 to {count - 1}, or from -{count} to -1."

    def _quoted(self, names: list[str]) -> str:
        shown = ", ".join(repr(name) for name in names[:SHOWN])
        return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
