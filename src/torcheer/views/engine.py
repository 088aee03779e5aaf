"""Runs the page's own layout and drawing from Python, in a small embedded JavaScript engine.

The code is one file, ``built/layout.js``, made from ``web/ui/src`` when the package is built. It reads and writes
text, no files; an engine lives for one call, since it may be used on the thread that made it only.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import quickjs

from torcheer.errors import DrawError

BUNDLE = "layout.js"


def call(function: str, data: str, options: dict[str, Any]) -> str:
    """Call a function of the bundle with data and options as JSON, and return the text it gives."""
    context = quickjs.Context()
    context.eval(_bundle())
    context.set("data", data)
    context.set("options", json.dumps(options))
    drawn: str = context.eval(f"torcheer.{function}(data, options)")
    return drawn


@cache
def _bundle() -> str:
    file = resources.files("torcheer.views") / "built" / BUNDLE
    if not file.is_file():
        raise DrawError(
            "torcheer's drawing code is not built: this is a source tree, not an installed package. "
            "Run `make page` in it, which needs Node, or install torcheer with pip"
        )
    return file.read_text(encoding="utf-8")
