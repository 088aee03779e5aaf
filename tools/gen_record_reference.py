"""Writes ``docs/reference/record.md`` from the classes of ``src/torcheer/record/model.py`` and their comments.

    python tools/gen_record_reference.py           write the page
    python tools/gen_record_reference.py --check   fail when the page is not what would be written

The comment beside a field is its meaning, in the code and on the page, so there is one place to keep right.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.pages import REFERENCE, ROOT, cell, prose, write_or_check

SOURCE = ROOT / "src" / "torcheer" / "record" / "model.py"
PAGE = REFERENCE / "record.md"

HEAD = """\
# The record

<!-- Written by tools/gen_record_reference.py from src/torcheer/record/model.py. Change it there. -->
"""


def page_of(source: str) -> str:
    """Return the page that describes the classes of a source."""
    tree = ast.parse(source)
    comments = comments_by_line(source)
    parts = [HEAD, prose(ast.get_docstring(tree))]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            parts += [f"## {node.name}", prose(ast.get_docstring(node))]
            rows = list(_rows(node, comments))
            if rows:
                parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def comments_by_line(source: str) -> dict[int, str]:
    """Return the comment of each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.removeprefix("#").strip() for token in tokens if token.type == tokenize.COMMENT
    }


def _rows(node: ast.ClassDef, comments: dict[int, str]) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            meaning = comments.get(statement.end_lineno or statement.lineno, "")
            kind = ast.unparse(statement.annotation)
            yield f"| `{statement.target.id}` | `{cell(kind)}` | {cell(meaning)} |"


def main(arguments: list[str], page: Path = PAGE) -> int:
    """Write or check the page; return the exit status."""
    return write_or_check(page, page_of(SOURCE.read_text(encoding="utf-8")), arguments, "gen_record_reference")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
