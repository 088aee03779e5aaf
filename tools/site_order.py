"""A hook of MkDocs: the order of the sections of the site. Pages within one are in order of their names.

A hook and not a list of pages in mkdocs.yml, so that a new page stands in the site without being listed.
"""

from __future__ import annotations

from typing import Any

ORDER = ("Home", "Tutorial", "How to", "Reference", "Errors", "Coming from", "Design")


def on_nav(nav: Any, **_: Any) -> Any:
    """Called by MkDocs with what it made of the folders."""
    nav.items.sort(key=lambda item: ORDER.index(name_of(item)) if name_of(item) in ORDER else len(ORDER))
    return nav


def name_of(item: Any) -> str:
    """What an item is called; a page's title is read later, so of a page its file."""
    if item.title is not None:
        return str(item.title)
    return "Home" if item.file.name == "index" else str(item.file.name).capitalize()
