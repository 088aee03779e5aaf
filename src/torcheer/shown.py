"""How a result is shown: the one place that joins kinds of results with the views that draw them.

A view imports the type it draws, so a report cannot import its own view. A result that offers ``to_html`` or
``draw`` asks here instead, by kind; the view is imported then and not before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

VIEWS = {
    "history": "torcheer.views.history",
    "profile": "torcheer.views.profile",
    "comparison": "torcheer.views.comparison",
    "watch": "torcheer.views.watch",
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


def picture(history: Any, **options: Any) -> Any:
    """Return the picture of a history: a ``torcheer.views.picture.Picture``."""
    return import_module(PICTURE).Picture(history, **options)


def notebook_picture(history: Any) -> str:
    """Return the picture that a notebook shows of a history, as HTML."""
    drawn: str = import_module(PICTURE).notebook(history)
    return drawn
