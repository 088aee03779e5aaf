"""What ``print(history["conv2d_3_7"])`` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from textwrap import indent
from typing import TYPE_CHECKING

from torcheer.errors import NotSavedError
from torcheer.history.excerpt import excerpt
from torcheer.history.frames import frame_text
from torcheer.units import bytes_text, count_text, counted_text, scientific_seconds, shape_text

if TYPE_CHECKING:
    from torcheer.history.aten_view import Output
    from torcheer.history.layer_view import LayerView
    from torcheer.history.module_view import ParamView
    from torcheer.history.op_view import OpView

NAMES = 8  # how many names a line lists
OUTPUTS = 10  # how many outputs of one operation are shown
PASSES = 40  # how many passes of one layer are shown


def describe_op(view: OpView) -> str:
    """Return the whole text about one operation."""
    lines = [_heading(view), *_outputs(view), _params(view.params), *_writes(view)]
    lines.append("Parent Layers: " + names((parent.label for parent in view.parents), "no parent layers"))
    lines.append("Child Layers: " + names((child.label for child in view.children), "no child layers"))
    lines.append(f"Function: {function_text(view)} (gradfunc={view.grad_function or 'none'})")
    lines += _inside(view)
    lines.append("Computed inside module: " + (_call(view, view.module_calls[-1:]) or "the model itself"))
    lines.append(f"Source: {frame_text(view.source)}")
    lines.append(f"Time elapsed:  {scientific_seconds(view.time_ns)}")
    if view.backward_time_ns is not None:
        lines.append(f"Time elapsed in backward:  {scientific_seconds(view.backward_time_ns)}")
    lines += _gradient(view)
    lines.append("Output of modules: " + (_call(view, view.output_of) or "none"))
    bottom = view.bottom_output_of
    lines.append("Output of bottom-level module: " + (_call(view, (bottom,) if bottom else ()) or "none"))
    lines.append("Lookup keys: " + ", ".join(str(key) for key in view.lookup_keys))
    return "\n\t".join(lines)


def describe_layer(layer: LayerView) -> str:
    """Return the whole text about a layer with several passes."""
    passes = layer.passes
    first = passes[0]
    lines = [f"Layer {layer.label}, {counted_text(layer.num_passes, 'pass', 'passes')}:"]
    lines.append(f"Function: {function_text(first)} (gradfunc={first.grad_function or 'none'})")
    lines.append(_params(layer.params))
    lines.append(f"Computed inside module: {layer.module or 'the model itself'}")
    lines.append(f"Source: {frame_text(layer.source)}")
    lines.append(f"Time elapsed:  {scientific_seconds(layer.time_ns)} in all passes")
    lines.append("Passes:")
    lines += ["\t" + _pass(view) for view in passes[:PASSES]]
    if len(passes) > PASSES:
        lines.append(f"\t… {count_text(len(passes) - PASSES)} more: history['{layer.label}'].passes")
    lines.append("Lookup keys: " + ", ".join(layer.lookup_keys))
    return "\n\t".join(lines)


def names(labels: Iterable[str], nothing: str) -> str:
    """Return ``a, b, c and 4 more``."""
    listed = list(labels)
    if not listed:
        return nothing
    more = f" and {count_text(len(listed) - NAMES)} more" if len(listed) > NAMES else ""
    return ", ".join(listed[:NAMES]) + more


def function_text(view: OpView) -> str:
    """Return the function as people write it: ``conv2d`` for ``torch.nn.functional.conv2d``."""
    if view.is_input or view.is_output:
        path = view.outputs[0].path if len(view.outputs) == 1 else ""
        return f"none, {view.op.kind} {path!r} of the model" if path else f"none, an {view.op.kind} of the model"
    function = view.function
    if function.startswith("torch.ops."):
        return function.removeprefix("torch.ops.")
    return function.rsplit(".", 1)[-1] if function.startswith(("torch.", "paddle.")) else function


def _heading(view: OpView) -> str:
    if view.position is None:
        owner = view.owner
        return f"Operation {view.label}, inside {owner.label if owner is not None else 'another operation'}:"
    which = f" (pass {view.pass_index}/{view.num_passes})" if view.num_passes > 1 else ""
    return f"Layer {view.layer_label}{which}, operation {view.position + 1}/{len(view.history)}:"


def _outputs(view: OpView) -> Iterator[str]:
    outputs = view.outputs
    if not outputs:
        yield "Output: no tensor" + ("" if view.result is None else f" but {view.result!r}")
    elif len(outputs) == 1:
        yield f"Output tensor: {_measures(view, outputs[0])}"
        yield indent(_contents(view, outputs[0]), "\t\t")[1:]
    else:
        yield f"Output tensors: {count_text(len(outputs))}"
        for output in outputs[:OUTPUTS]:
            yield f"\t{output.path}: {_measures(view, output)}"
            yield indent(_contents(view, output), "\t\t\t")[1:]
        if len(outputs) > OUTPUTS:
            yield f"\t… {count_text(len(outputs) - OUTPUTS)} more: history['{view.label}'].outputs"


def _measures(view: OpView, output: Output) -> str:
    value = output.value
    framework = view.history.record.run.framework
    size = bytes_text(value.size_bytes)
    return f"shape={shape_text(value.shape)}, dtype={framework}.{value.dtype}, size={size}"


def _contents(view: OpView, output: Output) -> str:
    contents, value = view.history.contents, output.value
    reason = None
    if contents.has(value.index):
        try:
            return excerpt(contents.read(value.index), value)
        except NotSavedError as error:
            reason = str(error)
    reason = reason or contents.why_not(value.index)
    return f"not saved. {view.how_to_save}" if reason is None else f"not saved: {reason}"


def _params(params: tuple[ParamView, ...]) -> str:
    read = sorted((param for param in params if param.kind == "param"), key=lambda param: param.shape)
    buffers = [param.address.rsplit(".", 1)[-1] for param in params if param.kind == "buffer"]
    tail = f"; {'buffer' if len(buffers) == 1 else 'buffers'} {names(buffers, '')}" if buffers else ""
    if not read:
        return f"Params: no params used{tail}"
    shapes = names((shape_text(param.shape) for param in read), "")
    total = counted_text(sum(param.num_elements or 0 for param in read), "param")
    size = bytes_text(sum(param.size_bytes or 0 for param in read))
    return f"Params: Computed from params with shape {shapes}; {total} total ({size}){tail}"


def _writes(view: OpView) -> Iterator[str]:
    written = view.written_params
    if written:
        yield "Writes: " + names((f"{param.kind} {param.address}" for param in written), "")


def _inside(view: OpView) -> Iterator[str]:
    if view.inner:
        yield "Operations inside: " + names((op.label for op in view.inner), "")
    for is_forward, title in ((True, "ATen ops"), (False, "ATen ops in backward")):
        counts = Counter(op.function for op in view.aten if (op.phase == "forward") is is_forward)
        if counts:
            counted = (name if count == 1 else f"{name} ×{count}" for name, count in counts.items())
            yield f"{title}: {names(counted, '')}"


def _gradient(view: OpView) -> Iterator[str]:
    if not view.history.record.run.num_backward:
        return
    framework = view.history.record.run.framework
    for output in view.outputs:
        entry = view.history.contents.gradient_of(output.value.index)
        path = f" of {output.path}" if len(view.outputs) > 1 else ""
        if entry is not None:
            shape, size = shape_text(entry.shape), bytes_text(entry.size_bytes)
            yield f"Gradient{path}: shape={shape}, dtype={framework}.{entry.dtype}, size={size}"
        else:
            yield f"Gradient{path}: none"


def _call(view: OpView, calls: tuple[str, ...]) -> str:
    """The calls as a reader says them: without the call's number where the module has one call."""
    modules = view.history.modules
    said = []
    for call in calls:
        address = call.rpartition(":")[0]
        said.append(call if len(modules[address].calls) > 1 else address)
    return ", ".join(said)


def _pass(view: OpView) -> str:
    shape = shape_text(view.shape) if view.shape is not None else "no tensor"
    saved = "saved" if view.has_contents else "not saved"
    parents = names((parent.label for parent in view.parents), "no parent layers")
    where = f"operation {(view.position or 0) + 1}"
    return f"{view.pass_index}: {where}, shape={shape}, {saved}, from {parents}"
