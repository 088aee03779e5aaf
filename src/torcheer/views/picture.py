"""The picture of a run, in a file or a notebook, without a browser: SVG, PNG, PDF, Graphviz source.

Layout and drawing are the page's own (``engine.py``), so a file shows what the page shows. Nothing is drawn before
it is asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import resvg_py

from torcheer import whole_file
from torcheer.errors import DrawError, near_misses
from torcheer.history import ModelHistory
from torcheer.units import count_text
from torcheer.views import engine, page
from torcheer.views.dot import to_dot
from torcheer.views.history import build
from torcheer.views.pdf import to_pdf

CHOICES = {
    "level": ("function", "aten"),
    "direction": ("down", "right"),
    "theme": ("light", "dark"),
    "colour_by": ("kind", "time", "backward", "memory", "flops", "params", "nan", "gradient"),
}
FROM_BACKWARD = ("backward", "gradient")
FROM_FIGURES = ("flops", "nan", "gradient")
PNG_SCALE = 2.0  # sharp on screens and in print
MOST_PIXELS = 60_000_000  # 240 MB while it is drawn
LEAST_SCALE = 0.25  # below this no text can be read
NOTEBOOK_BOXES = 150  # about what can be taken in on a page


class Picture:
    """The picture of a run. ``save`` writes a file; ``svg``, ``png``, ``pdf`` and ``dot`` are its contents."""

    def __init__(
        self,
        history: ModelHistory,
        *,
        rolled: bool = False,
        depth: int | None = None,
        level: str = "function",
        direction: str = "down",
        colour_by: str = "kind",
        gradients: bool = False,
        theme: str = "light",
    ) -> None:
        _check(level=level, direction=direction, theme=theme, colour_by=colour_by)
        if depth is not None and (type(depth) is not int or depth < 0):
            raise DrawError(f"depth is {depth!r}. It takes a number of module levels, 0 or more, or None for all.")
        if (gradients or colour_by in FROM_BACKWARD) and not history.record.run.num_backward:
            asked = "gradients=True" if gradients else f'colour_by="{colour_by}"'
            raise DrawError(
                f"{asked} needs a backward pass, and none was recorded. Call history.log_backward(loss) first."
            )
        self.history = history
        self.options = {
            "rolled": rolled,
            "fold": rolled,
            "depth": depth,
            "level": level,
            "direction": direction,
            "colourBy": colour_by,
            "gradients": gradients,
            "theme": theme,
        }

    def __repr__(self) -> str:
        kind = "rolled" if self.options["rolled"] else "unrolled"
        return f"<Picture of {self.history.record.run.model}, {kind}: .save(path), .svg, .png, .pdf, .dot>"

    def _repr_html_(self) -> str:
        return f'<div style="max-height:40em;overflow:auto">{self.svg}</div>'

    @cached_property
    def svg(self) -> str:
        """The picture as SVG."""
        return engine.call("drawSvg", self._data, self.options)

    @cached_property
    def scene(self) -> dict[str, Any]:
        """The picture as data: the graph, and the scene with the places of its boxes and routes."""
        drawn: dict[str, Any] = json.loads(engine.call("drawScene", self._data, self.options))
        return drawn

    @property
    def png(self) -> bytes:
        """The picture as PNG, twice as large as the SVG where that is not too much."""
        width, height = self.size
        scale = min(PNG_SCALE, (MOST_PIXELS / (width * height)) ** 0.5)
        if scale < LEAST_SCALE:
            raise DrawError(
                f"The picture is {count_text(width)} by {count_text(height)} points, too large to be read as PNG. "
                "Draw an .svg or .pdf, or less of it: rolled=True draws repeated blocks once, depth=1 opens the "
                "outermost modules only."
            )
        fonts = resources.files("torcheer.views") / "fonts"
        files = [str(fonts / name) for name in ("Arimo-Regular.ttf", "Arimo-Bold.ttf")]
        # Ours has Latin, Greek and Cyrillic; only names in other scripts need what the system has.
        plain = all(ord(char) < 0x460 or 0x2010 <= ord(char) <= 0x2265 for char in self.svg)
        png: bytes = resvg_py.svg_to_bytes(
            svg_string=self.svg, zoom=scale, font_files=files, sans_serif_family="Arimo", skip_system_fonts=plain
        )
        return png

    @property
    def pdf(self) -> bytes:
        """The picture as PDF: one page, lines and text, fonts embedded."""
        drawn: dict[str, Any] = json.loads(engine.call("drawMarks", self._data, self.options))
        return to_pdf(drawn)

    @property
    def dot(self) -> str:
        """The graph as Graphviz source, for tools that read it; boxes are laid out by whoever draws it."""
        return to_dot(self.scene["graph"])

    @property
    def html(self) -> str:
        """The explorer with this run, as one HTML file."""
        return page.one_file({"history": build(self.history, figures=True)})

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in points."""
        head = self.svg[: self.svg.index(">")]
        width, height = (head.split(f'{name}="')[1].split('"')[0] for name in ("width", "height"))
        return int(width), int(height)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, whole or not at all; the ending says which kind."""
        target = Path(path)
        kinds: dict[str, Callable[[], str | bytes]] = {
            ".svg": lambda: self.svg,
            ".png": lambda: self.png,
            ".pdf": lambda: self.pdf,
            ".dot": lambda: self.dot,
            ".html": lambda: self.html,
        }
        make = kinds.get(target.suffix.lower())
        if make is None:
            raise DrawError(
                f"The ending of {str(target)!r} says what kind of file to draw. It takes one of {', '.join(kinds)}."
            )
        content = make()
        whole_file.write(target, content, DrawError)
        return target

    @cached_property
    def _data(self) -> str:
        return page.encoded(build(self.history, figures=self.options["colourBy"] in FROM_FIGURES)).decode()


def notebook(history: ModelHistory) -> str:
    """Return the picture a notebook shows of a history: rolled, and opened no further than can be taken in.

    Nothing in a source tree whose drawing code is not built: the listing that a notebook also shows needs none.
    """
    if not engine.is_built():
        return ""
    picture = Picture(history, rolled=True)
    picture.options["mostBoxes"] = NOTEBOOK_BOXES
    return picture._repr_html_()


def _check(**options: str) -> None:
    for name, value in options.items():
        if value not in CHOICES[name]:
            hint = near_misses(str(value), map(str, CHOICES[name]))
            raise DrawError(f"{name} is {value!r}. It takes one of {', '.join(map(repr, CHOICES[name]))}.{hint}")
