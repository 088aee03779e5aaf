"""A comparison as plain data and as text, the verdict first. The page draws the same data."""

from __future__ import annotations

import math
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from torcheer.diff.comparison import Comparison
from torcheer.diff.place import short_path
from torcheer.history import ModelHistory
from torcheer.views import history as history_view

_WIDTH = 120  # columns


def build(comparison: Comparison) -> dict[str, Any]:
    """What a comparison found, and the graphs of both sides."""
    matches = [asdict(one) for one in comparison.matches]
    return {
        "kind": "comparison",
        "names": list(comparison.names),
        "verdict": comparison.verdict,
        "reasons": list(comparison.reasons),
        "first_divergence": _finite(asdict(comparison.first_divergence)) if comparison.first_divergence else None,
        "candidates": [_finite(asdict(one)) for one in comparison.candidates],
        "outputs": [{**_finite(asdict(one)), "text": str(one)} for one in comparison.outputs],
        "gradients": [_finite(asdict(one)) for one in comparison.gradients],
        "weights": [_finite(asdict(one)) for one in comparison.weights],
        "matches": matches,
        "notes": list(comparison.notes),
        "tolerance": comparison.tolerance,
        "smallest_tolerance": comparison.smallest_tolerance,
        "param_map": asdict(comparison.param_map),
        "num_ops": list(comparison.num_ops),
        "num_matched": list(comparison.num_matched),
        "sides": _sides(comparison),
    }


def _sides(comparison: Comparison) -> list[dict[str, Any]] | None:
    if comparison.records is None:
        return None
    return [history_view.build(ModelHistory(one.record, one.payloads)) for one in comparison.records]


def _finite(value: Any) -> Any:
    """The same with NaN and infinities as text, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_text(data: dict[str, Any]) -> str:
    """The verdict, the place, the numbers, the stacks."""
    name_a, name_b = data["names"]
    lines = [f"{data['verdict'].upper()}: A is {name_a}, B is {name_b}"]
    if data["verdict"] == "equal":
        lines[0] += " — equal within noise"
    lines += [f"  {reason}" for reason in data["reasons"]]
    first = data["first_divergence"]
    if first is not None:
        lines += ["", *_wrapped(f"First divergence: {first['headline']}"), *_divergence(first)]
    if data["candidates"]:
        lines += ["", "It may also be:"]
        for number, one in enumerate(data["candidates"], 2):
            lines += _wrapped(f"  {number}. {one['headline']}", "     ")
    if data["outputs"]:
        lines += ["", "Outputs"] + [f"  {one['text']}" for one in data["outputs"]]
    lines += _tensors(data["gradients"], "Gradients") + _tensors(data["weights"], "Weights, buffers and states")
    lines += ["", f"Tolerance: {data['tolerance']}"]
    if data["smallest_tolerance"] is not None:
        lines.append(f"Smallest relative tolerance that would pass: {data['smallest_tolerance']:.3g}")
    (ops_a, ops_b), (known_a, known_b) = data["num_ops"], data["num_matched"]
    lines.append(f"Operations with a counterpart: {known_a} of {ops_a} in A, {known_b} of {ops_b} in B")
    lines += [f"Note: {note}" for note in data["notes"]]
    return "\n".join(lines)


def _divergence(first: dict[str, Any]) -> list[str]:
    lines = []
    for side, place, head in zip("AB", (first["a"], first["b"]), first["heads"], strict=True):
        if place is None:
            lines.append(f"  {side}: nothing corresponds")
            continue
        inside = f" in {place['module']} ({place['module_type']})" if place["module"] else f" in {place['module_type']}"
        on = f" on rank {first['ranks'][0]}" if side == "B" and first["ranks"] else ""
        lines.append(f"  {side}{on}: {place['op']} = {place['function']} ({place['aten']}){inside}")
        if place["frame"]:
            frame = place["frame"]
            lines.append(f"     {_where(frame)}")
            lines += [_cut(f"         {frame['text']}")] if frame["text"] else []
        lines += [f"     arguments: {place['arguments']}"] if place["arguments"] else []
        lines += [f"     parameters: {', '.join(place['params'])}"] if place["params"] else []
        lines += [f"     {head}"] if head else []
    if first["distance"]:
        one = first["distance"]
        is_odd = str(one["max_abs"]) == "nan"
        largest = f"largest difference {_number(one['max_abs'])} absolute, {_number(one['max_rel'])} relative"
        lines += [
            f"  Mismatched elements: {one['num_mismatched']} / {one['num_elements']}; "
            f"{'NaN in one of the two' if is_odd else largest},",
            f"    at {tuple(one['largest_at'])}: {_number(one['value_a'])} in A, {_number(one['value_b'])} in B",
        ]
    lines += _wrapped(f"  {first['confirmed']}") if first["confirmed"] else []
    for side, place in zip("AB", (first["a"], first["b"]), strict=True):
        if place is not None and place["stack"]:
            lines.append(f"  Stack of {side}:")
            lines += [_cut(f"    {_where(frame)}: {frame['text']}") for frame in place["stack"]]
    return lines


def _where(frame: dict[str, Any]) -> str:
    return f"{short_path(frame['file'])}:{frame['line']} in {frame['function']}"


def _wrapped(line: str, indent: str = "  ") -> list[str]:
    return wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [line]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 2] + " …"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _tensors(results: list[dict[str, Any]], title: str) -> list[str]:
    if not results:
        return []
    wrong = [one for one in results if one["verdict"] != "equal"]
    lines = ["", f"{title}: {len(results) - len(wrong)} of {len(results)} equal"]
    for one in wrong[:20]:
        error = "" if one["error"] is None else f", apart by {_number(one['error'])}"
        sources = ", ".join(one["sources"]) or "nothing"
        place = f"step {one['step']}: {one['what']} of {one['target']} (A: {sources})"
        lines.append(f"  {place}: {one['verdict']}{error}; {one['reason']}")
    return lines
