"""The public functions that join rooms: run a model, get a view of its record.

torch is imported when a model is to be run, so that opening a recording needs none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, overload

from torcheer.errors import CaptureError, RecordFileError
from torcheer.history import ModelHistory, Ranks
from torcheer.record import file
from torcheer.record.interrupts import no_interrupts

if TYPE_CHECKING:
    from torcheer.capture.asked import LayersToSave
    from torcheer.capture.torch.validate import Validation

_VIS_OPTIONS = ("none", "rolled", "unrolled")


def log_forward_pass(
    model: Any,
    *args: Any,
    layers_to_save: LayersToSave = "all",
    vis_opt: str | None = "none",
    save_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> ModelHistory:
    """Run ``model`` once on the given inputs and return the history of every operation.

    ``log_forward_pass(model, x)`` calls ``model(x)``; a tuple or list is spread over the positional arguments,
    a dict over the keyword arguments. Further arguments and keyword arguments are passed on.

    layers_to_save: whose results to keep: ``"all"``, ``"none"`` or None, a list of keys (module addresses,
        layer labels, positions) or a function that takes an op and returns True to keep its result.
        Structure and metadata are recorded for every operation in any case.
    vis_opt: ``"rolled"`` or ``"unrolled"`` puts the picture that ``history.draw`` makes into ``history.drawing``.
    save_to: a path; contents go there while the model runs, so that they need not fit in memory.

    The run is the user's: same output, same random numbers, same side effects as ``model(x)``. If it raises,
    the exception comes through as it is, with the history so far as its attribute ``model_history``.
    """
    if vis_opt is not None and vis_opt not in _VIS_OPTIONS:
        raise CaptureError(f"vis_opt is {vis_opt!r}. It takes one of {', '.join(map(repr, _VIS_OPTIONS))}.")
    make_session = _paddle_session if is_paddle(model, *args, *kwargs.values()) else _torch_session
    start = make_session(model, args, kwargs, layers_to_save)
    if save_to is not None and os.path.lexists(save_to):
        raise RecordFileError(
            f"{os.fspath(save_to)} exists already, and a recording made while a model runs never replaces one. "
            "Give save_to another path, or remove it first."
        )
    writer: file.TensorWriter | None = None
    history: ModelHistory | None = None
    try:
        with no_interrupts():  # or a folder could be made that nobody removes
            writer = None if save_to is None else file.TensorWriter(save_to)
            session = start(writer)
            history = ModelHistory(session.record, session.payloads, session)
        session.run()
        if _are_keys(layers_to_save):
            # Only now are the labels final, and only now can a key turn out to name nothing.
            _ = history.record
        if writer is not None:
            session.store = writer.finish(history.record)
    except BaseException as error:
        if writer is not None:
            writer.abort()
            if history is not None:
                session.store = {}
        # An exception class of the user's may refuse further attributes.
        with suppress(AttributeError):
            error.model_history = history  # type: ignore[attr-defined]
        raise
    if vis_opt in ("rolled", "unrolled"):
        history.drawing = history.draw(rolled=vis_opt == "rolled")
    return history


def _torch_session(model: Any, args: Any, kwargs: Any, layers_to_save: LayersToSave) -> Callable[[Any], Any]:
    # torch takes seconds to import; only a run needs it.
    from torcheer.capture.torch import inputs, select
    from torcheer.capture.torch.session import TorchSession

    call, wanted = inputs.arrange(model, args, kwargs), select.parse(layers_to_save, model)
    return lambda store: TorchSession(model, call, wanted, store)


def _paddle_session(model: Any, args: Any, kwargs: Any, layers_to_save: LayersToSave) -> Callable[[Any], Any]:
    # Paddle is an extra.
    from torcheer.capture.paddle.session import PaddleSession, arrange_call

    call = arrange_call(model, args, kwargs)
    return lambda store: PaddleSession(model, call, layers_to_save, store)


def is_paddle(*values: Any) -> bool:
    """Is one of these a layer or a tensor of Paddle's? Without Paddle imported, nothing is."""
    paddle = sys.modules.get("paddle")
    layer, tensor = getattr(getattr(paddle, "nn", None), "Layer", None), getattr(paddle, "Tensor", None)
    return layer is not None and tensor is not None and any(isinstance(value, (layer, tensor)) for value in values)


def refuse_paddle(name: str, *values: Any) -> None:
    """Raise ``CaptureError`` where a function that measures PyTorch was given something of Paddle's."""
    if is_paddle(*values):
        raise CaptureError(
            f"tl.{name} works on PyTorch models, and was given one of Paddle's, whose backward operations, memory and "
            "kernels cannot be seen. Use tl.log_forward_pass, tl.autodiff or tl.copy_weights for a Paddle layer."
        )


def _are_keys(layers: LayersToSave) -> bool:
    return layers is not None and not callable(layers) and not (isinstance(layers, str) and layers in {"all", "none"})


@overload
def load(path: str | os.PathLike[str], *, arrays: bool = False) -> ModelHistory: ...


@overload
def load(path: list[str | os.PathLike[str]], *, arrays: bool = False) -> Ranks: ...


def load(path: str | os.PathLike[str] | list[str | os.PathLike[str]], *, arrays: bool = False) -> ModelHistory | Ranks:
    """Open a recording that ``history.save`` or ``save_to`` wrote. Needs torch only for contents of tensors.

    path: the folder of the recording: ``"run.tch"``. A list of them, one per rank of a distributed run, or a folder
        that holds them and nothing else to open, opens them side by side.
    arrays: contents are numpy arrays, but for dtypes that numpy lacks, and torch is not imported.
    """
    if isinstance(path, list) and not path:
        raise RecordFileError("load was given an empty list. Pass the path of a recording, or those of all ranks.")
    paths = path if isinstance(path, list) else file.recordings_in(path)
    if isinstance(path, list) or paths:
        return Ranks([_load_one(one, arrays=arrays) for one in paths])
    return _load_one(path, arrays=arrays)


def _load_one(path: str | os.PathLike[str], *, arrays: bool) -> ModelHistory:
    record, payloads = file.read(path, arrays=arrays)
    return ModelHistory(record, payloads)


def validate(model: Any, *args: Any, **kwargs: Any) -> Validation:
    """Prove a recording of ``model`` on the given inputs. True when every check passed; prints as a report.

    The recorded run equals a plain run bit for bit; every op, executed again from its recorded inputs, gives
    its recorded output; every tensor an op read is what its parents wrote; changing a parent changes the op;
    an independent census of ATen calls finds none missing. Model and random state are left as they were.
    """
    refuse_paddle("validate", model)
    # As above.
    from torcheer.capture.torch import inputs
    from torcheer.capture.torch.validate import validate_capture

    return validate_capture(model, inputs.arrange(model, args, kwargs))


__all__ = ["load", "log_forward_pass", "validate"]
