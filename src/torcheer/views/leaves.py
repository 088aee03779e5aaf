"""Leaf modules of one model or of two, and their outputs, as plain data and as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from torcheer.diff.leaf_outputs import FinalOutputsComparison, ModuleOutputsComparison, Nearest, OutputsOfKind
from torcheer.diff.leaves import RAW, GroupPair, LeafGroup, LeafSummary, LeavesComparison
from torcheer.diff.numbers import Distance, Tolerance
from torcheer.units import count_text, counted_text, shape_text
from torcheer.views.tables import as_html, as_text, to_terminal

GOOD, BAD, DIM = "green", "bold red", "dim"
MAX_COLUMNS = 4  # of attributes; more leave a terminal no room to read them


def build(result: Any) -> dict[str, Any]:
    """Any of these results as plain data; ``kind`` says which."""
    if isinstance(result, LeafSummary):
        return _summary(result)
    if isinstance(result, LeavesComparison):
        return _leaves(result)
    if isinstance(result, ModuleOutputsComparison):
        return _module_outputs(result)
    assert isinstance(result, FinalOutputsComparison)
    return _final_outputs(result)


def to_text(data: dict[str, Any], *, show_matches: bool = False, width: int | None = None) -> str:
    """The tables without colour; ``show_matches``: also what is equal on both sides."""
    return as_text(_parts(data, show_matches), width)


def print_tables(data: dict[str, Any], *, show_matches: bool = False, width: int | None = None) -> None:
    """The tables in the terminal."""
    to_terminal(_parts(data, show_matches), width)


def to_html(data: dict[str, Any]) -> str:
    """The tables in a notebook, with all that is equal."""
    return as_html(_parts(data, show_matches=True))


def _parts(data: dict[str, Any], show_matches: bool) -> Iterable[Any]:
    if data["kind"] == "leaf summary":
        return _draw_summary(data)
    if data["kind"] == "leaf modules":
        return _draw_leaves(data, show_matches)
    if data["kind"] == "module outputs":
        return _draw_module_outputs(data, show_matches)
    return _draw_final_outputs(data)


# -- data ----------------------------------------------------------------------------------------------


def _summary(result: LeafSummary) -> dict[str, Any]:
    return {
        "kind": "leaf summary", "model": result.name, "num_leaves": result.num_leaves,
        "num_params": result.num_params, "groups": [_group(group) for group in result.groups],
    }  # fmt: skip


def _group(group: LeafGroup) -> dict[str, Any]:
    each = group.num_params
    return {
        "type": group.type_name, "attributes": {name: _plain(value) for name, value in group.attributes.items()},
        "num_instances": group.count, "params_each": each, "params_total": None if each is None else each * group.count,
        "addresses": list(group.addresses), "num_calls": group.num_calls,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: float | None) -> Any:
    """JSON has no NaN and no Inf."""
    return value if value is None or math.isfinite(value) else str(value)


def _leaves(result: LeavesComparison) -> dict[str, Any]:
    return {
        "kind": "leaf modules", "what": result.what, "names": list(result.names), "is_equal": bool(result),
        "pairs": [_pair(pair) for pair in result.pairs], "unused": [list(side) for side in result.unused],
        "functions": [{"name": name, "num_a": a, "num_b": b} for name, a, b in result.functions],
    }  # fmt: skip


def _pair(pair: GroupPair) -> dict[str, Any]:
    found = _group(pair.either)
    counts, addresses = pair.counts, [list(group.addresses) if group else [] for group in (pair.a, pair.b)]
    calls = [group.num_calls if group else 0 for group in (pair.a, pair.b)]
    status = "same" if pair.is_equal else "missing" if counts[1] < counts[0] else "extraneous"
    return {
        "type": found["type"], "attributes": found["attributes"], "params_each": found["params_each"],
        "status": status, "num_instances": list(counts), "addresses": addresses, "num_calls": calls,
    }  # fmt: skip


def _module_outputs(result: ModuleOutputsComparison) -> dict[str, Any]:
    return {
        "kind": "module outputs", "names": list(result.names), "is_equal": bool(result),
        "marked_only": result.marked_only, "tolerance": _tolerance(result.tolerance),
        "num_matches": result.num_matches, "num_mismatches": result.num_mismatches,
        "kinds": [_outputs_of_kind(kind, result.marked_only) for kind in result.kinds],
        "idle": [list(side) for side in result.idle],
    }  # fmt: skip


def _outputs_of_kind(kind: OutputsOfKind, marked_only: bool) -> dict[str, Any]:
    pair = {"type": "marked modules", "attributes": {}} if marked_only else _pair(kind.pair)
    return {
        "type": pair["type"], "attributes": pair["attributes"], "is_equal": kind.is_equal,
        "num_matches": len(kind.matches), "num_mismatches": kind.num_mismatches,
        "matches": [list(names) for names in kind.matches], "not_kept": list(kind.not_kept),
        "only_a": [_nearest(one) for one in kind.only_a], "only_b": [_nearest(one) for one in kind.only_b],
    }  # fmt: skip


def _nearest(one: Nearest) -> dict[str, Any]:
    return {"name": one.name, "nearest": one.nearest or None, "distance": _distance(one.distance)}


def _distance(apart: Distance | None) -> dict[str, Any] | None:
    if apart is None:
        return None
    return {
        "max_abs": _number(apart.max_abs), "max_rel": _number(apart.max_rel), "num_elements": apart.num_elements,
        "num_mismatched": apart.num_mismatched, "largest_at": list(apart.largest_at),
        "value_a": _number(apart.value_a), "value_b": _number(apart.value_b),
    }  # fmt: skip


def _tolerance(tolerance: Tolerance) -> dict[str, float]:
    return {"atol": tolerance.atol, "rtol": tolerance.rtol}


def _final_outputs(result: FinalOutputsComparison) -> dict[str, Any]:
    return {
        "kind": "final outputs", "names": list(result.names), "is_equal": bool(result),
        "tolerance": _tolerance(result.tolerance),
        "shapes": [[list(shape) for shape in side] for side in result.shapes],
        "distances": [_distance(apart) for apart in result.distances],
    }  # fmt: skip


# -- tables --------------------------------------------------------------------------------------------


def _draw_summary(data: dict[str, Any]) -> Iterable[Any]:
    yield Text(f"Leaf modules of {data['model']}", style="bold")
    for type_name, groups in _by_type(data["groups"]):
        names, shared = _attribute_names(groups)
        yield _title(type_name, shared)
        table = _table(names, ["instances", "params each", "params"])
        for group in groups:
            cells = [str(group["num_instances"]), _count(group["params_each"]), _count(group["params_total"])]
            table.add_row(*_attribute_cells(group, names), *cells)
        yield table
    leaves = counted_text(data["num_leaves"], "leaf module")
    yield f"\n{leaves}, {_count(data['num_params'])} params in total"


def _draw_leaves(data: dict[str, Any], show_matches: bool) -> Iterable[Any]:
    a, b = data["names"]
    what = "Registered leaf modules" if data["what"] == "registered" else "Leaf modules invoked in forward"
    yield Text(f"{what}: {a} and {b}", style="bold")
    yield Text(f"missing or extraneous in {b}", style=DIM)
    shown = data["pairs"] if show_matches else [pair for pair in data["pairs"] if pair["status"] != "same"]
    for type_name, pairs in _by_type(shown):
        names, shared = _attribute_names(pairs)
        yield _title(type_name, shared)
        table = _table(names, [f"in {a}", f"in {b}", "", "addresses"])
        for pair in pairs:
            status = Text(_status(pair), style=GOOD if pair["status"] == "same" else BAD)
            where = " | ".join(", ".join(_shortened(side)) or "–" for side in pair["addresses"])
            counts = [str(count) for count in pair["num_instances"]]
            table.add_row(*_attribute_cells(pair, names), *counts, status, Text(where))
        yield table
    num_same = sum(pair["status"] == "same" for pair in data["pairs"])
    yield f"{counted_text(num_same, 'group')} with as many instances on both sides"
    for name, side in zip(data["names"], data["unused"], strict=True):
        if side:
            yield Text(f"Registered in {name} and not used in forward: {', '.join(side)}", style=BAD)
    apart = [one for one in data["functions"] if one["num_a"] != one["num_b"]]
    if apart:
        listed = ", ".join(f"{one['name']} {one['num_a']} and {one['num_b']}" for one in apart)
        yield f"Called as functions outside leaf modules, times in {a} and {b}: {listed}"
    yield _verdict(data["is_equal"], "The leaf modules are the same.", "The leaf modules differ.")


def _status(pair: dict[str, Any]) -> str:
    apart = abs(pair["num_instances"][0] - pair["num_instances"][1])
    return pair["status"] if pair["status"] == "same" else f"{apart} {pair['status']}"


def _draw_module_outputs(data: dict[str, Any], show_matches: bool) -> Iterable[Any]:
    a, b = data["names"]
    what = "marked modules" if data["marked_only"] else "leaf modules of the same type and attributes"
    yield Text(f"Outputs of {what}: {a} and {b}", style="bold")
    if data["marked_only"]:
        yield from _marked(data["kinds"][0], a, b)
    for type_name, kinds in _by_type([] if data["marked_only"] else data["kinds"]):
        names, shared = _attribute_names(kinds)
        yield _title(type_name, shared)
        table = _table(names, ["match", "mismatch"])
        for kind in kinds:
            counts = [Text(str(kind["num_matches"]), style=GOOD if kind["num_matches"] else DIM)]
            counts.append(Text(str(kind["num_mismatches"]), style=BAD if kind["num_mismatches"] else DIM))
            table.add_row(*_attribute_cells(kind, names), *counts)
        yield table
        for kind in kinds:
            yield from _details(kind, a, b, show_matches)
    for kind in data["kinds"]:
        if kind["not_kept"]:
            yield Text(f"  not kept in the recordings: {', '.join(_shortened(kind['not_kept']))}", style=BAD)
    for name, idle in zip(data["names"], data["idle"], strict=True):
        if idle:
            yield f"Marked in {name} and not called: {', '.join(idle)}"
    tolerance = f"rtol={data['tolerance']['rtol']:g}, atol={data['tolerance']['atol']:g}"
    matched, missed = counted_text(data["num_matches"], "output"), counted_text(data["num_mismatches"], "output")
    yield _verdict(data["is_equal"], f"All agree: {matched} ({tolerance}).", f"No equal: {missed} ({tolerance}).")


def _details(kind: dict[str, Any], a: str, b: str, show_matches: bool) -> Iterable[Any]:
    if show_matches:
        yield from _matches(kind)
    back = {one["name"]: one["nearest"] for one in kind["only_b"]}
    told = set()
    for one in kind["only_a"]:
        if one["nearest"] is not None and back.get(one["nearest"]) == one["name"]:
            told.add(one["nearest"])
            yield Text(f"  {one['name']} of {a} is not {one['nearest']} of {b}: {_apart(one['distance'])}", style=BAD)
        else:
            yield Text(f"  {one['name']} of {a}: {_no_equal(one, kind, 'only_b')}", style=BAD)
    for one in kind["only_b"]:
        if one["name"] not in told:
            yield Text(f"  {one['name']} of {b}: {_no_equal(one, kind, 'only_a')}", style=BAD)


def _matches(kind: dict[str, Any]) -> Iterable[Any]:
    return (Text(f"  {in_a} = {in_b}", style=GOOD) for in_a, in_b in kind["matches"])


def _marked(kind: dict[str, Any], a: str, b: str) -> Iterable[Any]:
    """Each mark of the side with fewer; what the other side marked besides is named and no fault."""
    yield from _matches(kind)
    sides = [(a, kind["only_a"], "only_b"), (b, kind["only_b"], "only_a")]
    fewer, more = sorted(sides, key=lambda side: len(side[1]))
    for one in fewer[1]:
        yield Text(f"  {one['name']} of {fewer[0]}: {_no_equal(one, kind, fewer[2])}", style=BAD)
    if more[1]:
        yield f"Marked in {more[0]} and equal to no mark in {fewer[0]}: {', '.join(one['name'] for one in more[1])}"


def _no_equal(one: dict[str, Any], kind: dict[str, Any], other: str) -> str:
    if one["nearest"] is not None:
        return f"no equal; nearest is {one['nearest']}, {_apart(one['distance'])}"
    if kind["matches"] or kind[other]:
        return "no output of these shapes on the other side"
    return "no such module is called on the other side"


def _apart(found: dict[str, Any]) -> str:
    share = f"{count_text(found['num_mismatched'])} of {counted_text(found['num_elements'], 'element')} differ"
    place = shape_text(found["largest_at"])
    values = "" if found["value_a"] is None else f": {_short(found['value_a'])} against {_short(found['value_b'])}"
    return f"{share}, by up to {_short(found['max_abs'])} at {place}{values}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _draw_final_outputs(data: dict[str, Any]) -> Iterable[Any]:
    a, b = data["names"]
    yield Text(f"Outputs of {a} and {b}", style="bold")
    in_a, in_b = data["shapes"]
    if len(in_a) != len(in_b):
        yield Text(
            f"{a} returns {counted_text(len(in_a), 'tensor')} and {b} {len(in_b)}. Pick the ones to compare with "
            "target_output_fn and model_output_fn.",
            style=BAD,
        )
    for place, apart in enumerate(data["distances"]):
        if apart is None:
            text = f"shapes {shape_text(in_a[place])} and {shape_text(in_b[place])}"
        else:
            text = "equal" if not apart["num_mismatched"] else _apart(apart)
        is_equal = apart is not None and not apart["num_mismatched"]
        yield Text(f"  output {place}: {text}", style=GOOD if is_equal else BAD)
    yield _verdict(data["is_equal"], "The outputs match.", "The outputs differ.")


def _title(type_name: str, shared: list[str]) -> Text:
    title = Text(f"\n{RAW} (of modules that are no leaves)" if type_name == RAW else f"\n{type_name}", style="cyan")
    return title.append(f"  {', '.join(shared)}", style=DIM) if shared else title


def _table(attributes: list[str], columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", show_edge=False)
    for column in attributes:
        table.add_column(column)
    for column in columns:
        is_text = column in ("", "addresses")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=column == "")
    return table


def _by_type(rows: list[dict[str, Any]]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["type"], []).append(row)
    return found.items()


def _attribute_names(rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Attributes that have a column, and of a type with many of them those that all rows share, as ``name=value``."""
    names = list(dict.fromkeys(name for row in rows for name in row["attributes"]))
    if len(names) <= MAX_COLUMNS:
        return names, []
    varying = [name for name in names if len({repr(row["attributes"].get(name)) for row in rows}) > 1]
    first = rows[0]["attributes"]
    return varying, [f"{name}={_attribute(first[name])}" for name in names if name not in varying]


def _attribute_cells(row: dict[str, Any], names: list[str]) -> list[Text]:
    attributes = row["attributes"]
    return [Text(_attribute(attributes[name]) if name in attributes else "") for name in names]


def _attribute(value: Any) -> str:
    return shape_text([_attribute(item) for item in value]) if isinstance(value, list) else str(value)


def _count(count: int | None) -> str:
    return "unknown" if count is None else count_text(count)


def _shortened(names: list[str], limit: int = 6) -> list[str]:
    return names if len(names) <= limit else [*names[:limit], f"… {len(names) - limit} more"]


def _verdict(is_equal: bool, equal: str, other: str) -> Text:
    return Text(equal if is_equal else other, style=GOOD if is_equal else BAD)
