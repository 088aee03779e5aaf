"""Writes ``docs/reference/api.md`` from the docstrings of the public names, and of what they return.

    python tools/gen_api_reference.py           write the page
    python tools/gen_api_reference.py --check   fail when the page is not what would be written

Reads the sources without running them, so that it needs no framework.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.pages import REFERENCE, ROOT, prose, write_or_check

HOME = ROOT / "src" / "torcheer"
PAGE = REFERENCE / "api.md"
HEAD = """\
# The Python interface

<!-- Written by tools/gen_api_reference.py from the docstrings. Change them. -->

`import torcheer as tl` gives these names. It imports neither torch nor Paddle; what needs one imports it when it is
called. `tl.` completes to the first part of them.
"""
SPECIAL = "# For special cases, and for those who come from another tool"
# What a user holds without having named its class: where it is defined.
RETURNED = {
    "OpView": "torcheer.history.op_view",
    "LayerView": "torcheer.history.layer_view",
    "ModuleView": "torcheer.history.module_view",
    "CallView": "torcheer.history.module_view",
    "ParamView": "torcheer.history.module_view",
    "AtenView": "torcheer.history.aten_view",
    "Picture": "torcheer.views.picture",
    "Validation": "torcheer.capture.torch.validate",
    "Report": "torcheer.profiling.report",
    "AutodiffReport": "torcheer.diff.autodiff",
    "Watch": "torcheer.watching.watch",
    "Run": "torcheer.store.reader",
    "Server": "torcheer.api.explore",
}
ARGUMENT = re.compile(r"((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*): (.*)")

Definition = ast.FunctionDef | ast.ClassDef


def page_of() -> str:
    """Return the page."""
    parts = [HEAD]
    public, offered = public_names(), offered_names()
    for name in sorted(public, key=lambda name: name not in offered):  # each part stays in the order of names
        if name not in offered and SPECIAL not in parts:
            parts.append(SPECIAL)
        parts += list(_described(find(public[name], name), f"tl.{name}"))
    parts.append("# What they return")
    for name, module in RETURNED.items():
        parts += list(_described(find(module, name), name))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def public_names() -> dict[str, str]:
    """The public names and the modules that have them."""
    for node in _tree(HOME / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            homes: dict[str, str] = ast.literal_eval(node.value)
            return dict(sorted(homes.items(), key=lambda item: item[0].lower()))
    raise ValueError("src/torcheer/__init__.py has no _HOMES")


def offered_names() -> set[str]:
    """The names that ``tl.`` completes to."""
    tree = _tree(HOME / "__init__.py")
    lists = (node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    return set(ast.literal_eval(next(lists).value))


def find(module: str, name: str) -> Definition:
    """The definition of a name, where it really is: names of a package come from a file in it."""
    parts = module.split(".")[1:]
    path = HOME.joinpath(*parts)
    tree = _tree(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return find(node.module or "", name)
    raise ValueError(f"{module} has no {name}")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _described(node: Definition, shown: str) -> Iterator[str]:
    yield f"## {shown}"
    if isinstance(node, ast.FunctionDef):
        yield f"```py\n{_signature(node, shown)}\n```"
        yield markdown(ast.get_docstring(node))
        return
    init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if init is not None and shown.startswith("tl."):
        yield f"```py\n{_signature(init, shown)}\n```"
    yield markdown(ast.get_docstring(node))
    members = list(_members(node))
    if members:
        yield "\n".join(["| | |", "|---|---|", *members])


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Rows of the table of a class: its methods, properties and fields."""
    seen = set()
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            doc = ast.get_docstring(one)
            if doc is None or one.name in seen:
                continue  # an overload, or what only this package calls
            seen.add(one.name)
            decorators = {ast.unparse(decorator) for decorator in one.decorator_list}
            is_property = bool(decorators & {"property", "cached_property"})
            name = one.name if is_property else f"{one.name}({_arguments(one.args)})"
            first = " ".join(prose(doc.split("\n\n")[0]).split()).replace("|", "\\|")
            yield f"| `{name.replace('|', chr(92) + '|')}` | {first} |"


def _signature(node: ast.FunctionDef, shown: str) -> str:
    """As it is called, without annotations, which the prose puts into words."""
    text = f"{shown}({_arguments(node.args)})"
    if len(text) <= 100:
        return text
    return f"{shown}(\n" + "".join(f"    {one},\n" for one in _argument_list(node.args)) + ")"


def _arguments(given: ast.arguments) -> str:
    return ", ".join(_argument_list(given))


def _argument_list(given: ast.arguments) -> list[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    listed = [_with_default(one.arg, default) for one, default in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        listed = listed[1:]
    if given.vararg is not None:
        listed.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        listed.append("*")
    listed += [
        _with_default(one.arg, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return [*listed, *([f"**{given.kwarg.arg}"] if given.kwarg is not None else [])]


def _with_default(name: str, default: ast.expr | None) -> str:
    return name if default is None else f"{name}={ast.unparse(default)}"


def markdown(docstring: str | None) -> str:
    """A docstring as Markdown: a paragraph of ``name: meaning`` lines is a list."""
    parts = []
    for paragraph in prose(docstring).split("\n\n"):
        lines = paragraph.split("\n")
        if not ARGUMENT.fullmatch(lines[0]):
            parts.append(paragraph)
            continue
        items: list[str] = []
        for line in lines:
            found = ARGUMENT.fullmatch(line)
            if found is not None:
                items.append(f"- **{found[1]}**: {found[2]}")
            else:
                items[-1] += f"\n  {line.strip()}"
        parts.append("\n".join(items))
    return "\n\n".join(parts)


def main(arguments: list[str], page: Path = PAGE) -> int:
    """Write or check the page; return the exit status."""
    return write_or_check(page, page_of(), arguments, "gen_api_reference")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
