"""The checks that a record must stand by itself, given a witness of the run.

census      an independent count of ATen calls agrees with the record; none is without an owner
replay      every op, executed again from the inputs recorded for it, gives its recorded output
edges       what an op read is what its recorded parents wrote, byte for byte
influence   changing an argument changes the op, unless it is known not to depend on the values
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torcheer.capture.torch.evidence import Witnessed, copied
from torcheer.capture.torch.state import is_ordinary, random_state, same, same_structure, set_random_state
from torcheer.capture.torch.tape import named_tensors
from torcheer.record.model import Edge, Op, Record, Value
from torcheer.record.payload import Payloads

Tensor = torch.Tensor

# Ops that take a tensor for its shape, dtype or device, or that may pass over all its values.
_IGNORES_VALUES = frozenset(
    "zeroslike oneslike emptylike randlike randnlike randintlike fulllike new newzeros newones newempty newfull"
    " newtensor typeas expandas viewas reshapeas to sizeas isnan isfinite isinf item bool zero fill normal uniform"
    " random bernoulli exponential setitem copy".split()
)
_MAY_PASS_OVER = frozenset(
    "where maskedfill dropout alphadropout featuredropout relu relu6 clamp clampmin clampmax hardtanh mul index"
    " indexselect gather getitem take cat scatter indexput maskedscatter scaleddotproductattention maxpool2d"
    " threshold sign round floor ceil trunc any all eq ne lt le gt ge logicaland logicalor logicalnot bitwiseand"
    " bitwiseor bitwisenot argmax argmin topk sort embedding embeddingbag batchnorm nllloss nllloss2d"
    " crossentropyloss softmax logsoftmax lstm gru rnntanh rnnrelu packpaddedsequence padpackedsequence lerp addcmul"
    " gcd fmod remainder equal notequal less lessequal greater greaterequal minimum maximum min max amin amax unique"
    " nonzero invert or and xor triu tril searchsorted bucketize scatterreduce floordivide rshift lshift".split()
)
# Their kernels trust the offsets they are given, so other ones could make them read foreign memory.
_TRUST_OFFSETS = frozenset(("groupedmm", "scaledgroupedmm"))


@dataclass
class Check:
    """One check, and what it found."""

    name: str
    tested: int = 0
    failures: list[str] = field(default_factory=list)
    not_tested: Counter[str] = field(default_factory=Counter)  # reason → how often


@dataclass
class Proof:
    """A record and what can be said for it."""

    record: Record
    contents: Payloads
    calls: dict[int, Witnessed]  # index into record.ops → the call as it was made
    census: list[str]  # names of ATen calls, counted independently
    aten_calls: list[str]  # as they are on the tape

    def value(self, index: int) -> Tensor | None:
        """Recorded contents of a value."""
        name = self.record.saved.get(index)
        return self.contents[name] if name is not None and name in self.contents else None


def check_proof(proof: Proof) -> list[Check]:
    """The four checks that a record must stand by itself."""
    outer = random_state()
    try:
        return [check_census(proof), check_replay(proof), check_edges(proof), check_influence(proof)]
    finally:
        set_random_state(outer)


def check_census(proof: Proof) -> Check:
    """Is every ATen call of the run in the record, under an op that exists?"""
    check = Check("census")
    record = proof.record
    forward = [op for op in record.aten if op.phase == "forward"]
    check.tested = len(proof.census)
    counted, recorded = Counter(proof.census), Counter(op.function for op in forward)
    # What a kernel written in Python calls is recorded as its inside; a plain census does not see it.
    functions = {op.index: op.function for op in record.aten}
    inside = Counter(op.function for op in forward if _is_inside_custom(record, op, functions))
    for name in sorted(counted.keys() | recorded.keys()):
        missing = counted[name] - recorded[name]
        if missing > 0:
            check.failures.append(f"{name}: {missing} of {counted[name]} calls are not in the record")
        elif recorded[name] - inside[name] > counted[name]:
            check.failures.append(f"{name}: recorded {recorded[name]} times, called {counted[name]} times")
    for op in forward:
        if op.owner is None or op.index not in record.ops[op.owner].aten:
            check.failures.append(f"ATen call {op.index} ({op.function}) belongs to no op")
    return check


def _is_inside_custom(record: Record, op: Op, functions: dict[int, str]) -> bool:
    owner = record.ops[op.owner] if op.owner is not None else None
    while owner is not None:
        if not owner.function.startswith(("torch.", "aten.")):
            return True
        if any(not functions.get(index, "aten.").startswith("aten.") for index in owner.aten):
            return True
        owner = record.ops[owner.owner] if owner.owner is not None else None
    return False


def _witnessed_ops(proof: Proof, check: Check) -> Iterator[tuple[Op, Witnessed]]:
    for op in proof.record.ops:
        if op.kind != "op":
            continue
        call = proof.calls.get(op.index)
        if call is None:
            check.not_tested["no Python call made it (scripted code, autograd.Function)"] += 1
        else:
            yield op, call


def _again(call: Witnessed, reads: dict[str, Tensor]) -> tuple[Any, tuple[Any, ...]]:
    """Make a call once more, on copies of ``reads``. Returns its result and its arguments afterwards."""
    set_random_state(call.random)
    with torch.set_grad_enabled(call.grad_enabled):
        args = copied(call.args, reads)
        kwargs = {key: copied(value, reads, key) for key, value in call.kwargs.items()}
        return call.func(*args, **kwargs), args


def check_replay(proof: Proof) -> Check:
    """Does every op, executed again, give the output recorded for it?"""
    check = Check("replay")
    for op, call in _witnessed_ops(proof, check):
        if any(not is_ordinary(tensor) for _, tensor in named_tensors((call.args, call.kwargs))):
            check.not_tested["its tensors are not ordinary (sparse, nested, subclass)"] += 1
            continue
        try:
            result, args = _again(call, call.reads)
        except (RuntimeError, TypeError, ValueError) as error:
            check.not_tested[f"it cannot be called again ({type(error).__name__})"] += 1
            continue
        check.tested += 1
        again = dict(named_tensors(result))
        for item in op.outputs:
            recorded = proof.value(item.value)
            repeated = again.get(item.path)
            if repeated is None and op.writes:
                repeated = next((tensor for _, tensor in named_tensors(args[:1])), None)
            if recorded is None or repeated is None or not is_ordinary(repeated):
                continue
            if op.name.startswith("empty") or op.name in ("newempty", "new"):
                continue
            if not same(recorded.detach(), repeated.detach()):
                check.failures.append(f"{_name(proof, op)}: executed again it gives another output {item.path}")
    return check


def check_edges(proof: Proof) -> Check:
    """Is what each op read exactly what its recorded parents wrote?"""
    check = Check("edges")
    for op, call in _witnessed_ops(proof, check):
        for path, read in call.reads.items():
            value = _argument(op, path)
            if value is None:
                check.failures.append(f"{_name(proof, op)}: argument {path} is a tensor the record does not have")
                continue
            found = [edge for edge in op.parents if edge.argument == path]
            described = proof.record.values[value]
            if tuple(read.shape) != described.shape:
                check.failures.append(
                    f"{_name(proof, op)}: argument {path} has shape {tuple(read.shape)}, recorded {described.shape}"
                )
                continue
            composed = _compose(proof, described, found)
            if composed is None:
                check.not_tested["it reads a parameter or constant, or contents that are not kept"] += 1
                continue
            check.tested += 1
            if not same(composed, read):
                parents = ", ".join(_name(proof, proof.record.ops[edge.op]) for edge in found) or "none"
                check.failures.append(
                    f"{_name(proof, op)}: argument {path} is not what its recorded parents wrote ({parents})"
                )
    return check


def _compose(proof: Proof, value: Value, found: list[Edge]) -> Tensor | None:
    """Rebuild what an argument held from the outputs of the parents, in the order they wrote."""
    if not found:
        return None
    written = [(proof.record.values[edge.value], proof.value(edge.value)) for edge in found]
    if any(contents is None for _, contents in written):
        return None
    if value.stride is None or value.storage is None:
        return written[-1][1]
    width = torch.empty((), dtype=getattr(torch, value.dtype)).element_size()
    values = [value, *(described for described, _ in written)]
    if any(described.stride is None for described in values):
        return None
    size = max(_end(described, width) for described in values)
    memory = torch.zeros(-(-size // 16) * 16, dtype=torch.uint8)
    for described, contents in written:
        assert contents is not None
        if described.stride is None or not contents.numel():
            continue
        plain = contents.detach().resolve_conj().resolve_neg()
        target = memory.view(plain.dtype).as_strided(described.shape, described.stride, described.offset)
        if any(step == 0 and extent > 1 for step, extent in zip(described.stride, described.shape, strict=True)):
            target = target[tuple(slice(0, 1) if step == 0 else slice(None) for step in described.stride)]
            plain = plain[tuple(slice(0, 1) if step == 0 else slice(None) for step in described.stride)]
        target.copy_(plain)
    return memory.view(getattr(torch, value.dtype)).as_strided(value.shape, value.stride, value.offset)


def _end(value: Value, width: int) -> int:
    item = torch.empty((), dtype=getattr(torch, value.dtype)).element_size()
    last = value.offset + sum((n - 1) * s for n, s in zip(value.shape, value.stride or (), strict=True) if n)
    return (last + 1) * max(item, width)


def check_influence(proof: Proof) -> Check:
    """Does changing an argument change the op?"""
    check = Check("influence")
    for op, call in _witnessed_ops(proof, check):
        parents = {edge.argument for edge in op.parents}
        for path, read in call.reads.items():
            if path not in parents or not read.numel():
                continue
            if path.split(".")[0] == "out":
                check.not_tested["the argument says where the result goes"] += 1
                continue
            if op.name in _IGNORES_VALUES:
                check.not_tested["the op is known not to depend on the values"] += 1
                continue
            if op.name in _TRUST_OFFSETS and not read.is_floating_point():
                check.not_tested["offsets into memory, which the op does not check"] += 1
                continue
            changed = _responds(call, path, read)
            if changed is None:
                check.not_tested["the changed argument is refused"] += 1
            elif changed:
                check.tested += 1
            elif op.name in _MAY_PASS_OVER or not op.outputs:
                check.not_tested["the op may pass over the values it is given"] += 1
            else:
                check.failures.append(f"{_name(proof, op)}: changing argument {path} does not change it")
    return check


def _responds(call: Witnessed, path: str, read: Tensor) -> bool | None:
    """Does the op change with an argument? None where it refuses other values."""
    responds = _responds_among(call, path, read, call.reads)
    if responds is False and len(call.reads) > 1:
        # The other arguments may hide it: a weight of zeros, a mask of -1e38.
        others = {other: held if other == path else _moderate(held) for other, held in call.reads.items()}
        return _responds_among(call, path, _moderate(read), others) or False
    return responds


def _responds_among(call: Witnessed, path: str, read: Tensor, others: dict[str, Tensor]) -> bool | None:
    try:
        before, _ = _again(call, {**others, path: read})
    except (RuntimeError, TypeError, ValueError):
        return None
    refused = False
    for change in (_shift, _scramble, _enlarge):
        reads = {**others, path: change(read).requires_grad_(read.requires_grad)}
        try:
            after, _ = _again(call, reads)
        except (RuntimeError, TypeError, ValueError, IndexError):
            # It depends on the values so much that it refuses others.
            refused = True
            continue
        if not same_structure(before, after) or _plain(before) != _plain(after):
            return True
    return None if refused else False


def _shift(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.where(tensor.isfinite(), tensor * -1.7 + 0.9, torch.full_like(tensor, 0.3))
    return tensor.flatten().flip(0).reshape(tensor.shape) if tensor.numel() > 1 else tensor + 1


def _scramble(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.linspace(0.1, 3.0, tensor.numel(), device=tensor.device).to(tensor.dtype).reshape(tensor.shape)
    return ~tensor if tensor.dtype == torch.bool else (tensor + 1)


def _enlarge(tensor: Tensor) -> Tensor:
    """Values that show beside a constant of 1e30."""
    if not tensor.is_floating_point():
        return _scramble(tensor)
    return _scramble(tensor) * (torch.finfo(tensor.dtype).max / 8)


def _moderate(tensor: Tensor) -> Tensor:
    """Values of the size of 1 in place of what may be nothing, infinite or too large to add to."""
    return _scramble(tensor).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


def _plain(result: Any) -> Any:
    return result if isinstance(result, (bool, int, float, str, list)) and not named_tensors(result) else None


def _argument(op: Op, path: str) -> int | None:
    """The value the record has at an argument's path."""
    first, *rest = path.split(".")
    found: Any = None
    if op.kwargs is not None and first in op.kwargs:
        found = op.kwargs[first]
    elif first.isdigit() and int(first) < len(op.args):
        found = op.args[int(first)]
    for step in rest:
        if isinstance(found, (list, tuple)) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, dict):
            found = found.get(step)
        else:
            return None
    return int(found) if isinstance(found, int) and not isinstance(found, bool) else None


def _name(proof: Proof, op: Op) -> str:
    if op.layer >= 0:
        return f"{proof.record.layers[op.layer].label}:{op.pass_index}"
    return f"{op.name} (op {op.index})"
