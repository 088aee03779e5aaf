"""How the user's arguments become a call of the model, whichever framework runs it.

``log_forward_pass(model, x)`` calls ``model(x)``; a list or tuple is the positional arguments, as in
``model(*x)``; a dict whose keys are parameters of the model's forward is its keyword arguments, as in
``model(**batch)``. Several positional arguments, or keyword arguments, are passed on as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from torcheer.errors import CaptureError


class Arguments(NamedTuple):
    """One call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...] = ()  # of the positional arguments, as far as the forward names them

    def tensors(self, is_tensor: Callable[[Any], bool]) -> list[tuple[str, Any]]:
        """Every tensor handed in, once, with its path: ``x``, ``batch.mask``."""
        positional = {
            (self.names[place] if place < len(self.names) else str(place)): given
            for place, given in enumerate(self.args)
        }
        found: dict[int, tuple[str, Any]] = {}
        for path, tensor in tensors_in({**positional, **self.kwargs}, is_tensor):
            found.setdefault(id(tensor), (path, tensor))
        return list(found.values())


def arrange(target: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Decide how the given arguments call the model, and refuse what cannot be a call.

    ``target`` is what takes the arguments, the model's forward; ``name`` is what errors call the model.
    """
    signature = _signature(target)
    if len(args) == 1 and not kwargs:
        given = args[0]
        if isinstance(given, (list, tuple)) and not hasattr(given, "_fields"):
            return _of_sequence(signature, given)
        if isinstance(given, dict) and signature is not None and _fits(signature, (), given):
            return Arguments((), dict(given))
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CaptureError(
                f"{name} cannot be called with these inputs: {error}. Its forward is "
                f"forward{signature}. Give one tensor, a tuple or list of positional arguments, "
                "a dict of keyword arguments, or the arguments themselves."
            ) from None
    return Arguments(args, dict(kwargs), _positional_names(signature))


def positional_names(target: Callable[..., Any]) -> tuple[str, ...]:
    """What the target calls its positional arguments."""
    return _positional_names(_signature(target))


def tensors_in(structure: Any, is_tensor: Callable[[Any], bool], path: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors of a nested structure, in order, with the paths that lead to them."""
    if is_tensor(structure):
        yield path, structure
        return
    prefix = f"{path}." if path else ""
    for key, item in parts_of(structure):
        yield from tensors_in(item, is_tensor, f"{prefix}{key}")


def parts_of(structure: Any) -> Iterable[tuple[Any, Any]]:
    """What a tuple, list, mapping or dataclass is made of, each with its key; of anything else nothing."""
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return zip(structure._fields, structure, strict=True)
    if isinstance(structure, (tuple, list)):
        return enumerate(structure)
    if isinstance(structure, Mapping):
        return structure.items()
    if not isinstance(structure, type) and hasattr(structure, "__dataclass_fields__"):
        return ((name, getattr(structure, name, None)) for name in structure.__dataclass_fields__)
    return ()


def _of_sequence(signature: inspect.Signature | None, given: Any) -> Arguments:
    """A list or tuple is the positional arguments, unless the model can only take it whole."""
    spread = tuple(given)
    if _fits(signature, spread, {}):
        return Arguments(spread, {}, _positional_names(signature))
    if _fits(signature, (given,), {}):
        return Arguments((given,), {}, _positional_names(signature))
    raise CaptureError(
        f"The model's forward is forward{signature}, and it was given {len(spread)} positional arguments. "
        "A tuple or list is spread over the positional arguments; to pass it as one argument, wrap it once more: "
        "((a, b),)."
    )


def _signature(target: Callable[..., Any]) -> inspect.Signature | None:
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
