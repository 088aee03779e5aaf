"""The public functions that profile: run a model or watch the user's own run, and return a report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torcheer.errors import CaptureError
from torcheer.profiling import Report, build

MEASURES = ("time", "memory", "flops", "nan")
EXECUTIONS = ("real", "fake")


def profile(
    model: Any,
    *args: Any,
    backward: bool = False,
    loss: Callable[[Any], Any] | None = None,
    measure: str | tuple[str, ...] = MEASURES,
    repeats: int = 5,
    warm_up: int = 1,
    execution: str = "real",
    **kwargs: Any,
) -> Report:
    """Profile ``model`` on the given inputs: time, memory, FLOPs, and where NaN is born, per module and per op.

    Inputs are given as to ``log_forward_pass``. The model runs once measured, then ``warm_up`` and ``repeats`` times
    for its times; params, buffers, gradients and random state are as before afterwards.

    backward: also run and profile a backward pass, from ``loss(output)``, or else from the model's own loss or the mean
        of what it returned.
    measure: any of "time", "memory", "flops", "nan".
    execution: "fake" computes nothing: shapes, FLOPs and predicted memory of a model that may be on the meta device.

    If the model raises, the exception comes through, with the report so far as its attribute ``report``.
    """
    # torch takes seconds to import; only a run needs it.
    from torcheer.capture.torch import inputs
    from torcheer.capture.torch.profiled import Wish, profile_run

    chosen = _measures(measure)
    if execution not in EXECUTIONS:
        raise CaptureError(f"execution is {execution!r}. It takes one of {', '.join(map(repr, EXECUTIONS))}.")
    if repeats < 0 or warm_up < 0:
        raise CaptureError("repeats and warm_up count runs: give 0 or more.")
    call = inputs.arrange(model, args, kwargs)
    wish = Wish(chosen, backward, loss, repeats, warm_up)
    try:
        return build(profile_run(model, call, wish))
    except BaseException as error:
        record_of = getattr(error, "profile_record", None)
        if record_of is not None:
            # An exception class of the user's may refuse further attributes.
            with suppress(AttributeError):
                error.report = build(record_of())  # type: ignore[attr-defined]
                del error.profile_record  # type: ignore[attr-defined]
        raise


def _measures(measure: str | tuple[str, ...]) -> tuple[str, ...]:
    chosen = (measure,) if isinstance(measure, str) else tuple(measure)
    wrong = [one for one in chosen if one not in MEASURES]
    if wrong or not chosen:
        what = repr(wrong[0]) if wrong else "empty"
        raise CaptureError(f"measure is {what}. It takes any of {', '.join(map(repr, MEASURES))}.")
    return tuple(one for one in MEASURES if one in chosen)


__all__ = ["profile"]
