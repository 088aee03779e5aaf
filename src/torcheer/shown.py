"""How a result is shown: the one place that joins kinds of results with the views that draw them.

A view imports the type it draws, so a report cannot import its own view. A result that offers ``to_html`` or
``draw`` asks here instead, by kind; the view is imported then and not before.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from torcheer import whole_file

VIEWS = {
    "history": "torcheer.views.history",
    "profile": "torcheer.views.profile",
    "comparison": "torcheer.views.comparison",
    "watch": "torcheer.views.watch",
    "leaves": "torcheer.views.leaves",
}
PAGE = "torcheer.views.page"
PICTURE = "torcheer.views.picture"


def data(kind: str, result: Any) -> dict[str, Any]:
    """Return what there is to show of a result, as plain data: what text, page and server all draw."""
    built: dict[str, Any] = import_module(VIEWS[kind]).build(result)
    return built


def text(kind: str, result: Any, **options: Any) -> str:
    """Return what there is to show of a result as text; the options are the view's."""
    written: str = import_module(VIEWS[kind]).to_text(data(kind, result), **options)
    return written


def html(kind: str, result: Any) -> str:
    """Return one HTML file, complete in itself, that shows a result."""
    page: str = import_module(PAGE).one_file({kind: data(kind, result)})
    return page


def json_text(data: Any) -> str:
    """Return plain data as JSON for people and programs. Numbers JSON has not become "nan", "inf" and "-inf"."""
    encoded: bytes = import_module(PAGE).encoded(data, indent=1)
    return encoded.decode()


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return the text, and write it into a file if a path is given, whole or not at all."""
    if path is not None:
        whole_file.write(path, text)
    return text


def picture(history: Any, **options: Any) -> Any:
    """Return the picture of a history: a ``torcheer.views.picture.Picture``."""
    return import_module(PICTURE).Picture(history, **options)


def notebook_picture(history: Any) -> str:
    """Return the picture that a notebook shows of a history, as HTML."""
    drawn: str = import_module(PICTURE).notebook(history)
    return drawn


class Tables:
    """What a result has whose view draws it as tables: text, colour in a terminal, HTML in a notebook, JSON."""

    __slots__ = ()
    view = "leaves"  # kind of the view

    def to_dict(self) -> dict[str, Any]:
        """Return everything in it as plain data."""
        return data(self.view, self)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return everything in it as JSON text, and write it into a file if a path is given."""
        return written(json_text(self.to_dict()), path)

    def print(self, **options: Any) -> None:
        """Print its tables, with colour where the terminal has it; the options are the view's."""
        import_module(VIEWS[self.view]).print_tables(self.to_dict(), **options)

    def __str__(self) -> str:
        return text(self.view, self)

    def _repr_html_(self) -> str:
        html_text: str = import_module(VIEWS[self.view]).to_html(self.to_dict())
        return html_text
