"""Runs the Python blocks of Markdown pages, and checks that they print what the page shows.

    python tools/run_markdown.py README.md docs/how-to/*.md           check
    python tools/run_markdown.py --write README.md docs/how-to/*.md   put what was printed into the pages

The blocks of a page run in order, in one namespace and in an empty folder. A ``text`` block after a
``python`` block shows what that one prints; a line ``…`` in it stands for lines left out. Numbers that differ
between machines are not compared (``masked``): times, values of tensors, where the clone is.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = "…"
WRAPPED = re.compile(r"(\.py:\d+ in [^\n]*)\n  (?=[a-z])")
MASKS = (
    (re.compile(r" *-?\d+\.\d{3,}(?:[eE][-+]\d+)?s?\b"), " #"),  # values of tensors, times
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ns|µs|ms|s)\b"), "#"),
    (re.compile(r"(?<=\.md:)\d+"), "#"),  # a line of the page itself, which moves with every line above it
)


class Block(NamedTuple):
    """A Python block and what the page says it prints."""

    line: int  # of its first line of code, from 0
    code: str
    shown: str | None
    shown_at: tuple[int, int]  # where ``shown`` stands in the text of the page


class Difference(NamedTuple):
    """A block that printed something other than the page shows."""

    block: Block
    printed: str


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the Python blocks of a page."""
    found = list(BLOCK.finditer(text))
    for number, match in enumerate(found):
        if match[1] != "python":
            continue
        after = found[number + 1] if number + 1 < len(found) else None
        is_shown = after is not None and after[1] == "text"
        shown, shown_at = (after[2], after.span(2)) if after is not None and is_shown else (None, (0, 0))
        yield Block(text.count("\n", 0, match.start(2)), match[2], shown, shown_at)


def masked(text: str) -> list[str]:
    """Return the lines of a text without what differs from machine to machine."""
    # A sentence with a path in it is broken where the length of the clone's path has it.
    text = WRAPPED.sub(r"\1 ", text)
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def matches(shown: str, printed: str) -> bool:
    """Whether a text is what was printed, but for the lines it leaves out."""
    parts: list[list[str]] = [[]]
    for line in masked(shown):
        if line.strip() == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    lines = masked(printed)
    if len(parts) == 1:
        return lines == parts[0]
    if lines[: len(parts[0])] != parts[0]:
        return False
    position = len(parts[0])
    for part in parts[1:-1]:
        position = _find(part, lines, position)
        if position < 0:
            return False
    end = len(lines) - len(parts[-1])
    return end >= position and lines[end:] == parts[-1]


def run_page(page: Path) -> list[Difference]:
    """Run the blocks of a page; return those that printed something else. What they raise comes through."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    different = []
    with _empty_folder():
        for block in blocks_of(text):
            out = io.StringIO()
            # The line numbers of the page, for tracebacks.
            code = compile("\n" * block.line + block.code, str(page), "exec")
            with redirect_stdout(out):
                exec(code, namespace)
            printed = out.getvalue().replace(f"{ROOT}{os.sep}", "")
            if block.shown is None or matches(block.shown, printed):
                continue
            # Where a line with a path in it is wrapped depends on how long the path of the clone is.
            has_paths = printed != out.getvalue()
            if not (has_paths and matches(" ".join(block.shown.split()), " ".join(printed.split()))):
                different.append(Difference(block, printed))
    return different


def with_output(text: str, different: list[Difference]) -> str:
    """Return the text of a page with what was printed in place of what it showed."""
    for block, printed in reversed(different):
        start, end = block.shown_at
        body = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n"))
        text = f"{text[:start]}{body}\n{text[end:]}"
    return text


@contextmanager
def _empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _find(part: list[str], lines: list[str], start: int) -> int:
    """Return where a run of lines ends, -1 where it is not found."""
    for position in range(start, len(lines) - len(part) + 1):
        if lines[position : position + len(part)] == part:
            return position + len(part)
    return -1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    parser.add_argument("pages", nargs="+", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    failed = False
    for page in options.pages:
        different = run_page(page.resolve())
        if options.write and different:
            text = page.read_text(encoding="utf-8")
            page.write_text(with_output(text, different), encoding="utf-8")
            print(f"{page}: {len(different)} {'block' if len(different) == 1 else 'blocks'} written")
        elif different:
            failed = True
            for block, printed in different:
                print(f"{page}:{block.line + 1}: it shows\n{block.shown}\nand it printed\n{printed}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
