"""The graph of a picture as Graphviz source, for other tools that read it. Nothing here runs Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Graph = dict[str, Any]

FILL = {
    "input": "#d3f3d8",
    "output": "#ffd9d6",
    "params": "#dfe9fb",
    "buffer": "#fdf0c8",
    "constant": "#efe6fa",
    "module": "#e6ebf1",
}
STYLE = {"memory": "dashed", "gradient": "dotted"}
HEAD = (
    'rankdir="TB"',
    'labelloc="t"',
    'fontname="Helvetica"',
    'node [shape="box", style="rounded,filled", fontname="Helvetica", fontsize="10"]',
    'edge [fontname="Helvetica", fontsize="9", color="#555555"]',
)


def to_dot(graph: Graph) -> str:
    """Return the DOT source of a graph: its items in their boxes, and the edges between them."""
    lines = [f"digraph {_quoted(graph['title'])} {{"]
    lines += [f"\t{line};" for line in HEAD]
    lines.append(f"\tlabel={_quoted(graph['title'])};")
    inside: dict[int, list[int]] = {}
    for index, item in enumerate(graph["items"]):
        inside.setdefault(item["parent"], []).append(index)
    lines += [f"\t{line}" for line in _inside(graph["items"], inside, -1)]
    lines += [f"\t{line}" for line in _edges(graph)]
    return "\n".join([*lines, "}", ""])


def _inside(items: list[Graph], inside: dict[int, list[int]], parent: int) -> Iterator[str]:
    for index in inside.get(parent, ()):
        item = items[index]
        title = item["title"] + (f" ×{item['count']}" if item["count"] > 1 else "")
        if index not in inside:
            label = _quoted(title, *item["lines"], *([item["out"]] if item["out"] else []))
            yield f'{_quoted(item["id"])} [label={label}, fillcolor="{FILL.get(item["role"], "#ffffff")}"];'
            continue
        yield f"subgraph {_quoted('cluster_' + item['id'])} {{"
        yield f"\tlabel={_quoted(title, *item['lines'])};"
        yield '\tstyle="rounded"; color="#888888"; fontsize="10";'
        for line in _inside(items, inside, index):
            yield f"\t{line}"
        yield "}"


def _edges(graph: Graph) -> Iterator[str]:
    counts: dict[tuple[int, int, str], int] = {}
    for edge in graph["edges"]:
        ends = edge["from"], edge["to"], edge["kind"]
        counts[ends] = counts.get(ends, 0) + 1
    for (source, target, kind), count in counts.items():
        attributes = [f"label={_quoted(f'×{count}')}"] if count > 1 else []
        attributes += [f'style="{STYLE[kind]}"'] if kind in STYLE else []
        listed = f" [{', '.join(attributes)}]" if attributes else ""
        ends_text = f"{_quoted(graph['items'][source]['id'])} -> {_quoted(graph['items'][target]['id'])}"
        yield f"{ends_text}{listed};"


def _quoted(*lines: str) -> str:
    """Return lines of any text as one DOT string."""
    escaped = []
    for line in lines:
        printable = "".join(char if char.isprintable() else " " for char in line)
        escaped.append(printable.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + "\\n".join(escaped) + '"'
