"""Which tensor of one model is which of the other, and how the numbers of one become those of the other.

A tensor of B is made of pieces of tensors of A: rows of them, each brought into the common layout, joined, and brought
into B's layout. Renames, transposes, fused, split and interleaved projections are all of this form. Since it is linear
it carries gradients as well as weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.forms import transform
from torcheer.diff.side import Weights
from torcheer.errors import ComparisonError
from torcheer.units import shape_text


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one tensor of A."""

    source: str  # address in A
    start: int | None = None  # first row, in the common layout; None: the whole tensor
    stop: int | None = None  # one past the last row
    transform: str = "same"  # from A's layout to the common one


@dataclass(frozen=True, slots=True)
class ParamPair:
    """One tensor of B in terms of A's."""

    target: str  # address in B
    pieces: tuple[Piece, ...]
    transform: str = "same"  # from the common layout to B's
    how: str = "structure"  # what told so: "structure", "value", "name"; "guess": several have the same numbers

    def convert(self, weights: Weights) -> Array:
        """The tensor of B, from A's tensors."""
        parts = []
        for piece in self.pieces:
            part = transform(piece.transform)(np.asarray(weights[piece.source]))
            parts.append(part if piece.start is None else part[piece.start : piece.stop])
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=0)
        return transform(self.transform)(joined)

    @property
    def sources(self) -> tuple[str, ...]:
        """Addresses in A, each once."""
        return tuple(dict.fromkeys(piece.source for piece in self.pieces))

    def __str__(self) -> str:
        parts = [p.source if p.start is None else f"{p.source}[{p.start}:{p.stop}]" for p in self.pieces]
        text = parts[0] if len(parts) == 1 else f"cat({', '.join(parts)})"
        turned = self.transform != "same" or any(piece.transform != "same" for piece in self.pieces)
        both = self.transform != "same" and all(piece.transform == self.transform for piece in self.pieces)
        return f"{self.target} = {text}{'.T' if turned and not both else ''}"


@dataclass(slots=True)
class ParamMap:
    """All tensors of B that are known in terms of A's, and what is left over on either side."""

    pairs: list[ParamPair] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    layers: list[tuple[str, str]] = field(default_factory=list)  # modules that correspond, where it is known
    uneven: list[str] = field(default_factory=list)  # tensors that one of two such modules has alone
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of B's tensors, where a piece is reshaped

    def convert(self, weights: Weights, shapes: Mapping[str, tuple[int, ...]] | None = None) -> dict[str, Array]:
        """A's weights (or gradients) as B's. Tensors whose sources are not all given are left out."""
        converted = {}
        for pair in self.pairs:
            if all(source in weights for source in pair.sources):
                array = pair.convert(weights)
                shape = (shapes or {}).get(pair.target)
                converted[pair.target] = array if shape is None else array.reshape(shape)
        return converted

    @property
    def is_complete(self) -> bool:
        """Whether every tensor of either side has its counterpart."""
        return not self.only_a and not self.only_b

    def to_json(self) -> str:
        """The map as text that ``from_json`` reads."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> ParamMap:
        """The map that ``to_json`` wrote."""
        data: dict[str, Any] = json.loads(text)
        pairs = [
            ParamPair(pair["target"], tuple(Piece(**piece) for piece in pair["pieces"]), pair["transform"], pair["how"])
            for pair in data["pairs"]
        ]
        shapes = {name: tuple(shape) for name, shape in data.get("shapes", {}).items()}
        layers = [(one, other) for one, other in data.get("layers", [])]
        return cls(pairs, data["only_a"], data["only_b"], layers, data.get("uneven", []), shapes)

    def __str__(self) -> str:
        lines = [str(pair) for pair in self.pairs]
        lines += [f"only in A: {name}" for name in self.only_a] + [f"only in B: {name}" for name in self.only_b]
        return "\n".join(lines)


def join(address: str, name: str) -> str:
    """Address of a tensor of a module; the model itself has the address ``""``."""
    return f"{address}.{name}" if address else name


def check_complete(found: ParamMap, names: tuple[str, str], weights: tuple[Weights, Weights] = ({}, {})) -> None:
    """Raise ``ComparisonError`` that names what has no counterpart, unless everything has one.

    ``weights`` of both sides: for the shapes.
    """
    if found.is_complete:
        return
    left = [
        f"{name} has {', '.join(_with_shape(one, known) for one in only[:6])}{', …' * (len(only) > 6)}"
        for name, only, known in zip(names, (found.only_a, found.only_b), weights, strict=True)
        if only
    ]
    raise ComparisonError(
        f"The weights of one model cannot be carried to the other: {'; '.join(left)} without a counterpart of the "
        "same kind and shape on the other side. Give the models the same weights yourself and pass auto_weights=False, "
        "or pass param_map= with the missing pairs (docs/design/diff.md)."
    )


def _with_shape(name: str, weights: Weights) -> str:
    return f"{name} {shape_text(weights[name].shape)}" if name in weights else name
