"""How far two tensors are apart, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torcheer.diff.arrays import Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as equal: ``|a - b| <= atol + rtol * |b|``, as numpy has it; NaN equals NaN at the same place."""

    atol: float = 0.0
    rtol: float = 0.0
    by_mean: bool = False  # compare the means of two tensors and nothing else

    def __str__(self) -> str:
        means = ", of the means alone" if self.by_mean else ""
        return f"rtol={self.rtol:g}, atol={self.atol:g}{means}"


@dataclass(frozen=True, slots=True)
class Distance:
    """Two tensors of one shape, subtracted."""

    num_elements: int
    num_mismatched: int  # outside the tolerance
    max_abs: float  # NaN where one side alone has NaN
    max_rel: float  # largest |a - b| / |b|
    rms_rel: float  # root mean square of a - b over that of b
    largest_at: tuple[int, ...] = ()  # index of the largest difference
    value_a: float | None = None  # the elements there
    value_b: float | None = None

    @property
    def is_equal(self) -> bool:
        """Whether every element is within the tolerance."""
        return self.num_mismatched == 0

    def turned(self) -> Distance:
        """The same, measured against ``b``, with the two elements under each other's name."""
        return replace(self, value_a=self.value_b, value_b=self.value_a)

    def __str__(self) -> str:
        share = 100 * self.num_mismatched / max(self.num_elements, 1)
        return (
            f"Mismatched elements: {self.num_mismatched} / {self.num_elements} ({share:.3g}%)\n"
            f"Max absolute difference: {self.max_abs:.7g}\nMax relative difference: {self.max_rel:.7g}"
        )


def distance(a: Array, b: Array, tolerance: Tolerance) -> Distance:
    """Subtract two tensors of one shape, in double precision."""
    if a.size == 0:
        return Distance(0, 0, 0.0, 0.0, 0.0)
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        differs = np.atleast_1d(a != b)
        apart = np.abs(np.subtract(a, b, dtype=np.float64) if a.dtype != b.dtype else _exact(a, b))
    else:
        wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(np.subtract(a, b, dtype=wide))
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            apart = np.where(same, 0.0, apart)
            differs = ~(same | (apart <= tolerance.atol + tolerance.rtol * np.abs(b)))
    if tolerance.by_mean:
        mean_a, mean_b = (float(np.abs(x.mean(dtype=np.complex128))) for x in (a - b, b))
        differs = np.broadcast_to(not mean_a <= tolerance.atol + tolerance.rtol * mean_b, differs.shape)
    apart = np.atleast_1d(apart)
    size_b = np.atleast_1d(np.abs(b).astype(np.float64))
    place = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(apart == 0, 0.0, apart / size_b)
        scale = float(np.sqrt(np.mean(np.square(size_b))))
        rms = float(np.sqrt(np.mean(np.square(apart))))
    at = tuple(int(i) for i in np.unravel_index(place, a.shape)) if a.ndim else ()
    return Distance(
        int(a.size),
        int(np.count_nonzero(differs)),
        float(apart.ravel()[place]),
        float(np.max(relative)),
        rms / scale if scale > 0 else (0.0 if rms == 0 else float("inf")),
        at,
        _element(a, place),
        _element(b, place),
    )


def _exact(a: Array, b: Array) -> Array:
    return np.subtract(a.astype(np.float64), b.astype(np.float64))


def _element(array: Array, place: int) -> float | None:
    element = np.ravel(array)[place]
    return None if array.dtype.kind == "c" else float(element)
