"""Runs a model without computing anything: shapes flow, memory is counted, no numbers exist.

The model is copied with fake tensors in place of its own, so a model on the meta device will do, and one too large for
this machine. Small tensors of integers and booleans are computed all the same, beside the fake ones: models ask them
which way to go (is every token attended to? how long is the longest row?).
"""

from __future__ import annotations

import copy
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from torcheer import errors
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.measure import Measurements, MeasuringLevel
from torcheer.capture.torch.private import DynamicOutputError, FakeTensor, FakeTensorMode, no_dispatch_mode
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.errors import CaptureError
from torcheer.record.model import Diagnostic, Record

Tensor = torch.Tensor
MAX_NUMBERS = 1_000_000  # of a tensor that is computed beside its fake
_SHADOW = "torcheer_shadow"  # the attribute of a fake tensor under which its numbers are
_NOT_THE_USERS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, errors.__file__))
_READS = ("aten._local_scalar_dense.default", "aten.is_nonzero.default")

# What the fake kernels of these do not know of.
_HIDDEN = {
    "aten.mkldnn_rnn_layer.default": "the workspace of the CPU's LSTM kernel, which may be most of what an LSTM takes",
    "aten._cudnn_rnn.default": "the reserve space of cuDNN's recurrent kernels",
}


class FakeLevel(MeasuringLevel):
    """Measures fake calls, and answers what a model asks of small integers."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "prim":
            return func(*args, **(kwargs or {}))  # prim.device: most of all fake calls, and no operation
        name = str(func)
        if name in _READS:
            shadow = getattr(args[0], _SHADOW, None)
            if shadow is not None:
                with no_dispatch_mode():
                    return shadow.item()
        if name.startswith("aten._grouped_mm.") and args[0].dtype is not torch.bfloat16:
            raise CaptureError(
                "PyTorch's fake kernel of grouped matrix products (mixtures of experts) knows bfloat16 alone, and this "
                f"model computes them in {str(args[0].dtype).removeprefix('torch.')}. Profile the model in bfloat16, "
                "model.to(torch.bfloat16), or with execution='real'."
            )
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if _may_have_numbers(out):
            _compute_beside(func, args, kwargs or {}, out)
        return out


def _may_have_numbers(out: Any) -> bool:
    return isinstance(out, FakeTensor) and not out.dtype.is_floating_point and out.numel() <= MAX_NUMBERS


def _compute_beside(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Compute a small tensor of integers for real, where everything it depends on was."""
    missing: list[bool] = []

    def real(one: Any) -> Any:
        if isinstance(one, FakeTensor):
            shadow = getattr(one, _SHADOW, None)
            if shadow is None:
                missing.append(True)
            return shadow
        if isinstance(one, (tuple, list)):
            return type(one)(real(item) for item in one)
        return one

    given, named = real(tuple(args)), {name: real(one) for name, one in kwargs.items()}
    if missing or func.namespace != "aten" or _is_random(func):
        return
    if named.get("device") is not None:
        named["device"] = torch.device("cpu")
    with no_dispatch_mode(), torch.no_grad():
        result = func(*given, **named)
    if isinstance(result, Tensor) and result.shape == out.shape:
        setattr(out, _SHADOW, result)


def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


class Fakes:
    """A fake twin of every tensor of a model and its inputs."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins: dict[int, Any] = {}  # id() of a tensor → its twin: also the memo of deepcopy
        self._originals: list[Any] = []  # keeps the ids their own

    def of_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """A copy of the model that holds no numbers."""
        tensors = [*model.parameters(), *model.buffers()]
        for module in model.modules():
            tensors += [value for value in vars(module).values() if isinstance(value, Tensor)]
        for tensor in tensors:
            self.of_tensor(tensor)
        try:
            return copy.deepcopy(model, dict(self._twins))
        except (TypeError, NotImplementedError) as error:
            raise CaptureError(
                f"execution='fake' runs a copy of the model, and this {type(model).__name__} cannot be copied: {error}."
                " Keep what it names out of the model's attributes, or profile it with execution='real'."
            ) from error

    def of_inputs(self, inputs: Inputs) -> Inputs:
        """The same inputs, fake."""
        return Inputs(self._of(inputs.args), self._of(inputs.kwargs), inputs.names)

    def _of(self, structure: Any) -> Any:
        for _, tensor in named_tensors(structure):
            self.of_tensor(tensor)
        return copy.deepcopy(structure, dict(self._twins))

    def of_tensor(self, tensor: Tensor) -> Any:
        """The twin of one tensor: on the same device, and where that is meta on the CPU."""
        twin = self._twins.get(id(tensor))
        if twin is not None:
            return twin
        if isinstance(tensor, FakeTensor):
            raise CaptureError(
                "The model or its input holds fake tensors already. Give the model itself, or one on meta."
            )
        device = "cpu" if tensor.is_meta else tensor.device
        with self.mode:
            made: Any = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                made.requires_grad_()
        if not tensor.is_meta and not tensor.dtype.is_floating_point and tensor.numel() <= MAX_NUMBERS:
            setattr(made, _SHADOW, tensor.detach().cpu().clone())
        self._twins[id(tensor)] = made
        self._originals.append(tensor)
        return made


class FakeMeasurements(Measurements):
    """Measures a fake run."""

    def __init__(self, *, memory: bool) -> None:
        super().__init__(memory=memory, nan=False)

    def level(self, tape: Tape, keeper: Keeper | None) -> FakeLevel:
        meters = tuple(meter for meter in (self.memory,) if meter is not None)
        return FakeLevel(tape, keeper, meters, self.costs, self.nodes)


@contextmanager
def running_fake(fakes: Fakes) -> Iterator[None]:
    """Run fake tensors inside the block. Where the path depends on numbers there are not, an error says so."""
    try:
        with _as_eager(), fakes.mode:
            yield
    except DynamicOutputError as error:
        raise CaptureError(
            f"With execution='fake' no numbers exist, and this model asks for some: {_asked(error)}{_line(error)}. "
            "Give real tensors for its integer inputs (ids, masks, lengths) instead of ones on meta; where it asks "
            "what its own layers or random numbers came to, profile it with execution='real'."
        ) from error
    except (RuntimeError, AssertionError) as error:
        refused = next((why for text, why in _REFUSALS.items() if text in str(error)), None)
        if refused is None:
            raise  # what the model would raise in a real run too
        raise CaptureError(
            f"execution='fake' cannot run this model{_line(error)}: {refused}. Profile it with execution='real'."
        ) from error


# What PyTorch says where a fake run ends that a real one would not, and what that means.
_REFUSALS = {
    ".numpy() is not supported": "it hands a tensor to NumPy, and no numbers exist",
    "no fake impl registered": (
        "it calls a custom operator that does not say what shapes it returns, as torch.library.register_fake would"
    ),
    "Mode should never be enabled": (
        "it calls torch.cond or another operator that takes functions, which go by numbers, and none exist"
    ),
}


def _asked(error: BaseException) -> str:
    operator = str(error).split("\n")[0]
    if operator in _READS:
        return "a number out of a tensor (if, .item(), .tolist())"
    return f"the size of what {operator} returns depends on them"


def _line(error: BaseException) -> str:
    """Where in the user's code, or a library's, that was."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            return f", at {frame.f_code.co_filename}:{_line_of(error, frame)}"
    return ""


def _line_of(error: BaseException, frame: FrameType) -> int:
    return next(line for one, line in traceback.walk_tb(error.__traceback__) if one is frame)


@contextmanager
def _as_eager() -> Iterator[None]:
    """transformers takes fake tensors for a sign of tracing, and then makes masks that it otherwise would not."""
    module = sys.modules.get("transformers.utils.import_utils")
    original = getattr(module, "is_fake_tensor", None)
    if original is None:
        yield
        return
    module.is_fake_tensor = lambda _tensor: False  # type: ignore[union-attr]
    try:
        yield
    finally:
        module.is_fake_tensor = original  # type: ignore[union-attr]


def note_differences(record: Record, *, was_meta: bool) -> None:
    """Say where fake execution is known to differ from a real run. ``was_meta``: the model is on no real device."""
    functions = {op.function for op in record.aten}
    for function, what in _HIDDEN.items():
        if function in functions:
            record.diagnostics.append(
                Diagnostic("fake-differs", f"Predicted memory is partial: it lacks {what} ({function}).")
            )
    custom = sorted(one for one in functions if one.partition(".")[0] not in ("aten", "prim", "prims", "profiler"))
    if custom:
        record.diagnostics.append(
            Diagnostic(
                "fake-differs",
                f"What {', '.join(custom[:4])}{', …' * (len(custom) > 4)} returned is what its fake kernel says, which "
                "nobody compared with the real one.",
            )
        )
    if was_meta:
        record.diagnostics.append(
            Diagnostic(
                "fake-differs",
                "The model is on meta, and was run as on a CPU: on another device other kernels may run, and hold "
                "other tensors for the backward pass.",
            )
        )
