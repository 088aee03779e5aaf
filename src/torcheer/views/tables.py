"""Tables of rich as text, in a terminal, and as HTML: the one place that knows how they are printed."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console

WIDTH = 400  # wide enough for any table: text that is cut cannot be searched
_NOTEBOOK_WIDTH = 160  # characters; a notebook scrolls
_CODE = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


def as_text(parts: Iterable[Any], width: int | None = None) -> str:
    """Without colour; no blanks at the end of a line."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width or WIDTH, color_system=None, legacy_windows=False, highlight=False,
        force_jupyter=False,  # in a notebook it would show there what is to be returned
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def to_terminal(parts: Iterable[Any], width: int | None = None) -> None:
    """Print them, with the colours that the terminal has."""
    console = Console(highlight=False) if width is None else Console(width=width, highlight=False)
    for part in parts:
        console.print(part)


def as_html(parts: Iterable[Any]) -> str:
    """As HTML that is complete in itself."""
    console = Console(
        file=io.StringIO(), width=_NOTEBOOK_WIDTH, record=True, force_terminal=True, color_system="truecolor",
        legacy_windows=False, highlight=False, force_jupyter=False,
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return console.export_html(inline_styles=True, code_format=_CODE)
