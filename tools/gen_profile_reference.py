"""Writes ``docs/reference/profile.md``: every column of a profile, from ``views/profile_columns.py``.

    python tools/gen_profile_reference.py           write the page
    python tools/gen_profile_reference.py --check   fail when the page is not what would be written

What the page says besides is in ``tools/profile_reference.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
from tools.pages import REFERENCE, cell, write_or_check  # noqa: E402 - run as a script, they are found by then
from torcheer.views.profile_columns import COLUMNS, Column  # noqa: E402

PAGE = REFERENCE / "profile.md"
TEXT = ROOT / "tools" / "profile_reference.md"
UNITS = {"ns": "time", "count": "number", "ratio": "%", "text": "", "shape": "shapes"}


def page_of(text: str, columns: tuple[Column, ...]) -> str:
    """The text, with the table of columns where it says ``{columns}``."""
    rows = [
        f"| `{one.name}` | {cell(one.title)} | {UNITS.get(one.unit, one.unit)} | {cell(one.meaning)} "
        f"| {cell(one.method)} | {'yes' if one.is_shown else ''} |"
        for one in columns
    ]
    head = ["| name | title | unit | meaning | method | shown |", "|---|---|---|---|---|---|"]
    return text.replace("{columns}", "\n".join([*head, *rows]))


def main(arguments: list[str], page: Path = PAGE) -> int:
    """Write or check the page; return the exit status."""
    wanted = page_of(TEXT.read_text(encoding="utf-8"), COLUMNS)
    return write_or_check(page, wanted, arguments, "gen_profile_reference")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
