"""Which layer of one model is which of the other, where they come from two frameworks or the user says so.

Layers go together when they are of one kind and shape. Among several of one kind and shape the user's ``layer_map``
decides, then equal names, then equal values of their tensors, then names that end alike; and where none of these
tells, the order of definition, provided that the layers are also called in that order. Else nobody knows, and an error
lists the candidates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.forms import TRANSFORMS, common_shape, form_of
from torcheer.diff.param_map import ParamMap, ParamPair, Piece, join
from torcheer.diff.side import Leaf, Side, Weights
from torcheer.errors import ComparisonError, near_misses


class Atom(NamedTuple):
    """A tensor of the common form, as rows of a tensor that a model has."""

    tensor: str  # address in the model
    start: int | None  # first row, in the common layout; None: all of it
    stop: int | None
    transform: str
    shape: tuple[int, ...]  # in the common form


class Part(NamedTuple):
    """A layer as it is mapped: an attention layer may count as one, or as the projections it is made of."""

    address: str
    type_name: str
    kind: str
    atoms: dict[str, Atom]  # by name in the common form
    constants: frozenset[str] = frozenset()  # names of those that are masks or tables: some write them into the code

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its tensors, of those that tell what it is."""
        return tuple(sorted((name, atom.shape) for name, atom in self.atoms.items() if name not in self.constants))


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one model."""

    framework: str
    leaves: Sequence[Leaf]
    weights: Weights = field(default_factory=dict)  # by address, as they stand
    called: Callable[[], Sequence[str]] | None = (
        None  # addresses of layers in the order of their first call; if it can run
    )


def known_of(side: Side, *, can_run: bool = True) -> Known:
    """What a side tells of its model. It is run only if the order of calls has to decide."""

    def called() -> list[str]:
        try:
            record = side.record_forward().record
        finally:
            side.restore()
        return list(dict.fromkeys(record.modules[call.module].address for call in record.calls))

    return Known(side.framework, side.leaves(), side.weights(), called if can_run else None)


Pair = tuple[Part, Part]
# Names of the same thing in the two libraries.
_SYNONYMS = {"multihead_attn": "cross_attn", "cross_attention": "cross_attn"}


def map_layers(a: Known, b: Known, layer_map: Mapping[str, str] | None = None) -> ParamMap:
    """The tensors of B in terms of A's, layer by layer."""
    chosen = dict(layer_map or {})
    parts_a, parts_b = _parts(a), _parts(b)
    _check_names(a, b, chosen)
    split_a, split_b = _split(parts_a), _split(parts_b)
    attempts = [(parts_a, parts_b), (split_a, split_b), (split_a, parts_b), (parts_a, split_b)]
    found: list[ParamMap] = []
    unclear: list[ComparisonError] = []
    for one, other in attempts:
        try:
            found.append(_mapped(_Side(a, one), _Side(b, other), chosen))
        except ComparisonError as error:
            unclear.append(error)
        if found and found[-1].is_complete:
            return found[-1]
    if unclear:
        raise unclear[0]
    return min(found, key=lambda result: len(result.only_a) + len(result.only_b))


class _Side(NamedTuple):
    known: Known
    parts: list[Part]


def _mapped(a: _Side, b: _Side, chosen: Mapping[str, str]) -> ParamMap:
    rest_a, rest_b = list(a.parts), list(b.parts)
    pairs = _forced(rest_a, rest_b, chosen)
    _without(rest_a, rest_b, pairs)
    kinds = {part.kind for part in rest_a} & {part.kind for part in rest_b}
    buckets: dict[object, tuple[list[Part], list[Part]]] = {}
    for side, rest in enumerate((rest_a, rest_b)):
        for part in rest:
            # A class that only one side has is the user's own: it is known by the names and shapes of its tensors.
            kind = part.kind if part.kind in kinds else ""
            buckets.setdefault((kind, part.shapes), ([], []))[side].append(part)
    for in_a, in_b in buckets.values():
        pairs += _paired(in_a, in_b, a.known, b.known, chosen)
    _without(rest_a, rest_b, pairs)
    pairs += _uneven(rest_a, rest_b)
    return _as_param_map(pairs, a, b)


# -- tensors of a pair of layers ---------------------------------------------------------------------------------


def _parts(side: Known) -> list[Part]:
    """Layers that have tensors. A tensor that joins several is told apart into these."""
    parts = []
    for leaf in side.leaves:
        form = form_of(side.framework, leaf)
        atoms: dict[str, Atom] = {}
        for own, shape in leaf.tensors.items():
            if own in form.skipped:
                continue
            address, transform = join(leaf.address, own), form.transforms.get(own, "same")
            common = common_shape(transform, shape)
            joined = form.joins.get(own)
            if joined is None:
                atoms[form.names.get(own, own)] = Atom(address, None, None, transform, common)
                continue
            rows = common[0] // len(joined)
            for count, name in enumerate(joined):
                atoms[name] = Atom(address, count * rows, (count + 1) * rows, transform, (rows, *common[1:]))
        constants = frozenset(form.names.get(own, own) for own in leaf.constants)
        if atoms.keys() - constants:
            parts.append(Part(leaf.address, leaf.type_name, form.kind, atoms, constants))
    return parts


def _split(parts: list[Part]) -> list[Part]:
    """The same with layers whose tensors have dotted names as the linear layers that these names speak of."""
    result = []
    for part in parts:
        below: dict[str, dict[str, Atom]] = {}
        for name, atom in part.atoms.items():
            prefix, _, own = name.rpartition(".")
            below.setdefault(prefix, {})[own] = atom
        for prefix, atoms in below.items():
            if prefix:
                result.append(Part(join(part.address, prefix), "Linear", "linear", atoms))
            else:
                result.append(part._replace(atoms=atoms))
    return result


def _as_param_map(pairs: list[Pair], a: _Side, b: _Side) -> ParamMap:
    result = ParamMap(layers=[(one.address, other.address) for one, other in pairs])
    twins = {
        atom: one.atoms[name]
        for one, other in pairs
        for name, atom in other.atoms.items()
        if name in one.atoms and one.atoms[name].shape == atom.shape
    }
    done_a = {atom.tensor for atom in twins.values()}
    paired_a = {atom.tensor for one, _ in pairs for atom in one.atoms.values()}
    paired_b = {atom.tensor for _, other in pairs for atom in other.atoms.values()}
    all_a, all_b = _by_tensor(a.parts), _by_tensor(b.parts)
    constant_a, constant_b = _constants(a.parts), _constants(b.parts)
    for tensor, atoms in all_b.items():
        if all(atom in twins for atom in atoms):
            pieces = _whole([twins[atom] for atom in atoms], all_a)
            result.pairs.append(ParamPair(tensor, pieces, atoms[0].transform))
        elif tensor in constant_b:
            continue
        elif tensor in paired_b:
            result.uneven.append(f"{b.known.framework}'s {tensor}")
        else:
            result.only_b.append(tensor)
    for tensor in (tensor for tensor in all_a if tensor not in constant_a):
        if tensor not in paired_a:
            result.only_a.append(tensor)
        elif tensor not in done_a:
            result.uneven.append(f"{a.known.framework}'s {tensor}")
    return result


def _constants(parts: list[Part]) -> set[str]:
    return {part.atoms[name].tensor for part in parts for name in part.constants if name in part.atoms}


def _by_tensor(parts: list[Part]) -> dict[str, list[Atom]]:
    found: dict[str, list[Atom]] = {}
    for part in parts:
        for atom in part.atoms.values():
            found.setdefault(atom.tensor, []).append(atom)
    return {tensor: sorted(atoms, key=lambda atom: atom.start or 0) for tensor, atoms in found.items()}


def _whole(atoms: list[Atom], every: Mapping[str, list[Atom]]) -> tuple[Piece, ...]:
    """Atoms as pieces; all rows of one tensor are the tensor."""
    if every[atoms[0].tensor] == atoms:
        return (Piece(atoms[0].tensor, transform=atoms[0].transform),)
    return tuple(Piece(atom.tensor, atom.start, atom.stop, atom.transform) for atom in atoms)


# -- which layer is which ----------------------------------------------------------------------------------------


def _check_names(a: Known, b: Known, chosen: Mapping[str, str]) -> None:
    for side, names, which in ((a, chosen.keys(), "first"), (b, chosen.values(), "second")):
        known = {address for leaf in side.leaves for address in _prefixes(leaf.address)}
        for name in names:
            if name not in known:
                raise ComparisonError(
                    f"layer_map: the {which} model ({side.framework}) has no layer {name!r}."
                    f"{near_misses(name, sorted(known))} Keys are layers of the first model, values of the second."
                )


def _prefixes(address: str) -> Iterator[str]:
    parts = address.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _forced(rest_a: list[Part], rest_b: list[Part], chosen: Mapping[str, str]) -> list[Pair]:
    by_address = {part.address: part for part in rest_b}
    return [
        (part, by_address[chosen[part.address]])
        for part in rest_a
        if part.address in chosen and chosen[part.address] in by_address
    ]


def _without(rest_a: list[Part], rest_b: list[Part], pairs: Iterable[Pair]) -> None:
    done = [(one.address, other.address) for one, other in pairs]
    rest_a[:] = [part for part in rest_a if part.address not in {one for one, _ in done}]
    rest_b[:] = [part for part in rest_b if part.address not in {other for _, other in done}]


def _paired(in_a: list[Part], in_b: list[Part], a: Known, b: Known, chosen: Mapping[str, str]) -> list[Pair]:
    """Pairs among layers of one kind and shape."""
    rest_a, rest_b, pairs = list(in_a), list(in_b), []

    def renamed(part: Part) -> str:
        prefix = max((p for p in _prefixes(part.address) if p in chosen), key=len, default=None)
        return part.address if prefix is None else chosen[prefix] + part.address[len(prefix) :]

    rules: tuple[Callable[[], list[Pair]], ...] = (
        lambda: _unique(rest_a, rest_b, lambda one, other: renamed(one) == other.address),
        lambda: _unique(rest_a, rest_b, lambda one, other: _plain(renamed(one)) == _plain(other.address)),
        lambda: _unique(rest_a, rest_b, lambda one, other: _same_values(one, other, a, b)),
        lambda: _ending_alike(rest_a, rest_b, renamed),
    )
    for rule in rules:
        fresh = rule()
        pairs += fresh
        _without(rest_a, rest_b, fresh)
    if len(rest_a) == len(rest_b):
        _check_order(rest_a, rest_b, a, b)
        pairs += zip(rest_a, rest_b, strict=True)
    return pairs


def _unique(rest_a: list[Part], rest_b: list[Part], alike: Callable[[Part, Part], bool]) -> list[Pair]:
    """Pairs that are alike and have no other choice on either side."""
    choices = [(one, other) for one in rest_a for other in rest_b if alike(one, other)]
    firsts, seconds = [one.address for one, _ in choices], [other.address for _, other in choices]
    return [
        (one, other) for one, other in choices if firsts.count(one.address) == 1 and seconds.count(other.address) == 1
    ]


def _plain(address: str) -> str:
    parts = (_SYNONYMS.get(part, part) for part in address.split("."))
    return ".".join(re.sub(r"[\W_]", "", part).lower() for part in parts)


def _same_values(one: Part, other: Part, a: Known, b: Known) -> bool:
    """Do they hold the same numbers, and not such as every layer begins with?"""
    telling = False
    for name in one.atoms.keys() - one.constants:
        atom = one.atoms[name]
        left, right = _common(atom, a.weights), _common(other.atoms[name], b.weights)
        if left is None or right is None or left.shape != right.shape:
            return False
        # Most candidates differ in the first numbers already.
        for few in (8, None):
            if not np.allclose(left.ravel()[:few], right.ravel()[:few], 1e-6, 1e-7):
                return False
        telling |= left.size > 1 and float(np.ptp(left)) > 0
    return telling


def _common(atom: Atom, weights: Weights) -> Array | None:
    array = weights.get(atom.tensor)
    if array is None or array.dtype.kind not in "fc":
        return None
    turned = TRANSFORMS[atom.transform](array)
    return turned if atom.start is None else turned[atom.start : atom.stop]


def _ending_alike(rest_a: list[Part], rest_b: list[Part], renamed: Callable[[Part], str]) -> list[Pair]:
    """``encoder.0.fc`` and ``bert.encoder.0.fc``: accepted only where names settle the whole group."""
    if len(rest_a) != len(rest_b) or len(rest_a) < 2:
        return []
    scores = [[_same_ending(_plain(renamed(one)), _plain(other.address)) for other in rest_b] for one in rest_a]
    pairs = []
    for row, one in zip(scores, rest_a, strict=True):
        best = max(row)
        column = row.index(best)
        if not best or row.count(best) > 1 or [r[column] for r in scores].count(best) > 1:
            return []
        if max(r[column] for r in scores) != best:
            return []
        pairs.append((one, rest_b[column]))
    return pairs


def _same_ending(one: str, other: str) -> int:
    count = 0
    for left, right in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if left != right:
            break
        count += 1
    return count


def _check_order(rest_a: list[Part], rest_b: list[Part], a: Known, b: Known) -> None:
    """Order of definition and order of calls must tell the same."""
    if len(rest_a) < 2:
        return
    defined = [[part.address for part in rest] for rest in (rest_a, rest_b)]
    called = []
    for names, side in zip(defined, (a, b), strict=True):
        if side.called is not None:
            order = side.called()
            called.append(sorted(names, key=lambda name, order=order: _rank(name, order)))  # type: ignore[misc]
    if called and [defined[0].index(name) for name in called[0]] == [defined[1].index(name) for name in called[1]]:
        return
    frameworks = [f"the {which} model ({side.framework})" for which, side in (("first", a), ("second", b))]
    text = f"It cannot be told which of {len(rest_a)} layers {rest_a[0].type_name} of one shape is which. "
    for what, orders in (("Defined", defined), ("Called", called)):
        text += "".join(
            f"{what} in {framework}: {', '.join(names)}. " for framework, names in zip(frameworks, orders, strict=False)
        )
    likely = called or defined
    text += "The two orders do not agree" if called else "Without an input the order of their calls is not known"
    example = f"layer_map={{{likely[0][0]!r}: {likely[1][0]!r}, ...}}"
    raise ComparisonError(
        f"{text}, and neither names nor values decide. Pass {'' if called else 'inp=, or '}{example}: "
        "layers of the first model to those of the second."
    )


def _rank(address: str, called: Sequence[str]) -> int:
    """Place in the order of calls. A projection inside a layer is called when that is."""
    places = [called.index(name) for name in _prefixes(address) if name in called]
    return places[-1] if places else len(called)


def _uneven(rest_a: list[Part], rest_b: list[Part]) -> list[Pair]:
    """Layers of one kind of which one has a tensor more, as a bias: the ones of one name, or the only ones."""

    def alike(one: Part, other: Part) -> bool:
        shared = one.atoms.keys() & other.atoms.keys()
        fits = bool(shared) and all(one.atoms[name].shape == other.atoms[name].shape for name in shared)
        return fits and one.kind == other.kind

    named = _unique(rest_a, rest_b, lambda x, y: _plain(x.address) == _plain(y.address) and alike(x, y))
    _without(rest_a, rest_b, named)
    return named + _unique(rest_a, rest_b, alike)
