"""The runs a comparison needs: those that are there, and those that it may ask for.

A recording from disk is one run and no more. A model can be run again with fused kernels off, or with rounding noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from torcheer.diff.side import Recording, Side


@dataclass
class Runs:
    """Two runs, and the models behind them where they are at hand."""

    first: tuple[Recording, Recording]
    sides: tuple[Side | None, Side | None] = (None, None)
    picked: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)  # paths of outputs; None: all
    is_unfused: bool = False
    is_fresh: bool = True  # nothing ran since the first runs

    @property
    def can_unfuse(self) -> bool:
        """Whether both models can be run again."""
        return all(side is not None for side in self.sides)

    def unfused(self, which: tuple[bool, bool] = (True, True)) -> tuple[Recording, Recording]:
        """Those that have fused kernels again, by formulas instead."""
        a, b = self.sides
        assert a is not None
        assert b is not None
        self.is_unfused, self.is_fresh = True, False
        first_a, first_b = self.first
        return a.record_unfused() if which[0] else first_a, b.record_unfused() if which[1] else first_b

    def noisy(self) -> Recording | None:
        """The reference again, with rounding noise; None where it cannot be run."""
        side, self.is_fresh = self.sides[0], False
        return None if side is None else side.record_noisy(unfused=self.is_unfused)
