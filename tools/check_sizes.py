"""Checks that files, functions and signatures stay small: ``python tools/check_sizes.py [root of the tree]``.

Above the first number it warns, above the second it fails. Small parts are what lets a stranger change one
without reading the rest.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("src", "tools", "tests", "benchmarks", "examples")
FILE_LINES = (400, 600)
FUNCTION_LINES = (50, 100)
PARAMETERS = (7, 7)  # those that can be given by position; keyword-only ones are free
PUBLIC_NAMES = (15, 25)


class Finding(NamedTuple):
    place: str  # "src/torcheer/units.py:12"
    text: str
    fails: bool


def measured(place: str, what: str, count: int, limits: tuple[int, int]) -> Iterator[Finding]:
    warn, fail = limits
    if count > fail:
        yield Finding(place, f"{what}: {count}, at most {fail}", True)
    elif count > warn:
        yield Finding(place, f"{what}: {count}, better at most {warn}", False)


def num_positional(node: ast.FunctionDef | ast.AsyncFunctionDef, is_method: bool) -> int:
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
    count = len(node.args.posonlyargs) + len(node.args.args)
    return count - 1 if is_method and not static and count else count


def function_findings(tree: ast.Module, place: str) -> Iterator[Finding]:
    methods = {id(child) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        here, name = f"{place}:{node.lineno}", f"{node.name}()"
        num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
        yield from measured(here, f"lines of {name}", num_lines, FUNCTION_LINES)
        num_parameters = num_positional(node, id(node) in methods)
        yield from measured(here, f"positional parameters of {name}", num_parameters, PARAMETERS)


def public_names(tree: ast.Module) -> list[str]:
    """The names in ``__all__``, which must be a literal."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def check(root: Path) -> list[Finding]:
    """All findings of a tree, in order of path."""
    findings: list[Finding] = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        place = path.relative_to(root).as_posix()
        findings += measured(place, "lines", len(text.splitlines()), FILE_LINES)
        findings += function_findings(tree, place)
        if place == "src/torcheer/__init__.py":
            findings += measured(place, "public names", len(public_names(tree)), PUBLIC_NAMES)
    return findings


def main(arguments: list[str]) -> int:
    findings = check(Path(arguments[0]) if arguments else Path(__file__).parents[1])
    for place, text, fails in findings:
        print(f"{place}: {'error' if fails else 'warning'}: {text}")
    failed = any(finding.fails for finding in findings)
    if not failed:
        print("sizes: within limits")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
