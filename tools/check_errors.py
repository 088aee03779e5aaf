"""Checks that every error text ends in the remedy: ``python tools/check_errors.py [root of the tree]``.

What is looked at is the text of each ``SomeError("…")`` in the sources, for TorcheerError and all that derive from it;
what is put in when it is raised stands as {…}. The last sentence, or a part of it, must

- begin with what to do (``Pass …``, ``Record again …``, ``in a clone, run …``), or
- say what there is to choose from (``It takes one of …``, ``Did you mean …``), or
- be put in from a name that holds such a sentence (``hint``, ``near_misses(…)``),

and end as a sentence does, or in a command to be copied. Every class stands in the tree of them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ERRORS = "src/torcheer/errors.py"
FOLDER = "src/torcheer"
ROOT_CLASS = "TorcheerError"

DO = (
    "add ask call change check choose close compare convert copy create draw export follow give go hand install keep "
    "leave look make mark move name open pass pick print profile put read record remove repair replace return run save "
    "say send set show start take tell try turn upgrade use wait watch work wrap write"
).split()
CHOICES = (
    "it takes",
    "it has to",
    "they take",
    "there are",
    "it has:",
    "the tables",
    "did you mean",
    "keys are",
    "a key is",
)
# Names, attributes and functions whose text is the remedy or ends in it; tests of what makes them read these texts.
REMEDIES = (
    "near_misses", "hint", "HINT", "RESTORE", "remedy", "near", "how_to_save", "_why_no_gradient", "_explain",
    "unsaved_text", "_why_unfinished", "_valid_positions", "NO_KEY", "near_or_all", "text_of", "_REMEDIES",
    "NOT_STARTED",
)  # fmt: skip
BREAKS = re.compile(r"(?<=[a-z)\]}'\"`…]): |[.?!] |[,;] |—|\(| or | and ")
ENDS = (".", "?", "…", ")")
COMMAND = re.compile(r"(pip install|torcheer|tl\.watch)\b[^.]*$")


class Finding(NamedTuple):
    place: str  # "src/torcheer/units.py:12"
    text: str


def family(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """TorcheerError and the classes that derive from it, by name."""
    found: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            if node.name == ROOT_CLASS or bases & set(found):
                found[node.name] = node
    return found


def text_of(node: ast.expr) -> str:
    """A text as the source has it, with {expression} for what is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return "{" + ast.unparse(inner).replace("{", "(").replace("}", ")") + "}"


def texts(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the text of each error that is made: once for each thing that a variable at its end may be."""
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            known = _assigned(scope, names)
            for node in _own_nodes(scope):
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
                    text = text_of(node.args[0]) if node.args else ""
                    ending = re.search(r"\{(\w+)\}$", text)
                    for end in known.get(ending[1], [ending[0]]) if ending else [""]:
                        yield node.lineno, (text[: ending.start()] if ending else text) + end


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but the functions in it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _own_nodes(child)


def _assigned(scope: ast.AST, names: set[str]) -> dict[str, list[str]]:
    """What the variables of a function may hold; one that holds an error of ours is a remedy by itself."""
    found: dict[str, list[str]] = {}
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            options = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            found.setdefault(node.targets[0].id, []).extend(map(text_of, options))
        elif isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
            caught = {ast.unparse(one) for one in getattr(node.type, "elts", [node.type])}
            found.setdefault(node.name, []).append("{hint}" if caught <= names else f"{{{node.name}}}")
    return found


def fault(text: str) -> str:
    """What is wrong with an error's text; empty where nothing is."""
    put_in = re.search(r"\{([^{}]*)\}[.?]?$", text)
    if put_in and any(re.search(rf"\b{name}\b", put_in[1]) for name in REMEDIES):
        return ""
    plain = re.sub(r"\{[^{}]*\}", "{}", text)
    if not plain.endswith(ENDS) and not COMMAND.search(plain) and not plain.endswith("{}"):
        return "does not end as a sentence does"
    last = re.split(r"(?<=[.?!])[ \n](?=[A-Z{])|(?<=\})(?= [A-Z])", plain)[-1]
    parts = [part.strip().lower() for part in BREAKS.split(last)]
    if any(part.split(" ")[0].rstrip(".:") in DO or part.startswith(CHOICES) for part in parts):
        return ""
    return "does not end in what to do about it"


def check(root: Path) -> list[Finding]:
    """All findings of a tree, in order of path."""
    classes = family(ast.parse((root / ERRORS).read_text(encoding="utf-8")))
    tree_of_classes = (root / ERRORS).read_text(encoding="utf-8")
    findings = [
        Finding(ERRORS, f"{name} is missing in the tree of errors")
        for name in classes
        if not re.search(rf"^    ([├└]── )?{name}\b", tree_of_classes, re.MULTILINE)
    ]
    with_own_text = {name for name, node in classes.items() if any("__init__" in ast.unparse(one) for one in node.body)}
    for path in sorted((root / FOLDER).rglob("*.py")):
        place = path.relative_to(root).as_posix()
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8")), set(classes) - with_own_text):
            wrong = fault(text)
            if wrong:
                findings.append(Finding(f"{place}:{line}", f"{wrong}: {text}"))
    return findings


def main(arguments: list[str]) -> int:
    findings = check(Path(arguments[0]) if arguments else Path(__file__).parents[1])
    for place, text in findings:
        print(f"{place}: {text}")
    print("error texts:", f"{len(findings)} to mend" if findings else "ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
