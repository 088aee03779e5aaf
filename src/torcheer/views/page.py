"""The explorer's page: one HTML file with everything in it, or the shell that the server sends.

A file holds the page's code and the data it shows, so it opens from disk, without network, and can be mailed. Its
content policy lets exactly this code run and lets it load nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torcheer.errors import TorcheerError

BUILT = Path(__file__).parent / "built"
FRAME_HEIGHT = 560  # in a notebook, in CSS pixels


def asset(name: str) -> str:
    """Return the text of one of the page's built files: ``page.js``, ``page.css``, ``worker.js``."""
    return _read(BUILT / name)


def shell() -> str:
    """Return the page that the server sends; it asks for its code, and for what it shows, by itself."""
    return _document(
        "torcheer explorer",
        head='<link rel="stylesheet" href="page.css">',
        body='<script type="module" src="page.js"></script>',
    )


def one_file(shown: Mapping[str, Any], title: str | None = None) -> str:
    """Return an HTML file that shows data by kind: what the ``build`` functions of the views return.

    shown: ``{"history": …}``, with any of "history", "profile", "comparison" and "watch".
    title: what the tab says; by default the model's name, or both of a comparison.
    """
    names = [name for data in shown.values() if isinstance(data, Mapping) and (name := title_of(data))]
    style, script, worker = asset("page.css"), _inlined(asset("page.js")), _inlined(asset("worker.js"))
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    return _document(
        title or " · ".join(dict.fromkeys(names)) or "torcheer",
        head=f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>',
        body=f'<script type="application/octet-stream" id="data">{packed(shown)}</script>\n'
        f'<script type="text/plain" id="worker">{worker}</script>\n'
        f'<script type="module">{script}</script>',
    )


def title_of(data: Mapping[str, Any]) -> str:
    """Return what its data calls a result: its title, its model, or the two that are compared."""
    return str(data.get("title") or data.get("model") or " / ".join(data.get("names") or ()))


def framed(page: str) -> str:
    """Return a whole page as a frame, for the output of a notebook's cell."""
    # Without its own origin: what is shown cannot reach the notebook around it.
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads allow-popups" '
        f'width="100%" height="{FRAME_HEIGHT}" frameborder="0" title="torcheer explorer"></iframe>'
    )


def packed(data: Any) -> str:
    """Return data as JSON, compressed, in characters that HTML leaves alone."""
    text = encoded(data)
    return base64.b64encode(gzip.compress(text, compresslevel=9, mtime=0)).decode("ascii")


def encoded(data: Any, indent: int | None = None) -> bytes:
    """Return data as JSON. Numbers that JSON does not have become ``"nan"``, ``"inf"`` and ``"-inf"``."""
    options: dict[str, Any] = {"allow_nan": False, "ensure_ascii": False, "indent": indent}
    options["separators"] = (",", ":") if indent is None else None
    try:
        text = json.dumps(data, **options)
    except ValueError:
        text = json.dumps(_finite(data), **options)
    return text.encode("utf-8", "replace")  # a name may hold half a surrogate pair


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return "nan" if math.isnan(data) else "inf" if data > 0 else "-inf"
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data


def _document(title: str, head: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n{head}\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _inlined(script: str) -> str:
    """Return a script that the text of a page can hold: nothing in it ends or nests the element around it."""
    return script.replace("</script", "<\\/script").replace("<script", "\\x3cscript").replace("<!--", "\\x3c!--")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise TorcheerError(
            f"The explorer's page is not built: {path.name} is missing from {path.parent}. Packages carry it; in a "
            "clone of the sources, run `make page`."
        ) from None
