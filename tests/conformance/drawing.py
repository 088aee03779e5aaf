"""Reads a graph back from its DOT source."""

from __future__ import annotations

import re


def nodes_and_edges(dot: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Nodes of a DOT source by id, with the first line of their label, and its edges."""
    nodes = dict(re.findall(r'"(\w+)" \[label="(.*?)(?: ×\d+)?(?:\\n|")', dot))
    return nodes, set(re.findall(r'"(\w+)" -> "(\w+)"', dot))
