"""Models and factories by name: ``package.module:Net``, ``file.py:make_net``, ``file.py:Net(hidden=64)``, ``file.py``.

What is named is imported the way Python would: a file as if it were run, with its folder first on the path; a module
with the current folder first on the path. Arguments are literals only, so that a name is never a program.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torcheer.errors import CaptureError, near_misses


@dataclass(frozen=True)
class Name:
    """A name taken apart."""

    text: str  # as it was given
    place: str  # "net.py", "package.module"
    attribute: str  # "Net"; "" where none was given
    args: tuple[Any, ...] | None = None  # None: no parentheses
    kwargs: dict[str, Any] = field(default_factory=dict)


def parse(text: str) -> Name:
    """Take a name apart, without importing anything."""
    place, colon, rest = text.partition(":")
    if len(place) == 1 and rest[:1] in ("\\", "/"):  # a drive letter of Windows
        more, colon, rest = rest.partition(":")
        place = f"{place}:{more}"
    if not place:
        raise CaptureError(f"{text!r} names no module. Write package.module:Net or file.py:Net.")
    if not colon:
        return Name(text, place, "")
    try:
        node = ast.parse(rest, mode="eval").body
        if isinstance(node, ast.Call):
            args = tuple(ast.literal_eval(one) for one in node.args)
            kwargs = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
            return Name(text, place, _dotted(node.func), args, kwargs)
        return Name(text, place, _dotted(node))
    except (SyntaxError, ValueError):
        raise CaptureError(
            f"{rest!r} in {text!r} is not a name. After the colon comes a class, a function or an object, with literal "
            "arguments where it needs any: file.py:Net, file.py:Net(hidden=64). For more, write a function."
        ) from None


def check(name: Name) -> None:
    """Raise where a name is the path of nothing, before anything is imported."""
    place, path = name.place, Path(name.place)
    if path.suffix == ".py" and not path.is_file():
        near = near_misses(path.name, [one.name for one in path.parent.glob("*.py")]) if path.parent.is_dir() else ""
        raise CaptureError(f"There is no file {str(path)!r}.{near or ' Give the path from here.'}")
    if not path.is_file() and (path.suffix == ".tch" or os.sep in place):
        raise CaptureError(f"There is no {place!r}. Give the path of a recording or of a Python file, from here.")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ValueError


def find(name: Name) -> Any:
    """Import what a name names, and call it where it is a class or a function."""
    module = _module(name)
    target: Any = module if name.attribute else _only_model(module, name)
    for part in filter(None, name.attribute.split(".")):
        if not hasattr(target, part):
            known = [one for one in vars(target) if not one.startswith("_")] if hasattr(target, "__dict__") else []
            hint = near_misses(part, known) or f" It has: {', '.join(sorted(known)[:20]) or 'nothing'}."
            raise CaptureError(f"{name.place} has no {part!r}.{hint}")
        target = getattr(target, part)
    if isinstance(target, ModuleType):
        raise CaptureError(f"{name.text!r} is a module. Say what in it is meant: {name.text}:Net.")
    if name.args is not None:
        return target(*name.args, **name.kwargs)
    return target() if isinstance(target, type) or (not _is_model(target) and callable(target)) else target


def model(text: str) -> Any:
    """The model of a name."""
    made = find(parse(text))
    if not _is_model(made):
        raise CaptureError(
            f"{text!r} gave a {type(made).__name__}, where a model is needed. Name a torch.nn.Module, a Paddle layer, "
            "its class, or a function that returns one."
        )
    return made


def _is_model(value: Any) -> bool:
    """A torch.nn.Module or a paddle.nn.Layer, seen without importing either."""
    return not isinstance(value, type) and callable(value) and hasattr(value, "state_dict")


def _module(name: Name) -> ModuleType:
    check(name)
    path = Path(name.place)
    if path.suffix == ".py" or path.is_file():
        return _module_of_file(path)
    _first_on_path(Path.cwd())
    try:
        return import_module(name.place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name.place}.".startswith(f"{error.name}."):
            raise  # of something it imports in turn
        raise CaptureError(
            f"There is no module {error.name!r}. Write package.module:Net with a module that Python finds from "
            f"{Path.cwd()}, or file.py:Net."
        ) from None


def _module_of_file(path: Path) -> ModuleType:
    full = path.resolve()
    known = sys.modules.get(full.stem)
    if known is not None and getattr(known, "__file__", None) == str(full):
        return known
    _first_on_path(full.parent)
    spec = importlib.util.spec_from_file_location(full.stem, full)
    assert spec is not None
    assert spec.loader is not None  # it has the loader of a Python file
    module = importlib.util.module_from_spec(spec)
    # A file named like a module that is loaded already keeps out of its way.
    sys.modules[full.stem if known is None else f"torcheer_file_{full.stem}"] = module
    spec.loader.exec_module(module)
    return module


def _first_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _only_model(module: ModuleType, name: Name) -> Any:
    """The one model a file defines, where the name does not say which."""
    own = {key: value for key, value in vars(module).items() if key[0] != "_" and _is_own_model(value, module)}
    if len(own) == 1:
        return next(iter(own.values()))
    what = f"It has several: {', '.join(own)}" if own else "It defines no model itself"
    example = f"{name.text}:{next(iter(own), 'Net')}"
    raise CaptureError(f"{name.text!r} does not say which model is meant. {what}. Write {example}.")


def _is_own_model(value: Any, module: ModuleType) -> bool:
    if isinstance(value, type):
        return value.__module__ == module.__name__ and hasattr(value, "state_dict")
    return _is_model(value)
