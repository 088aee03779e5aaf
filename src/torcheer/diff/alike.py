"""Tensors that hold one number alone: biases of zeros, running variances of ones.

Their numbers do not tell which is which. The tensors used beside them do (a bias belongs to its weight), or else what
they are used for and in which order; and once a run has written into them, or their gradients are known, these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.param_map import ParamMap, ParamPair, Piece
from torcheer.diff.side import Recording, Weights
from torcheer.record.model import Op, refs_in

_CLOSE = 1e-3  # of a tensor: so much may rounding change what a run makes of it


@dataclass(frozen=True, slots=True)
class Use:
    """What a tensor of a model is, and what reads it first."""

    kind: str = ""  # "param" | "buffer"
    place: str = ""  # ATen function and which of its arguments: "native_batch_norm 3"
    rank: int = 0  # among those of one kind and place, in the order of the run
    rank_of_kind: int = 0


@dataclass
class Uses:
    """The uses of all tensors of a model, by address."""

    known: dict[str, Use] = field(default_factory=dict)
    beside: dict[str, list[str]] = field(default_factory=dict)  # address → others that the same op reads

    def differ(self, own: str, others: Uses, other: str) -> tuple[bool, bool, int]:
        """How far the use of a tensor is from that of one of another model: by kind, by place and by rank."""
        one, two = self.known.get(own, Use()), others.known.get(other, Use())
        same_place = one.place == two.place
        ranks = one.rank - two.rank if same_place else one.rank_of_kind - two.rank_of_kind
        return one.kind != two.kind, not same_place, abs(ranks)


def uses_of(recording: Recording) -> Uses:
    """What every param and buffer of a recorded run is used for."""
    record = recording.record
    owner = {value.index: value.param for value in record.values if value.param is not None}
    found = Uses()
    ranks: dict[str, int] = {}
    for op in record.aten:
        if op.phase != "forward":
            continue
        for place, value in _places(op):
            param = owner.get(value)
            if param is None or record.params[param].address in found.known:
                continue
            entry = record.params[param]
            of_place, of_kind = f"{entry.kind} {place}", entry.kind
            found.known[entry.address] = Use(entry.kind, place, ranks.get(of_place, 0), ranks.get(of_kind, 0))
            for each in (of_place, of_kind):
                ranks[each] = ranks.get(each, 0) + 1
    for op in record.ops:
        read = [record.params[param].address for param in op.params]
        for address in read:
            found.beside.setdefault(address, [other for other in read if other != address])
    return found


def is_constant(array: Array) -> bool:
    """Whether a tensor holds one number, several times."""
    return array.size > 1 and bool(array.flat[0] == array.flat[-1]) and bool((array == array.flat[0]).all())


def by_neighbour(
    target: str, b: Weights, a: Weights, uses: tuple[Uses, Uses], pairs: list[ParamPair]
) -> ParamPair | None:
    """What a tensor of one number is made of, told by a tensor that the same op reads: the bias of a weight."""
    known = {pair.target: pair for pair in pairs}
    wanted = b[target]
    for neighbour in uses[1].beside.get(target, ()):
        pair = known.get(neighbour)
        if pair is None or any(piece.start is not None for piece in pair.pieces):
            continue
        found = [_partner(source, wanted, a, uses[0]) for source in pair.sources]
        if found and None not in found and sum(len(a[name]) for name in found if name) == len(wanted):
            return ParamPair(target, tuple(Piece(name) for name in found if name), how="structure")
    return None


def _partner(source: str, wanted: Array, a: Weights, uses: Uses) -> str | None:
    """The one tensor read beside a tensor of A that holds the wanted number."""
    like = [
        name
        for name in uses.beside.get(source, ())
        if name in a and a[name].ndim == wanted.ndim == 1 and a[name].size and (a[name] == wanted.flat[0]).all()
    ]
    return like[0] if len(like) == 1 else None


def _places(op: Op) -> list[tuple[str, int]]:
    places = [(f"{op.function} {place}", value) for place, arg in enumerate(op.args) for value in refs_in(arg)]
    return places + [(f"{op.function} {key}", v) for key, arg in (op.kwargs or {}).items() for v in refs_in(arg)]


def settle(found: ParamMap, weights: Weights, a: Mapping[str, Array | None], b: Mapping[str, Array | None]) -> ParamMap:
    """The map in which tensors that began as one number are told apart by numbers that came of them.

    ``weights``: A's, as the run began. ``a`` and ``b``: what was left in them, or their gradients.
    """
    groups: dict[tuple[tuple[int, ...], float], list[int]] = {}
    for place, pair in enumerate(found.pairs):
        source = weights.get(pair.sources[0])
        if _is_whole(pair) and source is not None and is_constant(source):
            groups.setdefault((source.shape, float(np.real(source.flat[0]))), []).append(place)
    pairs = list(found.pairs)
    for places in groups.values():
        if len(places) > 1:
            _settle_group(pairs, places, a, b)
    return replace(found, pairs=pairs)


def _is_whole(pair: ParamPair) -> bool:
    return len(pair.pieces) == 1 and pair.pieces[0].start is None


def _settle_group(
    pairs: list[ParamPair], places: list[int], a: Mapping[str, Array | None], b: Mapping[str, Array | None]
) -> None:
    """Give those whose numbers are not those of their guess the source whose numbers they are, if there is one."""
    sources = list(dict.fromkeys(pairs[place].sources[0] for place in places))
    for place in places:
        pair = pairs[place]
        own = b.get(pair.target)
        if own is None or _fits(a.get(pair.sources[0]), own):
            continue
        other = next((name for name in sources if _fits(a.get(name), own)), None)
        if other is not None:
            pairs[place] = replace(pair, pieces=(Piece(other, transform=pair.pieces[0].transform),), how="value")


def _fits(one: Array | None, other: Array) -> bool:
    if one is None or one.size != other.size:
        return False
    apart = np.abs(one.ravel().astype(np.float64) - other.ravel())
    return bool((apart <= _CLOSE * float(np.abs(other).max(initial=0.0))).all())
