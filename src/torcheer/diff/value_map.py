"""The parameter map, found from the numbers: which tensors of A make up each tensor of B.

A tensor of B is one of A's, turned or not; or rows of several of A's, one after the other (a fused projection); or
some rows of one of A's (a split one). What no numbers tell is left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np

from torcheer.diff.alike import Uses, by_neighbour, is_constant
from torcheer.diff.arrays import Array, as_array
from torcheer.diff.forms import transform as transform_named
from torcheer.diff.param_map import ParamMap, ParamPair, Piece
from torcheer.diff.side import Recording, Weights
from torcheer.errors import ComparisonError
from torcheer.record.payload import is_kept

_MOST_AXES = 5  # of a kernel over volumes; 120 orders
_MOST_PIECES = 64  # of which a tensor may be joined: heads that are interleaved


def map_by_value(a: Weights, b: Weights, uses: tuple[Uses, Uses] | None = None) -> ParamMap:
    """Map the tensors of two models by their numbers, which must be the same to the last place.

    Of several with the same numbers, the one is taken that is used for the same, in the same order.
    """
    uses = uses or (Uses(), Uses())
    index = _Index(a, uses)
    names_a = set(a)
    pairs: list[ParamPair] = []
    only_b = []
    order = {target: place for place, target in enumerate(b)}
    # What other tensors tell of those that hold one number alone is known when these are mapped.
    for target, array in sorted(b.items(), key=lambda item: is_constant(item[1])):
        pair = by_neighbour(target, b, a, uses, pairs) if is_constant(array) and target not in a else None
        if pair is None and array.size:
            pair = index.whole(target, array) or index.joined(target, array)
        if pair is None:
            only_b.append(target)
        else:
            pairs.append(pair)
    pairs.sort(key=lambda pair: order[pair.target])
    only_b.sort(key=lambda target: order[target])
    used = {source for pair in pairs for source in pair.sources}
    return ParamMap(pairs, sorted(names_a - used, key=list(a).index), only_b)


def note_on_weights(a: Weights, b: Weights) -> list[str]:
    """Say that two models have nothing of their weights in common: nobody carried them over."""
    own = [{name: array for name, array in one.items() if not is_constant(array) and array.size > 1} for one in (a, b)]
    if not all(own):
        return []
    index = _Index(own[0], (Uses(), Uses()))
    # One is enough, and is found with the first look where weights were carried over.
    if any(index.whole(name, array) is not None for name, array in own[1].items()):
        return []
    if any(index.joined(name, array) is not None for name, array in own[1].items()):
        return []
    return [
        f"none of B's {len(own[1])} params and buffers has the numbers of one of A's: load A's weights into B, or pass "
        "weights='copy' (A's, where the layers correspond) or weights='equal' (the same random ones in both)"
    ]


def weights_of(recording: Recording) -> dict[str, Array]:
    """Params and buffers by address, as they were when the run began; those whose contents were kept."""
    record, payloads = recording
    found: dict[str, Array] = {}
    values = {value.param: value.index for value in reversed(record.values) if value.param is not None}
    for index, param in enumerate(record.params):
        name = record.saved.get(values[index]) if index in values else None
        for known in (f"param.{param.address}", f"param.{index}", name):
            if known is not None and is_kept(payloads, known):
                found[param.address] = as_array(payloads[known])
                break
    return found


class _Index:
    """A's tensors, to be found by their first numbers."""

    def __init__(self, weights: Weights, uses: tuple[Uses, Uses]) -> None:
        self.weights = weights
        self.uses = uses
        self.by_start: dict[Any, list[tuple[str, str]]] = {}
        for name, array in weights.items():
            for transform, turned in _turned(array):
                self.by_start.setdefault(_start(turned), []).append((name, transform))

    def whole(self, target: str, array: Array) -> ParamPair | None:
        """One tensor of A, as it is, transposed or reshaped."""
        found = []
        for name, transform in self.by_start.get(_start(array), ()):
            source = _apply(self.weights[name], transform)
            if source.size == array.size and np.array_equal(source.ravel(), array.ravel()):
                kind, place, rank = self.uses[0].differ(name, self.uses[1], target)
                other_name = _last(name) != _last(target)
                found.append((name != target, kind, place, other_name, transform != "same", rank, name, transform))
        if not found:
            return None
        other_name, kind, place, *_, name, transform = min(found)
        is_told = not other_name or len({one[-2] for one in found}) == 1 or not (kind or place)
        return ParamPair(target, (Piece(name, transform=transform),), how="value" if is_told else "guess")

    def joined(self, target: str, array: Array) -> ParamPair | None:
        """Rows of A's tensors one after the other, in B's layout or in the transposed one."""
        if not array.ndim:
            return None
        for transform, turned in _turned(array) if array.ndim < 3 else [("same", array)]:
            pieces = self._pieces(turned)
            if pieces is not None:
                return ParamPair(target, pieces, transform, "guess" if is_constant(array) else "value")
        return None

    def _pieces(self, array: Array) -> tuple[Piece, ...] | None:
        pieces: list[Piece] = []
        row = 0
        while row < len(array):
            best: Piece | None = None
            length = 0
            for name, own in self.weights.items():
                for transform, source in _as_rows(own, array.ndim):
                    piece, rows = _run_of_rows(array, row, name, transform, source)
                    if rows > length:
                        best, length = piece, rows
            if best is None or len(pieces) >= _MOST_PIECES:
                return None
            pieces.append(best)
            row += length
        return tuple(pieces)


def _run_of_rows(array: Array, row: int, name: str, transform: str, source: Array) -> tuple[Piece | None, int]:
    """How many rows from ``row`` on are consecutive rows of a tensor of A."""
    if source.ndim != array.ndim or source.shape[1:] != array.shape[1:] or not source.ndim:
        return None, 0
    starts = np.flatnonzero(source.reshape(len(source), -1)[:, 0] == array[row].ravel()[0])
    best, length = None, 0
    for start in starts[:8].tolist():
        most = min(len(source) - start, len(array) - row)
        same = (source[start : start + most] == array[row : row + most]).reshape(most, -1).all(axis=1)
        rows = most if same.all() else int(np.argmin(same))
        if rows > length:
            whole = start == 0 and rows == len(source)
            best = Piece(name, None if whole else start, None if whole else start + rows, transform)
            length = rows
    # A single number may be anywhere by chance.
    return (best, length) if length > 1 or array[row].size > 1 or len(array) == 1 else (None, 0)


def _as_rows(array: Array, ndim: int) -> list[tuple[str, Array]]:
    """Ways in which a tensor may be part of one that others are joined to."""
    if array.ndim == 1 and ndim == 2:
        return [("row", array.reshape(1, -1))]
    return _turned(array) if array.ndim < 3 else [("same", array)]


def _turned(array: Array) -> list[tuple[str, Array]]:
    found = [("same", array)] + ([("transpose", array.T)] if array.ndim == 2 else [])
    if 3 <= array.ndim <= _MOST_AXES:
        orders = list(permutations(range(array.ndim)))[1:]
        found += [(f"axes {','.join(map(str, axes))}", array.transpose(axes)) for axes in orders]
    return found


def _apply(array: Array, transform: str) -> Array:
    return array if transform == "same" else np.asarray(transform_named(transform)(array))


def _start(array: Array) -> Any:
    flat = array.ravel() if array.flags.c_contiguous else array.flat
    return (array.size, *(float(np.real(flat[i])) for i in range(min(3, array.size))))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def convert_state_dict(found: ParamMap, state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict of A's as one of B's; tensors come back as what they were given as."""
    missing = [name for pair in found.pairs for name in pair.sources if name not in state_dict]
    if missing:
        raise ComparisonError(
            f"The state dict lacks {', '.join(missing[:5])}, which the parameter map takes from A. "
            "Pass a state dict of the first model of the comparison."
        )
    arrays = {name: as_array(tensor) for name, tensor in state_dict.items()}
    like = next(iter(state_dict.values()), None)
    converted: dict[str, Any] = {}
    for pair in found.pairs:
        array = np.ascontiguousarray(pair.convert(arrays)).copy()
        shape = found.shapes.get(pair.target)
        array = array if shape is None else array.reshape(shape)
        source = state_dict[pair.sources[0]]
        # Both libraries' tensors know how to make one of an array; numpy arrays stay arrays.
        converted[pair.target] = array if isinstance(like, np.ndarray) else _as_given(source, array)
    return converted


def _as_given(source: Any, array: Array) -> Any:
    filled = source.detach().new_empty(array.shape)
    filled.numpy()[...] = array
    return filled
