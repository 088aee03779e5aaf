"""What a comparison found: the verdict first, then the place, then the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import Any

from torcheer import shown
from torcheer.diff.arrays import Array
from torcheer.diff.leaves import LeavesComparison, compare_invoked, compare_registered
from torcheer.diff.numbers import Distance
from torcheer.diff.param_map import ParamMap
from torcheer.diff.place import Place
from torcheer.diff.side import Recording
from torcheer.diff.value_map import convert_state_dict
from torcheer.record.model import Record

EQUAL, DIVERGED, UNDETERMINED = "equal", "diverged", "undetermined"
_EXACT = 1e-14  # tolerances below: of whole numbers


@dataclass(slots=True)
class Divergence:
    """A place where the two runs part: the ops of both sides there, and what they made."""

    kind: str  # "op" | "missing" | "extra" | "param" | "order" | "constant" | "random" | "gradient" | "weight" | …
    headline: str  # one sentence
    a: Place | None  # None: A has nothing there
    b: Place | None
    distance: Distance | None = None  # None: the shapes differ, or one side has nothing
    heads: tuple[str, str] = ("", "")  # the values of both sides, abbreviated
    why: str = ""  # the part of the headline that is not the place
    ranks: tuple[int, ...] = ()  # where B is several ranks: those that differ; ``b`` is the place on the first
    confirmed: str = ""  # what giving B's op the inputs of A's showed

    def __str__(self) -> str:
        return self.headline


@dataclass(slots=True)
class OutputResult:
    """One output of both models."""

    path_a: str
    path_b: str
    verdict: str
    distance: Distance | None
    tolerance: float  # relative to the root mean square of the output
    reason: str = ""
    error: float | None = None  # the same measure of what was found: the smallest tolerance that would pass

    def __str__(self) -> str:
        allowed = "nothing" if self.tolerance < _EXACT else f"{self.tolerance:.3g}"
        apart = "" if self.error is None else f", apart by {self.error:.3g} of its size (allowed: {allowed})"
        reason = f"; {self.reason}" if self.reason else ""
        path = self.path_a or self.path_b or "output"
        other = f" (B's {self.path_b})" if self.path_b and self.path_b != path else ""
        return f"{path}{other}: {self.verdict}{apart}{reason}"


@dataclass(slots=True)
class TensorResult:
    """A gradient, weight, buffer or optimizer state of both models."""

    what: str  # "gradient" | "weight" | "buffer" | "state"
    target: str  # address in B
    sources: list[str]  # addresses in A
    step: int  # training step, from 0
    verdict: str
    error: float | None  # relative root mean square; None: one side has none
    reason: str = ""


@dataclass(slots=True)
class MatchResult:
    """An op of A and one of B whose results are the same."""

    a: str
    b: str
    error: float
    layout: str


@dataclass(slots=True, repr=False)
class Comparison:
    """Two runs compared. True when they are equal."""

    names: tuple[str, str]
    verdict: str
    reasons: list[str] = field(default_factory=list)
    first_divergence: Divergence | None = None
    candidates: list[Divergence] = field(default_factory=list)  # further places, likeliest first
    outputs: list[OutputResult] = field(default_factory=list)
    gradients: list[TensorResult] = field(default_factory=list)  # empty where they were not compared: see notes
    weights: list[TensorResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tolerance: str = ""  # where the tolerance comes from
    records: tuple[Recording, Recording] | None = None  # both runs
    _matching: Callable[[], tuple[list[MatchResult], tuple[int, int], tuple[int, int]]] | None = None
    _matched: tuple[list[MatchResult], tuple[int, int], tuple[int, int]] | None = None
    _mapping: Callable[[], ParamMap] | None = None
    _mapped: ParamMap | None = None

    def __bool__(self) -> bool:
        return self.verdict == EQUAL

    def __str__(self) -> str:
        return shown.text("comparison", self)

    def __repr__(self) -> str:
        first = f": {self.first_divergence.headline}" if self.first_divergence else ""
        return f"<Comparison of {self.names[0]} and {self.names[1]}: {self.verdict}{first}>"

    @property
    def matches(self) -> list[MatchResult]:
        """Ops of both sides with the same results."""
        return self._match()[0]

    @property
    def num_ops(self) -> tuple[int, int]:
        """How many operations each side has."""
        return self._match()[1]

    @property
    def num_matched(self) -> tuple[int, int]:
        """How many of them have a counterpart."""
        return self._match()[2]

    def _match(self) -> tuple[list[MatchResult], tuple[int, int], tuple[int, int]]:
        if self._matched is None:
            self._matched = self._matching() if self._matching is not None else ([], (0, 0), (0, 0))
        return self._matched

    @property
    def param_map(self) -> ParamMap:
        """Which tensors of A make up each tensor of B, found from their numbers."""
        if self._mapped is None:
            self._mapped = self._mapping() if self._mapping is not None else ParamMap()
        return self._mapped

    @property
    def modules(self) -> LeavesComparison:
        """Leaf modules of both models: what one has and the other lacks."""
        return compare_registered(*self._both_records(), self.names)

    @property
    def invoked(self) -> LeavesComparison:
        """The same for the leaf modules that forward called."""
        return compare_invoked(*self._both_records(), self.names)

    def _both_records(self) -> tuple[Record, Record]:
        assert self.records is not None
        return self.records[0].record, self.records[1].record

    @property
    def smallest_tolerance(self) -> float | None:
        """The smallest relative tolerance with which every output would pass; None where none would."""
        errors = [one.error for one in self.outputs]
        return None if not errors or None in errors else max(error for error in errors if error is not None)

    def convert_state_dict(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A state dict of A's as one of B's, by the parameter map."""
        return convert_state_dict(self.param_map, state_dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {name: part for name, part in shown.data("comparison", self).items() if name != "sides"}

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Everything as JSON text, and into a file if a path is given."""
        return shown.written(shown.json_text(self.to_dict()), path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """One HTML page with both graphs side by side, and into a file if a path is given."""
        return shown.written(shown.html("comparison", self), path)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def head(array: Array) -> str:
    """The first numbers of a tensor."""
    flat = array.ravel()[:6]
    shown_numbers = ", ".join(f"{value:.6g}" for value in flat.tolist()) if array.dtype.kind != "c" else str(flat)
    return f"{tuple(array.shape)} {array.dtype}: [{shown_numbers}{', …' if array.size > 6 else ''}]"
