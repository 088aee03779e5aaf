"""Runs the page's own layout and drawing from Python, in a small embedded JavaScript engine.

The code is one file, ``built/layout.js``, made from ``web/ui/src`` when the package is built. It reads and writes
text, no files; an engine lives for one call, since it may be used on the thread that made it only.
"""

from __future__ import annotations

import json
from typing import Any

import quickjs

from torcheer.views.page import BUILT, asset

BUNDLE = "layout.js"


def is_built() -> bool:
    """Whether the code is there: packages carry it, a clone of the sources has to build it."""
    return (BUILT / BUNDLE).is_file()


def call(function: str, data: str, options: dict[str, Any]) -> str:
    """Call a function of the bundle with data and options as JSON, and return the text it gives."""
    context = quickjs.Context()
    context.eval(asset(BUNDLE))
    context.set("data", data)
    context.set("options", json.dumps(options))
    drawn: str = context.eval(f"torcheer.{function}(data, options)")
    return drawn
