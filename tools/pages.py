"""Pages that are written by a program: written, or compared with what would be written."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"


def prose(text: str | None) -> str:
    """A docstring as Markdown, which has single backquotes where docstrings have double ones."""
    return (text or "").replace("``", "`")


def cell(text: str) -> str:
    """Text for the cell of a table."""
    return text.replace("|", "\\|")


def write_or_check(page: Path, wanted: str, arguments: list[str], tool: str) -> int:
    """Write a page, or with ``--check`` say whether it is what would be written; return the exit status."""
    if "--check" not in arguments:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(wanted, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == wanted:
        return 0
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    print(f"{name} is out of date. Write it anew: python tools/{tool}.py")
    return 1
