"""A profile as plain data, and as a tree table in text. The page draws the same data."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torcheer.errors import LookupKeyError, near_or_all
from torcheer.profiling.report import Figures, OpRow, Report, Row
from torcheer.units import bytes_text, count_text, flops_text, rate_text, ratio_text, seconds_text, shape_text
from torcheer.views.profile_columns import COLUMNS, is_measured

MAX_POINTS = 2_000  # of the timeline: more than a screen has columns


def build(report: Report) -> dict[str, Any]:
    """A report as plain data: rows and columns, totals, the timeline of memory, findings and notes."""
    run = report.record.run
    columns = [column for column in COLUMNS if is_measured(report, column)]
    return {
        "kind": "profile",
        "model": run.model,
        "run": {
            "execution": run.execution, "framework": f"{run.framework} {run.framework_version}".strip(),
            "training": run.training, "num_backward": run.num_backward, "measured": list(run.measured),
            "clock": run.clock, "num_repeats": run.num_repeats, "num_warm_up": run.num_warm_up, "error": run.error,
        },
        "columns": [
            {
                "name": column.name, "title": column.title, "unit": column.unit, "is_shown": column.is_shown,
                "meaning": column.meaning, "method": column.method,
            }
            for column in columns
        ],
        "rows": [
            {
                **_place(row), "ops": [_op(report.ops[op]) for call in row.calls for op in report.calls[call].ops],
                "values": {column.name: column.value(report, row) for column in columns},
            }
            for row in report.rows
        ],
        "totals": _totals(report),
        "timeline": _timeline(report),
        "memory_before": report.memory_before,
        "findings": [
            {"kind": one.kind, "text": one.text, "module": one.module, "is_alarm": one.is_alarm, "op": one.op}
            for one in report.findings
            if one.kind != "propagated"
        ],
        "uncounted": [asdict(one) for one in report.uncounted],
        "notes": list(report.notes),
    }  # fmt: skip


def _place(row: Row) -> dict[str, Any]:
    return {
        "index": row.index, "address": row.address, "name": row.name, "type": row.type_name, "parent": row.parent,
        "depth": row.depth, "children": list(row.children), "num_calls": len(row.calls), "is_repeat": row.is_repeat,
    }  # fmt: skip


def _op(row: OpRow) -> dict[str, Any]:
    figures: Figures = row.figures
    return {
        "op": row.op, "label": row.label, "name": row.name, "source": row.source,
        "shapes": [list(shape) for shape in row.shapes],
        "values": {
            "forward": figures.forward_ns, "backward": figures.backward_ns, "flops": figures.flops_forward,
            "flops_backward": figures.flops_backward, "output": [list(shape) for shape in row.shapes],
        },
    }  # fmt: skip


def _totals(report: Report) -> dict[str, Any]:
    totals = report.totals
    return {
        **{name: value for name, value in asdict(totals).items() if name != "figures"},
        **asdict(totals.figures),
        "num_params": report.rows[0].num_params if report.rows else 0,
        "params_bytes": report.rows[0].params_bytes if report.rows else 0,
        "is_partial": report.is_partial,
    }


def _timeline(report: Report) -> list[dict[str, Any]]:
    """The memory held over the run; of a long one the highest point of each stretch.

    ``changes`` of a point say what came and went since the point before it: row that took it, category, bytes.
    """
    points = report.timeline
    step = max(1, -(-len(points) // MAX_POINTS))
    found: list[dict[str, Any]] = []
    done = 0
    for start in range(0, len(points), step):
        highest = max(range(start, min(start + step, len(points))), key=lambda at: points[at].held_bytes)
        changes: dict[tuple[int | None, str], int] = {}
        for point in points[done : highest + 1]:
            place = (point.taker, point.role)
            changes[place] = changes.get(place, 0) + point.delta_bytes
        done, point = highest + 1, points[highest]
        found.append({
            "held_bytes": point.held_bytes, "phase": point.phase, "row": point.row, "role": point.role,
            "changes": [[row, role, size] for (row, role), size in changes.items() if size],
        })  # fmt: skip
    return found


# -- text ----------------------------------------------------------------------------------------------


def to_text(
    data: dict[str, Any],
    *,
    sort: str | None = None,
    depth: int | None = None,
    columns: tuple[str, ...] | None = None,
    ops: bool = False,
    width: int | None = None,
) -> str:
    """The tree as a table, with the totals and notes under it."""
    chosen = _chosen(data, columns)
    if sort is not None:
        sort = str(_known(data, sort)["name"])
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("module", no_wrap=True)
    for column in chosen:
        is_text = column["unit"] in ("text", "shape")
        table.add_column(column["title"], justify="left" if is_text else "right", no_wrap=True)
    for row, prefix in _in_order(data["rows"], sort, depth):
        name = data["model"] if row["parent"] is None else row["name"]
        table.add_row(prefix + name, *(_cell(column, row["values"][column["name"]]) for column in chosen))
        if ops:
            inner = "   " if not prefix else prefix.replace("├─ ", "│  ").replace("└─ ", "   ") + "   "
            for op in row["ops"]:
                cells = (_cell(column, op["values"].get(column["name"])) for column in chosen)
                table.add_row(f"{inner}· {op['label']}", *cells)
    lines = [line.rstrip() for line in _drawn(table, width).splitlines()]
    return "\n".join([*lines, "", *_summary(data)])


def _chosen(data: dict[str, Any], names: tuple[str, ...] | None) -> list[dict[str, Any]]:
    if names is None:
        return [column for column in data["columns"] if column["is_shown"]]
    return [_known(data, name) for name in names]


def _known(data: dict[str, Any], name: str) -> dict[str, Any]:
    for key in ("name", "title"):  # a reader of the table knows what stands over a column
        for column in data["columns"]:
            if column[key] == name:
                return dict(column)
    measured = [column["name"] for column in data["columns"]]
    if any(column.name == name for column in COLUMNS):
        raise LookupKeyError(f"The column {name!r} was not measured in this run. There are: {', '.join(measured)}.")
    raise LookupKeyError(f"A profile has no column {name!r}.{near_or_all(name, measured, limit=len(measured))}")


def _in_order(rows: list[dict[str, Any]], sort: str | None, depth: int | None) -> list[tuple[dict[str, Any], str]]:
    """Rows as they are listed, each with the lines of the tree before its name."""
    found: list[tuple[dict[str, Any], str]] = []

    def visit(index: int, prefix: str, lead: str) -> None:
        row = rows[index]
        found.append((row, lead))
        if depth is not None and row["depth"] >= depth:
            return
        children = list(row["children"])
        if sort is not None:
            children.sort(key=lambda child: _sort_key(rows, child, sort), reverse=True)
        for child in children:
            is_last = child == children[-1]
            visit(child, prefix + ("   " if is_last else "│  "), prefix + ("└─ " if is_last else "├─ "))

    if rows:
        visit(0, "", "")
    return found


def _sort_key(rows: list[dict[str, Any]], index: int, sort: str) -> tuple[bool, Any]:
    """A row's own figure; of one that has none, as of a ModuleList that nobody calls, the largest inside it."""
    row = rows[index]
    found = _sortable(row["values"][sort])
    return found if found[0] or not row["children"] else max(_sort_key(rows, child, sort) for child in row["children"])


def _sortable(value: Any) -> tuple[bool, Any]:
    if isinstance(value, (list, str)):
        return (True, str(value))
    return (value is not None, value or 0)


def _cell(column: dict[str, Any], value: Any) -> str:
    if value is None:
        return ""
    unit = column["unit"]
    if unit == "shape":
        return ", ".join(shape_text(shape) for shape in value[:2]) + (", …" * (len(value) > 2))
    texts = {"ns": seconds_text, "bytes": bytes_text, "FLOP": flops_text, "FLOP/s": rate_text, "ratio": ratio_text}
    if unit in texts:
        return "·" if value == 0 else texts[unit](value)
    return count_text(value) if unit == "count" else f"{value:.1f}" if unit == "FLOP/byte" else str(value)


def _drawn(table: Table, width: int | None) -> str:
    # Wide enough for any table: text that is cut cannot be searched.
    console = Console(
        file=io.StringIO(), width=width or 400, color_system=None, legacy_windows=False,
        force_jupyter=False,  # in a notebook it would show there what is to be returned
    )  # fmt: skip
    console.print(table)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def _summary(data: dict[str, Any]) -> list[str]:
    totals, run = data["totals"], data["run"]
    partial = " (partial)" if data["uncounted"] else ""
    lines = [f"params  {count_text(totals['num_params'])} in {bytes_text(totals['params_bytes'])}"]
    if "flops" in run["measured"]:
        flops = f"FLOPs   forward {flops_text(totals['flops_forward'])}"
        if run["num_backward"]:
            flops += f", backward {flops_text(totals['flops_backward'])}"
            again = totals["flops_recompute"] + totals["hardware_flops_backward"] - totals["flops_backward"]
            flops += f", computed again {flops_text(again)}" if again else ""
        lines.append(flops + partial)
    if totals["forward_ns"] is not None:
        lines.append(_times(totals, run))
    if totals["peak_bytes"] is not None:
        lines.append(_memory(totals))
    lines += [
        f"{'ALARM' if one['is_alarm'] else 'note '}   {one['text']}" for one in data["findings"] if one["is_alarm"]
    ]
    return [*lines, *(f"· {note}" for note in data["notes"])]


def _times(totals: dict[str, Any], run: dict[str, Any]) -> str:
    text = f"time    forward {seconds_text(totals['forward_ns'])}"
    if totals["backward_ns"] is not None:
        text += f", backward {seconds_text(totals['backward_ns'])}"
    if totals["recompute_ns"]:
        text += f", computed again {seconds_text(totals['recompute_ns'])}"
    if totals["engine_ns"] is not None:
        text += f", engine {seconds_text(totals['engine_ns'])}"
    if run["num_repeats"]:
        spread = (
            "" if totals["time_spread_ns"] is None else f", quartiles {seconds_text(totals['time_spread_ns'])} apart"
        )
        text += f" (median of {run['num_repeats']}{spread})"
    return text


def _memory(totals: dict[str, Any]) -> str:
    shares = sorted(totals["at_peak"].items(), key=lambda item: -item[1])
    parts = ", ".join(f"{role} {bytes_text(size)}" for role, size in shares)
    held = "" if not totals["held_bytes"] else f"; saved for backward {bytes_text(totals['held_bytes'])}"
    return f"memory  peak {bytes_text(totals['peak_bytes'])} above the start{held}; then there: {parts}"
