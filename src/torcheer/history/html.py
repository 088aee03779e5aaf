"""How a history shows itself in a notebook: one small table, no scripts, no outside files."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from torcheer.history.text import ALL_LAYERS, HEAD, TAIL, facts
from torcheer.units import bytes_text, count_text, seconds_text, shape_text

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_view import OpView

HEADINGS = ("", "layer", "shape", "size", "module", "time")


def history_html(history: ModelHistory) -> str:
    """Return the facts of a run and its listing as HTML."""
    views = list(history)
    if len(views) <= ALL_LAYERS:
        rows = [_row(view) for view in views]
    else:
        more = f"… {count_text(len(views) - HEAD - TAIL)} more"
        middle = f'<tr><td colspan="{len(HEADINGS)}">{more}</td></tr>'
        rows = [*map(_row, views[:HEAD]), middle, *map(_row, views[-TAIL:])]
    title = f"<b>Log of {escape(history.record.run.model)} forward pass</b>"
    lines = "<br>".join(escape(line) for line in facts(history))
    heading = "".join(f"<th>{name}</th>" for name in HEADINGS)
    table = f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div>{title}<br>{lines}{table}</div>"


def _row(view: OpView) -> str:
    shapes = "; ".join(shape_text(output.value.shape) for output in view.outputs)
    time = seconds_text(view.time_ns) if view.time_ns is not None else ""
    size = bytes_text(view.size_bytes) if view.outputs else ""
    cells = (str(view.position), view.label, shapes, size, view.module, time)
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
