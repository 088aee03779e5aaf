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

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "torcheer" / "record" / "model.py"
PAGE = ROOT / "docs" / "reference" / "record.md"

HEAD = """\
# The record

<!-- Written by tools/gen_record_reference.py from src/torcheer/record/model.py. Change it there. -->
"""


def page_of(source: str) -> str:
    """Return the page that describes the classes of a source."""
    tree = ast.parse(source)
    comments = comments_by_line(source)
    parts = [HEAD, _prose(ast.get_docstring(tree))]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            parts += [f"## {node.name}", _prose(ast.get_docstring(node))]
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
            yield f"| `{statement.target.id}` | `{_cell(kind)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str | None) -> str:
    # The doubled backquotes of docstrings are single ones in Markdown.
    return (text or "").replace("``", "`")


def main(arguments: list[str], page: Path = PAGE) -> int:
    """Write or check the page; return the exit status."""
    wanted = page_of(SOURCE.read_text(encoding="utf-8"))
    if "--check" not in arguments:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(wanted, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == wanted:
        return 0
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    print(f"{name} is out of date. Write it anew: python tools/gen_record_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
