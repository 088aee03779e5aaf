"""Recordings as they are given to a comparison: histories and paths."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from torcheer.api.compare import is_onnx
from torcheer.api.history import load
from torcheer.errors import ComparisonError
from torcheer.history import ModelHistory

if TYPE_CHECKING:
    from torcheer.diff.side import Recording


def is_recorded(one: Any) -> bool:
    return isinstance(one, (ModelHistory, str, os.PathLike)) and not is_onnx(one)


def recording_of(one: Any, side: str) -> Recording:
    from torcheer.diff.side import Recording  # numpy, as above

    if not is_recorded(one):
        raise ComparisonError(
            f"{side} is a {type(one).__name__}, and the other side is a recording. Compare two models with an input, "
            "or two recordings: tl.log_forward_pass(model, x) makes one."
        )
    history = one if isinstance(one, ModelHistory) else load(one, arrays=True)
    if history.record.run.error is not None:
        raise ComparisonError(
            f"{side}'s run raised {history.record.run.error} and has no outputs to compare. Record it again."
        )
    return Recording(history.record, history.payloads)
