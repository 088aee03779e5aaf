"""``tl.compare`` where one side is several processes: the ranks of a distributed run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from torcheer.api.compare import side_of
from torcheer.api.history import load
from torcheer.api.recorded import is_recorded, recording_of
from torcheer.errors import ComparisonError
from torcheer.history import Ranks
from torcheer.record import file

if TYPE_CHECKING:
    from torcheer.diff.comparison import Comparison
    from torcheer.diff.numbers import Tolerance


def is_of_ranks(one: Any) -> bool:
    """Are these the ranks of a run: opened, as paths, or a folder of them?"""
    if isinstance(one, (str, os.PathLike)):
        return bool(file.recordings_in(one))
    is_paths = isinstance(one, (list, tuple)) and bool(one) and all(isinstance(p, (str, os.PathLike)) for p in one)
    return isinstance(one, Ranks) or is_paths


def compare_with_ranks(a: Any, b: Any, x: Any, given: Tolerance | None, loss: Any = None) -> Comparison:
    """Compare a run of one process, or a model to be run on ``x``, with the ranks of another."""
    # numpy, and the frameworks: only a comparison needs them.
    from torcheer.diff.rank_compare import compare_ranks

    if is_of_ranks(a):
        raise ComparisonError(
            "The first side of a comparison is the reference, a run of one process; the ranks come second: "
            "tl.compare(single, ranks). To compare two distributed runs, compare their ranks one by one: "
            "tl.compare(old[0], new[0])."
        )
    ranks = b if isinstance(b, Ranks) else load(list(b) if isinstance(b, (list, tuple)) else b, arrays=True)
    assert isinstance(ranks, Ranks)
    if ranks.missing:
        gone = ", ".join(map(str, ranks.missing))
        raise ComparisonError(
            f"The recordings of rank {gone} are missing: what each rank has is put together, so all of them are "
            "needed. Save one recording per rank into one folder and load that."
        )
    parts = [recording_of(history, f"rank {number}") for number, history in enumerate(ranks)]
    if is_recorded(a):
        return compare_ranks(recording_of(a, "A"), parts, given)
    if x is None:
        raise ComparisonError("compare(model, ranks, x) needs the whole input that the ranks shared: pass x.")
    side = side_of(a, x, loss=loss)
    try:
        recording = side.record_forward()
        found = side.backward(None) if loss is not None else {}
        gradients = {address: array for address, array in found.items() if array is not None}
        noisy = None if given is not None else side.record_noisy()
        return compare_ranks(recording, parts, given, noisy, gradients)
    finally:
        side.restore()


__all__ = ["compare_with_ranks", "is_of_ranks"]
