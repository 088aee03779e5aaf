"""Checks who imports whom: ``python tools/check_imports.py [root of the tree]``.

The rooms of ``src/torcheer`` may be joined in one direction only (CONTRIBUTING.md), torch is imported only
where models run, and torch's private names are touched in one file. This reads the sources, it runs nothing;
imports inside functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GROUND = {"errors", "units", "shown", "whole_file"}
READERS = {"history", "profiling", "diff"}
OUTSIDE = {"web", "cli", "integrations"}
INSIDE = GROUND | READERS | {"record", "store", "capture", "watching", "views"}

# room: the other rooms it may import. "torcheer" is __init__.py.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "whole_file": {"errors"},
    "shown": {"whole_file"},  # it finds views by name, when somebody wants to see something
    "record": GROUND,
    "store": GROUND | {"record"},
    "capture": GROUND | {"record", "diff"},  # it implements the seam of diff, diff/side.py
    **{room: GROUND | {"record"} for room in READERS},
    "watching": GROUND | {"record", "store", "capture"},
    "views": GROUND | READERS | {"record", "store"},
    "api": INSIDE,
    "torcheer": INSIDE | {"api"},
    "web": INSIDE - {"capture"} | {"api", "torcheer"},
    "cli": INSIDE - {"capture"} | {"api", "torcheer"},
    "integrations": GROUND | {"record", "store", "watching", "api", "torcheer"},
}

# framework: the folders that may import it.
FRAMEWORKS = {
    "torch": ("capture/torch", "watching", "integrations"),
    "safetensors.torch": ("capture/torch", "watching", "integrations"),
    "paddle": ("capture/paddle",),
    "safetensors.paddle": ("capture/paddle",),
    "onnx": ("capture/onnx",),
    "onnxruntime": ("capture/onnx",),
}
# Not among our dependencies, or slow: never imported because a room is. numpy is one of ours and takes a
# moment to load, so only the rooms that compute with it have it at module level, and nobody loads those unasked.
OPTIONAL = ("pandas", "pyarrow")
WITHOUT_NUMPY = GROUND | {"record", "capture", "history", "api", "torcheer"}
PRIVATE_FILE = "capture/torch/private.py"
IMPORTERS = {"import_module", "__import__"}
ATTRIBUTE_CALLS = {"getattr", "setattr", "hasattr", "delattr"}
NO_REASON = re.compile(r"#\s*(noqa|type:\s*ignore|pragma)\b[^#]*")


class Import(NamedTuple):
    """One imported name: for ``from a.b import c`` the name is a.b.c and the module a.b."""

    line: int
    name: str
    module: str
    in_function: bool
    for_types: bool  # under `if TYPE_CHECKING:`


def is_under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def private_part(name: str | None) -> str | None:
    """``torch._C`` for ``torch._C._autograd``; None where a dotted name is public or not torch's."""
    parts = (name or "").split(".")
    for position, part in enumerate(parts):
        if parts[0] == "torch" and part.startswith("_") and not part.endswith("__"):
            return ".".join(parts[: position + 1])
    return None


def text_argument(call: ast.Call, position: int) -> str | None:
    """The argument at that position if it is a literal text."""
    argument = call.args[position] if len(call.args) > position else None
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """``torch.nn._x`` for that chain of attributes, with its first name resolved; None for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])


class Source:
    """One file: its imports, and what its names stand for."""

    def __init__(self, path: Path, package: list[str]) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text, str(path))
        self.package = package
        self.aliases: dict[str, str] = {}
        self.imports: list[Import] = []
        self._visit(self.tree, in_function=False, for_types=False)

    def _visit(self, node: ast.AST, in_function: bool, for_types: bool) -> None:
        for name, module, bound, target in self._imported(node):
            self.imports.append(Import(node.lineno, name, module, in_function, for_types))  # type: ignore[attr-defined]
            if bound:
                self.aliases[bound] = target
        guarded = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        body = node.body if isinstance(node, ast.If) and guarded else []
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            self._visit(child, inside, for_types or child in body)

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, str, str, str]]:
        """Yield (name, module, name bound here, what that stands for)."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                yield alias.name, alias.name, alias.asname or first, alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                anchor = self.package[: len(self.package) - node.level + 1]
                module = ".".join([*anchor, *([module] if module else [])])
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield name, module, alias.asname or alias.name, name
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in IMPORTERS:
            target = text_argument(node, 0)
            if target:
                yield target, target, "", ""

    def private_uses(self) -> Iterator[tuple[int, str]]:
        """Private names of torch, imported or reached through attributes."""
        uses: list[tuple[int, str | None]] = [(found.line, found.name) for found in self.imports]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                uses.append((node.lineno, dotted(node, self.aliases)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ATTRIBUTE_CALLS:
                owner, attribute = dotted(node.args[0], self.aliases), text_argument(node, 1)
                uses.append((node.lineno, f"{owner}.{attribute}" if owner and attribute else None))
        for line, name in uses:
            private = private_part(name)
            if private:
                yield line, private

    def has_reason(self, line: int) -> bool:
        """Whether an import inside a function, or the run of imports it belongs to, has a comment."""
        lines = self.text.splitlines()
        import_lines = {found.line for found in self.imports}
        while line >= 1:
            text = NO_REASON.sub("", lines[line - 1])
            if "#" in text:
                return True
            if line not in import_lines:
                return False
            line -= 1
        return False


def room_of(name: str) -> str:
    """The room of a dotted name of ours."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "torcheer"


def import_faults(source: Source, found: Import, room: str, place: str) -> Iterator[str]:
    if is_under(found.name, "torcheer"):
        target = room_of(found.name)
        # The version is a constant that needs no room.
        if target not in {room, *MAY_IMPORT[room]} and found.name != "torcheer.__version__":
            yield f"room {room} may not import {target}"
    for framework, folders in FRAMEWORKS.items():
        if is_under(found.name, framework) and not place.startswith(tuple(f"{f}/" for f in folders)):
            yield f"room {room} may not import {framework} (only {', '.join(folders)} may)"
    slow = (*OPTIONAL, "numpy") if room in WITHOUT_NUMPY else OPTIONAL
    for package in slow:
        at_import = not (found.in_function or found.for_types)
        if is_under(found.name, package) and at_import and room not in OUTSIDE:
            yield f"room {room} may not import {package} at module level"
    if found.in_function and not source.has_reason(found.line):
        yield f"import of {found.module} inside a function without a comment that gives the reason"


def file_faults(path: Path, home: Path) -> Iterator[tuple[int, str]]:
    place = path.relative_to(home).as_posix()
    parts = ["torcheer", *place.removesuffix(".py").split("/")]
    if parts[-1] == "__init__":
        source, parts = Source(path, parts[:-1]), parts[:-1]
    else:
        source = Source(path, parts[:-1])
    room = {"__main__": "cli"}.get(parts[1], parts[1]) if len(parts) > 1 else "torcheer"
    if room not in MAY_IMPORT:
        yield 1, f"room {room} has no rule: say in tools/check_imports.py what it may import"
        return
    for found in source.imports:
        for fault in import_faults(source, found, room, place):
            yield found.line, fault
    if place != PRIVATE_FILE:
        for line, name in source.private_uses():
            yield line, f"{name} is private to torch: only {PRIVATE_FILE} may touch it"


def check(root: Path) -> list[str]:
    """All faults of a tree, as ``file:line: what``."""
    home = root / "src" / "torcheer"
    files = sorted(home.rglob("*.py"))
    if not files:
        return [f"{home}: no Python file to check"]
    faults = {(path, line, text) for path in files for line, text in file_faults(path, home)}
    for path in sorted((root / "tests" / "unit").rglob("*.py")):
        for found in Source(path, ["tests", "unit"]).imports:
            faults.update(
                (path, found.line, f"tests/unit may not import {name}: put it in tests/{name}")
                for name in ("torch", "paddle")
                if is_under(found.name, name)
            )
    return [f"{path.relative_to(root).as_posix()}:{line}: {text}" for path, line, text in sorted(faults)]


def main(arguments: list[str]) -> int:
    faults = check(Path(arguments[0]) if arguments else Path(__file__).parents[1])
    print("\n".join(faults) if faults else "imports: every room keeps its direction")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
