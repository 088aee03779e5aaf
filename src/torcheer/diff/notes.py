"""What the circumstances of two runs say, before any number is compared: modes, types, random numbers, kernels."""

from __future__ import annotations

from collections import Counter

from torcheer.diff.side import Recording
from torcheer.record.model import Record

_RANDOM = ("native_dropout", "bernoulli", "rand", "normal_", "multinomial", "uniform_", "exponential_")
_KERNELS = ("scaled_dot_product", "mkldnn_rnn_layer", "transformer_encoder_layer", "native_multi_head_attention")
_MODAL = ("drop", "norm")  # in names of modules that behave otherwise in training mode
_LOW = ("float16", "bfloat16", "qint8", "quint8", "float8")


def notes_about(a: Recording, b: Recording) -> list[str]:
    """Differences of circumstance, each in a sentence."""
    notes = []
    one, other = a.record, b.record
    if is_training(one) != is_training(other) and not (_is_exported(one) or _is_exported(other)):
        modes = ["training" if is_training(record) else "eval" for record in (one, other)]
        types = {module.type_name.lower() for record in (one, other) for module in record.modules}
        modal = any(sort in name for name in types for sort in _MODAL)
        tail = ": dropout and batch norm behave otherwise" if modal else ""
        notes.append(f"A ran in {modes[0]} mode and B in {modes[1]} mode{tail}")
    own = [_types(record) for record in (one, other)]
    if own[0] != own[1] and own[0] and own[1]:
        notes.append(f"A computes in {', '.join(own[0])} and B in {', '.join(own[1])}")
    random = [_calls(record, _RANDOM) for record in (one, other)]
    for side, calls in zip("AB", random, strict=True):
        if calls:
            notes.append(f"{side} draws random numbers ({', '.join(calls)}): dropout may be on")
    kernels = [_calls(record, _KERNELS) for record in (one, other)]
    if set(kernels[0]) != set(kernels[1]):
        shown = [", ".join(calls) or "none" for calls in kernels]
        notes.append(f"fused kernels differ: A uses {shown[0]}, B uses {shown[1]}")
    if one.run.framework_version != other.run.framework_version:
        notes.append(
            f"A ran on {one.run.framework} {one.run.framework_version}, "
            f"B on {other.run.framework} {other.run.framework_version}"
        )
    # Paddle's tensors without memory are on no device.
    devices = [sorted({value.device for value in record.values} - {"none"}) for record in (one, other)]
    if devices[0] != devices[1]:
        notes.append(f"A ran on {', '.join(devices[0])}, B on {', '.join(devices[1])}")
    return notes


def is_training(record: Record) -> bool:
    """Whether the model ran in training mode; an exported program says so always, and has no modes."""
    return record.run.training and not _is_exported(record)


def _is_exported(record: Record) -> bool:
    return any(module.address == "" and module.type_name == "GraphModule" for module in record.modules)


def note_on_gradients(a: Recording, b: Recording) -> list[str]:
    """Say that gradients were not compared, where there would be some."""
    for record, _ in (a, b):
        returned = [value for op in record.ops if op.kind == "output" for value in op.inputs]
        trains = any(param.requires_grad for param in record.params)
        if not trains or not any(record.values[value].requires_grad for value in returned):
            return []
    return ["gradients were not compared: backward=True compares them"]


def _types(record: Record) -> list[str]:
    """The floating types that the run computed in."""
    counts = Counter(value.dtype for value in record.values if value.kind == "activation")
    found = [dtype for dtype in counts if dtype.startswith(("float", "bfloat", "complex", "qint", "quint"))]
    return sorted(dtype for dtype in found if dtype in _LOW or counts[dtype] * 4 >= max(counts.values()))


def _calls(record: Record, names: tuple[str, ...]) -> list[str]:
    """ATen functions of the run whose names begin so, each once."""
    found = (op.function.removeprefix("aten.").partition(".")[0] for op in record.aten if op.phase == "forward")
    return list(dict.fromkeys(name for name in found if any(name.lstrip("_").startswith(one) for one in names)))
