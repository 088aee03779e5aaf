"""How far apart two right implementations may be: measured on the reference, not assumed.

The reference is run once more with every result changed by a rounding error of its own type. What that does to a value
further on is what rounding does to it, so a value of the other side may differ by some times as much.
"""

from __future__ import annotations

from torcheer.diff.arrays import is_float, precision_of
from torcheer.diff.graph import Graph
from torcheer.diff.layout import Close, apart
from torcheer.diff.numbers import Tolerance

FACTOR = 10.0  # times the measured noise; the number of right answers is flat from 10 to 100
_LEAST_RMS = 8.0  # in units of the type's precision: two orders of summing a dot product
_LEAST_PEAK = 64.0
_UNMEASURED = {"float64": 1e-9, "float32": 1e-5}  # where the reference cannot be run again
_LOW = {"float16", "bfloat16"}
_FEW = 256  # elements; fewer do not average out chance
_SURE = 1e-2  # of a value; wider tolerances may hide a mistake, so that what only they let pass is left open
_SURE_ROUNDINGS = 20.0  # the same, for types so coarse that few roundings make as much
CHAOTIC = 0.05  # noise this large against the value itself: nothing can be said


class Noise:
    """Tolerances of the reference's values."""

    def __init__(
        self, graph: Graph, noisy: Graph | None, given: Tolerance | None = None, factor: float = FACTOR
    ) -> None:
        self.graph = graph
        same_run = noisy is not None and [n.name for n in noisy.nodes] == [n.name for n in graph.nodes]
        self.noisy = noisy if same_run else None
        self.given = given
        self.factor = factor
        self._measured: dict[int, Close] = {}
        self._coarsest = max((precision_of(value.dtype) for value in graph.record.values), default=0.0)

    @property
    def is_measured(self) -> bool:
        """Whether the reference was run again with noise."""
        return self.noisy is not None

    def of(self, value: int) -> Close:
        """How large rounding is at a value of the reference, before any factor."""
        known = self._measured.get(value)
        if known is None:
            known = self._measured[value] = self._measure(value)
        return known

    def close(self, value: int) -> Close:
        """How far a value of the other side may be from this one."""
        if self.given is not None:
            return Close(self.given.rtol + self.given.atol, 4 * (self.given.rtol + self.given.atol))
        dtype = self.graph.value(value).dtype
        precision = max(precision_of(dtype), 2.0**-52)
        if not self.is_measured:
            rms = max(_UNMEASURED.get(dtype, 4 * precision), 4 * self._coarsest if dtype in _LOW else 0.0)
            return Close(rms, 10 * rms)
        noise = self.of(value)
        return Close(
            max(self.factor * noise.rms, _LEAST_RMS * precision), max(self.factor * noise.peak, _LEAST_PEAK * precision)
        )

    def is_sure(self, value: int, error: float) -> bool:
        """Whether values this far apart are equal beyond what a wide tolerance may hide."""
        return error <= max(_SURE, _SURE_ROUNDINGS * max(precision_of(self.graph.value(value).dtype), self._coarsest))

    def _measure(self, value: int) -> Close:
        if self.noisy is None or not self.graph.has_contents(value) or not self.noisy.has_contents(value):
            return Close(0.0, 0.0)
        one = self.graph.array(value)
        other = self.noisy.array(value)
        if not is_float(one):
            # An index of the largest, a sign: rounding either turns it or does not.
            flips = one.shape != other.shape or bool((one != other).any())
            return Close(float("inf"), float("inf")) if flips else Close(0.0, 0.0)
        if one.shape != other.shape:
            return Close(float("inf"), float("inf"))
        rms, peak = apart(one, other)
        producer = self.graph.producer.get(value)
        if one.size < _FEW and producer is not None:
            for source in self.graph.nodes[producer].inputs:
                if source < value and self.graph.value(source).size_bytes:
                    below = self.of(source)
                    if below.rms < CHAOTIC:
                        rms, peak = max(rms, below.rms), max(peak, below.rms)
        return Close(rms, peak)
