"""The report of ``autodiff`` as text, in the order and words of PPAutoDiff's."""

from __future__ import annotations

import linecache
from itertools import groupby
from typing import TYPE_CHECKING

from torcheer.record.frames import is_framework
from torcheer.record.model import Frame

if TYPE_CHECKING:
    from torcheer.diff.autodiff import AutodiffReport, ParamDifference, StepDifference


SHOWN_PARAMS = 8  # differences of weights and gradients printed; one wrong layer makes all before it differ


def describe(report: AutodiffReport) -> str:
    """The report as text, in the order and words of PPAutoDiff's."""
    name_a, name_b = report.names
    lines = [f"Max output diff is {report.max_output_diff}", *(f"Note: {note}" for note in report.notes)]
    lines += [f"Only one side has {name}." for name in report.param_map.uneven]
    for difference in _in_order(report)[:SHOWN_PARAMS]:
        lines += [
            f"After training, {difference.what} value is different for param `{difference.name}`.",
            f"{name_a}: at `{difference.layer_a}` ({difference.address_a}).",
            f"{name_b}: at `{difference.layer_b}` ({difference.address_b}).",
            *([f"{difference.reason}."] if difference.reason else []),
            "",
        ]
    if len(report.params) > SHOWN_PARAMS:
        lines += [f"… and {len(report.params) - SHOWN_PARAMS} more: report.params has them all.", ""]
    if report.undetermined:
        lines.append(f"Not judged, their gradient is rounding alone: {', '.join(report.undetermined)}")
    if report.first is None or report.first.stage == "backward":
        lines.append(f"forward {report.num_forward} steps compared.")
    if report.first is None:
        lines.append(f"backward {report.num_backward} steps compared.")
    lines.append("SUCCESS !!!" if report else "FAILED !!!")
    if report.first is not None:
        lines += _describe_first(report.first, report)
    return "\n".join(lines)


def _apart(first: StepDifference) -> list[str]:
    apart = first.distance
    if apart is None:
        return ["Only one side has such a tensor" if "none" in first.heads else "The shapes differ"]
    lines = [str(apart)]
    if apart.value_a is not None and apart.value_b is not None:
        lines.append(f"The largest is at {list(apart.largest_at)}: {apart.value_a:.7g} vs {apart.value_b:.7g}")
    return lines


def _in_order(report: AutodiffReport) -> list[ParamDifference]:
    """Parameter by parameter, first its weight and then its gradient."""
    order = {pair.target: place for place, pair in enumerate(report.param_map.pairs)}
    return sorted(report.params, key=lambda one: (one.step, order.get(one.address_b, 0), one.what != "weight"))


def _layer(address: str) -> str:
    return f"`{address}`" if address else "the model's own code"


def _describe_first(first: StepDifference, report: AutodiffReport) -> list[str]:
    lines = [
        f"    Diff found in `{first.stage.capitalize()} Stage` in step: {first.step}, "
        f"net_id is {first.net_ids[0]} vs {first.net_ids[1]}",
        f"    Type of layer is: {first.types[0]} ({first.addresses[0]}) vs {first.types[1]} ({first.addresses[1]})",
        f"    Comes from {_layer(first.blamed[0])} vs {_layer(first.blamed[1])}: {first.why}",
        "",
        f"Not equal to tolerance {report.tolerance}",
        "",
        *_apart(first),
        f" x: {first.heads[0]}",
        f" y: {first.heads[1]}",
        "",
    ]
    for name, framework, stack in zip(report.names, report.frameworks, first.stacks, strict=True):
        lines += [f"{name[0].upper()}{name[1:]} Stacks:", "=" * 25]
        for is_folded, frames in groupby(report.called_from + stack, is_framework):
            found = list(frames)
            if is_folded:
                lines.append(f"    … {len(found)} {'frame' if len(found) == 1 else 'frames'} of {framework} itself")
            else:
                lines += [line for frame in found for line in _frame_lines(frame)]
    return lines


def _frame_lines(frame: Frame) -> list[str]:
    source = linecache.getline(frame.file, frame.line).strip()
    return [f"    File {frame.file}: {frame.line}    {frame.function}", *([f"        {source}"] if source else [])]
