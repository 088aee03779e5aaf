"""Runs a model for a profile: once measured, then timed without the ATen level; the record holds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch

from torcheer.capture.torch.calibrate import calibrate, lean_backward, no_aten_level
from torcheer.capture.torch.clocking import Bias, TimedBackward, TimedLevel
from torcheer.capture.torch.device_clock import DeviceClock, device_clock
from torcheer.capture.torch.fake import FakeMeasurements, Fakes, note_differences, running_fake
from torcheer.capture.torch.finish_measure import add_measurements
from torcheer.capture.torch.held import Held, held_by
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.measure import Measurements
from torcheer.capture.torch.modes import FunctionLevel
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.state import RunState
from torcheer.capture.torch.structure import describe_structure, snapshot
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.capture.torch.timed import (
    Key,
    Marks,
    Matcher,
    PathError,
    times_of_the_run,
    timings_of,
    with_costs,
)
from torcheer.errors import CaptureError
from torcheer.record.model import Diagnostic, Record, Run

Tensor = torch.Tensor
LossOf = Callable[[Any], Any]
QUICK_NS = 10_000_000
KINDS = ("time", "memory", "flops", "nan")


@dataclass(frozen=True)
class Wish:
    """What to measure, and how."""

    measure: tuple[str, ...] = KINDS
    backward: bool = False
    loss: LossOf | None = None
    num_repeats: int = 5
    num_warm_up: int = 1
    clock: str = "wall"


class ProfiledRun:
    """One measured run, forward and perhaps backward."""

    def __init__(
        self, model: Any, inputs: Inputs, measure: tuple[str, ...], execution: str = "real", clock: str = "wall"
    ) -> None:
        self.measure = measure
        memory = "memory" in measure
        is_fake = execution == "fake"
        self.done = FakeMeasurements(memory=memory) if is_fake else Measurements(memory=memory, nan="nan" in measure)
        needs_aten = set(measure) != {"time"} or is_fake
        level = self.done.level if needs_aten else no_aten_level
        self.session = TorchSession(
            model, inputs, None, level=TimedLevel if "time" in measure else FunctionLevel, aten_level=level,
            backward=self._recorder,
        )  # fmt: skip
        facts = self.session.run_facts
        facts.execution = execution
        facts.measured = tuple(kind for kind in measure if not is_fake or kind in ("memory", "flops"))
        self._held: list[Held] = []
        self.clock = clock_of(model, inputs) if "time" in measure and not is_fake else None
        self.reader = read_times(self.session, self.clock, clock)

    def _recorder(self, *args: Any) -> TimedBackward:
        recorder = TimedBackward(*args)
        recorder.finite = self.done.finite
        return recorder

    def forward(self) -> Any:
        """Call the model."""
        output = self.session.run()
        if "memory" in self.measure:
            self._held = held_by((tensor for _, tensor in named_tensors(output)), self.session.tape)
        return output

    def let_go(self) -> None:
        """Keep nothing of the user's alive."""
        self.session.let_go()

    def record(self) -> Record:
        """The record with everything that was measured."""
        self.done.close()
        record = add_measurements(self.session, self.done, self._held)
        facts = record.run
        if facts.execution == "real" and "time" in self.measure and facts.error is None:
            record.timings = times_of_the_run(self.session, self.done.costs, self.clock)
            facts.clock, facts.num_repeats = self.reader, 0
        return record


def profile_run(model: Any, inputs: Inputs, wish: Wish) -> Record:
    """Run the model for a profile and leave it as it was. What it raises comes through, with ``record`` on it."""
    state = RunState(model, inputs, with_params=False)
    run = ProfiledRun(model, inputs, wish.measure, clock=wish.clock)
    try:
        _clear_gradients(model)
        with torch.set_grad_enabled(torch.is_grad_enabled() or wish.backward):
            output = run.forward()
            if wish.backward:
                loss = loss_of(output, wish.loss)
                with run.session.watching_backward():
                    loss.backward()
        record = run.record()
        if "time" in wish.measure and wish.num_repeats:
            _time(model, inputs, wish, run, record)
        return record
    except BaseException as error:
        error.profile_record = run.record  # type: ignore[attr-defined]
        raise
    finally:
        state.restore()


def profile_fake(model: Any, inputs: Inputs, wish: Wish) -> Record:
    """Run a fake copy of the model; the model itself is only read."""
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(
            f"execution='fake' copies a module, and a {type(model).__name__} is none. Pass a torch.nn.Module."
        )
    fakes = Fakes()
    twin, given = fakes.of_model(model), fakes.of_inputs(inputs)
    run = ProfiledRun(twin, given, wish.measure, "fake")
    try:
        with running_fake(fakes), torch.set_grad_enabled(torch.is_grad_enabled() or wish.backward):
            output = run.forward()
            if wish.backward:
                loss = loss_of(output, wish.loss)
                with run.session.watching_backward():
                    loss.backward()
            record = run.record()
    except BaseException as error:
        error.profile_record = run.record  # type: ignore[attr-defined]
        raise
    note_differences(record, was_meta=is_on_meta(model))
    return record


def structure_record(model: Any) -> Record:
    """A record of the model as it stands: modules and params, nothing run."""
    run = Run(type(model).__name__, framework_version=str(torch.__version__), measured=("structure",))
    record = Record(run)
    record.modules, record.params, _ = describe_structure(snapshot(model), Tape())
    return record


def inputs_of_size(model: Any, sizes: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Tensors of zeros of these sizes, of the model's dtype and device."""
    shapes = sizes if sizes and isinstance(sizes[0], (tuple, list)) else (sizes,)
    param = next((param for param in model.parameters() if param.dtype.is_floating_point), torch.zeros(()))
    return tuple(torch.zeros(tuple(shape), dtype=param.dtype, device=param.device) for shape in shapes)


def is_on_meta(model: Any) -> bool:
    """Has any param of the model no numbers?"""
    return any(param.is_meta for param in model.parameters())


def _time(model: Any, inputs: Inputs, wish: Wish, measured: ProfiledRun, record: Record) -> None:
    """Run the model without the ATen level, some times, and put the times into the record."""
    clock = clock_of(model, inputs)
    # What recording costs is the host's time; it is not in the device's, but where the device waits for the host.
    bias, matcher = calibrate() if clock is None else Bias(), Matcher(measured.session)
    runs: list[Counter[Key]] = []
    # Ranks wait for one another in the model, so that a time must not decide how often each calls it; and a forward
    # without a backward leaves FSDP in another state.
    is_of_several = torch.distributed.is_available() and torch.distributed.is_initialized()
    plain: list[int] = []  # nanoseconds of the forward when nobody records it, in turns with the timed runs
    for turn in range(wish.num_warm_up + wish.num_repeats):
        if clock is None and not is_of_several:
            plain.append(_plain_forward_ns(model, inputs, wish))
        session = _timed_run(model, inputs, wish, clock)
        if turn < wish.num_warm_up:
            continue
        own = bias if clock is not None else with_costs(bias, session)
        try:
            runs.append(matcher.times(Marks.of(session), own))
        except PathError:
            record.diagnostics.append(
                Diagnostic(
                    "path-differs",
                    "Times are of the measured run and contain a part of what recording costs: when the model was run "
                    "again for its times, it made other calls. Profile it in eval mode, or with a fixed path.",
                )
            )
            return
    if plain:
        matcher.bring_to(runs, median(plain[wish.num_warm_up :]))
    record.timings = timings_of(runs)
    facts = record.run
    facts.clock, facts.num_repeats, facts.num_warm_up = measured.reader, wish.num_repeats, wish.num_warm_up


def _plain_forward_ns(model: Any, inputs: Inputs, wish: Wish) -> int:
    """Time of the forward when nobody records it."""
    now = thread_time_ns if wish.clock == "thread" else perf_counter_ns

    def once() -> int:
        start = now()
        output = model(*inputs.args, **inputs.kwargs)
        end = now()
        del output
        return end - start

    with torch.set_grad_enabled(torch.is_grad_enabled() or wish.backward):
        spent = once()
        # A quick model's first call finds caches full of what recorded the run before.
        return spent if spent > QUICK_NS else sorted(once() for _ in range(3))[1]


def clock_of(model: Any, inputs: Inputs) -> DeviceClock | None:
    """The clock of the device that the model or its inputs are on; None for the host's."""
    params = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return device_clock((*params, *(tensor for _, tensor in inputs.tensors())))


def read_times(session: TorchSession, device: DeviceClock | None, clock: str) -> str:
    """Choose what a session reads its times from; the name of it."""
    tape = session.tape
    if device is not None:
        tape.now = device.now
        return "device"
    if clock == "thread":
        tape.now = tape.host_now = thread_time_ns
    return clock


def _timed_run(model: Any, inputs: Inputs, wish: Wish, clock: DeviceClock | None) -> TorchSession:
    _clear_gradients(model)
    session = TorchSession(model, inputs, None, level=TimedLevel, aten_level=no_aten_level, backward=lean_backward)
    read_times(session, clock, wish.clock)
    with torch.set_grad_enabled(torch.is_grad_enabled() or wish.backward):
        output = session.run()
        if wish.backward:
            loss = loss_of(output, wish.loss)
            with session.watching_backward():
                loss.backward()
    session.output = None
    if clock is not None:
        clock.settle(session.tape, Marks.of(session).recorder.nodes)
    return session


def _clear_gradients(model: Any) -> None:
    if isinstance(model, torch.nn.Module):
        model.zero_grad(set_to_none=True)


def loss_of(output: Any, chosen: LossOf | None) -> Tensor:
    """The number to run backward from: the user's, the model's own, or the mean of what it returned."""
    if chosen is not None:
        loss: Any = chosen(output)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise CaptureError(
                f"loss must return a tensor of one number, and it returned {what}. "
                "Pass a function such as loss=lambda output: output.mean()."
            )
    else:
        own = getattr(output, "loss", None)
        loss = own if isinstance(own, Tensor) and own.numel() == 1 else _mean(output)
    assert isinstance(loss, Tensor)
    if not loss.requires_grad:
        raise CaptureError(
            "backward=True needs a loss that requires grad, and nothing the model returned does. Check that params of "
            "the model require grad (requires_grad_()) and that its forward is not under torch.no_grad(), or "
            "profile with backward=False."
        )
    return loss


def _mean(output: Any) -> Tensor:
    means = [
        tensor.float().mean() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.mean()
        for _, tensor in named_tensors(output)
        if tensor.dtype.is_floating_point and tensor.requires_grad
    ]
    if not means:
        return torch.zeros(())
    return torch.stack([mean.to(means[0].device, means[0].dtype) for mean in means]).sum()
