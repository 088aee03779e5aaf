"""How the user's arguments become a call of the model.

``log_forward_pass(model, x)`` calls ``model(x)``; a list or tuple is the positional arguments, as in
``model(*x)``; a dict whose keys are parameters of the model's forward is its keyword arguments, as in
``model(**batch)``. Several positional arguments, or keyword arguments, are passed on as they are.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from torcheer.capture.torch.tape import named_tensors
from torcheer.errors import CaptureError


@dataclass
class Inputs:
    """One call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...] = ()  # of the positional arguments, as far as the forward names them

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor handed in, once, with its path: ``x``, ``batch.mask``."""
        seen: set[int] = set()
        result = []
        positional = {
            (self.names[place] if place < len(self.names) else str(place)): given
            for place, given in enumerate(self.args)
        }
        for path, tensor in named_tensors({**positional, **self.kwargs}):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                result.append((path, tensor))
        return result


def arrange(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Decide how the given arguments call the model, and refuse what cannot be a call."""
    if not callable(model) or isinstance(model, torch.Tensor):
        raise CaptureError(
            f"The first argument is the model, and a {type(model).__name__} is none. "
            "Call log_forward_pass(model, x), with the model first and its inputs after it."
        )
    signature = _signature(model)
    if len(args) == 1 and not kwargs:
        given = args[0]
        if isinstance(given, (list, tuple)) and not hasattr(given, "_fields"):
            return _of_sequence(signature, given)
        if isinstance(given, dict) and signature is not None and _fits(signature, (), given):
            return Inputs((), dict(given))
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CaptureError(
                f"{_name(model)} cannot be called with these inputs: {error}. Its forward is "
                f"forward{signature}. Give one tensor, a tuple or list of positional arguments, "
                "a dict of keyword arguments, or the arguments themselves."
            ) from None
    return Inputs(args, dict(kwargs), _positional_names(signature))


def _of_sequence(signature: inspect.Signature | None, given: Any) -> Inputs:
    """A list or tuple is the positional arguments, unless the model can only take it whole."""
    spread = tuple(given)
    if _fits(signature, spread, {}):
        return Inputs(spread, {}, _positional_names(signature))
    if _fits(signature, (given,), {}):
        return Inputs((given,), {}, _positional_names(signature))
    raise CaptureError(
        f"The model's forward is forward{signature}, and it was given {len(spread)} positional arguments. "
        "A tuple or list is spread over the positional arguments; wrap it once more to pass it as one."
    )


def _signature(model: Any) -> inspect.Signature | None:
    target = getattr(model, "forward", model) if isinstance(model, torch.nn.Module) else model
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _positional_names(signature: inspect.Signature | None) -> tuple[str, ...]:
    if signature is None:
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in signature.parameters.values() if one.kind in positional)


def _fits(signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if signature is None:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", str(model))
