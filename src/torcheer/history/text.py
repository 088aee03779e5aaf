"""What ``print(history)`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from torcheer.units import bytes_text, count_text, counted_text, elapsed_text

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.module_view import ModuleView

WIDTH = 100
ALL_LAYERS = 60  # listings up to this long are shown whole, longer ones by head and tail
HEAD, TAIL = 40, 10
MODULE_LINES = 40


def describe_history(history: ModelHistory) -> str:
    """Return the whole text about a run."""
    run = history.record.run
    lines = [f"Log of {run.model} forward pass:"]
    lines += [f"\t{line}" for line in facts(history)]
    hierarchy = list(_hierarchy(history))
    if hierarchy:
        lines.append("\tModule Hierarchy:")
        lines += [f"\t\t{line}" for line in hierarchy[:MODULE_LINES]]
        if len(hierarchy) > MODULE_LINES:
            lines.append("\t\t… all modules: list(history.modules)")
    lines.append("\tLayers:")
    lines += [f"\t\t{line}" for line in _listing(history)]
    return "\n".join(lines)


def facts(history: ModelHistory) -> Iterator[str]:
    """Yield the lines of figures at the head of the text, without indentation."""
    run = history.record.run
    if run.error is not None:
        yield f"The run raised {run.error}; what ran before is recorded."
    flow = "recurrent" if history.is_recurrent else "purely feedforward"
    branches = "with branching" if history.is_branching else "without branching"
    num_modules = max(len(history.record.modules) - 1, 0)  # without the model itself
    yield f"Model structure: {flow}, {branches}; {counted_text(num_modules, 'total module')}."
    yield _tensors(history)
    yield from _params(history)
    if history.structure.num_inner:
        inside = counted_text(history.structure.num_inner, "operation")
        yield f"{inside} inside other operations, not listed: history[label].inner"
    if run.num_backward:
        yield _backward(history)
    yield f"Random seed: {'not known' if run.seed is None else run.seed}"
    yield f"Time elapsed: {elapsed_text(run.time_ns)}"
    if history.diagnostics:
        yield f"{counted_text(len(history.diagnostics), 'remark')} on this recording: history.diagnostics"


def _tensors(history: ModelHistory) -> str:
    values, contents, structure = history.record.values, history.contents, history.structure
    made = [item.value for op in structure.listed for item in structure.outputs(op)]
    saved = [value for value in made if contents.has(value)]
    made_size = bytes_text(sum(values[value].size_bytes or 0 for value in made))
    saved_size = bytes_text(sum(values[value].size_bytes or 0 for value in saved))
    computed = f"{counted_text(len(made), 'tensor')} ({made_size}) computed in forward pass"
    return f"{computed}; {counted_text(len(saved), 'tensor')} ({saved_size}) saved."


def _params(history: ModelHistory) -> Iterator[str]:
    params = [(index, param) for index, param in enumerate(history.record.params) if param.kind == "param"]
    used = [param for index, param in params if index in history.structure.used_params]
    total = counted_text(sum(param.num_elements or 0 for param in used), "param")
    size = bytes_text(sum(param.size_bytes or 0 for param in used))
    yield f"{counted_text(len(used), 'parameter operation')} ({total} total; {size})."
    unused = len(params) - len(used)
    if unused:
        yield f"{counted_text(unused, 'parameter')} of the model not used in this run."


def _backward(history: ModelHistory) -> str:
    gradients = history.record.gradients
    num_values = len({gradient.value for gradient in gradients if gradient.value is not None})
    num_params = len({gradient.param for gradient in gradients if gradient.param is not None})
    passes = counted_text(history.record.run.num_backward, "backward pass", "backward passes")
    kept = f"{counted_text(num_values, 'tensor')} and {counted_text(num_params, 'parameter')}"
    return f"{passes} recorded; gradients of {kept}."


def _hierarchy(history: ModelHistory) -> Iterator[str]:
    if not history.record.modules:
        return
    for child in history.modules[""].children:
        yield from _module(child, 0)


def _module(module: ModuleView, depth: int) -> Iterator[str]:
    pad = "    " * depth
    children = module.children
    yield f"{pad}{module.address}{':' if children else ''}"
    for has_children, group in groupby(children, key=lambda child: bool(child.children)):
        if has_children:
            for child in group:
                yield from _module(child, depth + 1)
        else:
            text = ", ".join(child.address for child in group)
            deeper = "    " * (depth + 1)
            width = max(WIDTH - len(deeper), 40)
            for line in wrap(text, width, break_long_words=False, break_on_hyphens=False):
                yield deeper + line


def _listing(history: ModelHistory) -> Iterator[str]:
    structure = history.structure
    labels = [structure.labels[op] for op in structure.listed]
    if not labels:
        yield "none"
    numbered = [f"{position}: {label}" for position, label in enumerate(labels)]
    if len(numbered) <= ALL_LAYERS:
        yield from numbered
        return
    yield from numbered[:HEAD]
    yield f"… {count_text(len(numbered) - HEAD - TAIL)} more: history.layer_labels"
    yield from numbered[-TAIL:]
