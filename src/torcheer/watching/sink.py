"""Where watched steps go: series, structure, notes and rows of one run, handed to its writer and its backends."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.session import TorchSession
from torcheer.errors import CaptureError
from torcheer.record import file as record_file
from torcheer.store import Series, StepRows, Writer
from torcheer.store.alerts import Rules
from torcheer.store.structure import Structure, structure_of, structure_of_calls, union
from torcheer.watching.describe import modules_of
from torcheer.watching.forward import LoggedForward
from torcheer.watching.options import Options
from torcheer.watching.step import Binning, Collected, LoggedStep

MAX_RECORDINGS = 8  # of one run: control flow that goes on changing is not recorded for ever


class Backend(Protocol):
    """What is shown somewhere else as well. Called on the writer's thread."""

    def add_step(self, rows: StepRows, series: dict[int, Series]) -> None: ...

    def add_scalars(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class Watched(Protocol):
    """What the sink knows of a watcher."""

    name: str
    step: int


class Sink:
    """One run of this process."""

    def __init__(self, writer: Writer, options: Options, backends: list[Backend]) -> None:
        self.writer, self._options, self._backends = writer, options, backends
        self._binning = Binning(options.bins, options.reject_outlier_proportion)
        self._rules = Rules() if options.alerts else None
        self._series: dict[int, Series] = {}
        self._structures: dict[str, Structure] = {}
        self._recorded: dict[str, bool] = {}  # watcher → whether its newest way of running has been recorded
        # Each process of a run has its own recordings, as it has its own file.
        self._recording_name = "graph-{:04d}.tch" if writer.rank == 0 else f"graph-rank-{writer.rank}-{{:04d}}.tch"
        self._num_recordings = 0
        while (writer.folder / self._recording_name.format(self._num_recordings + 1)).exists():
            self._num_recordings += 1
        self._noted: set[str] = set()
        self._has_warned = False
        self._to_warn: list[str] = []  # of backends that failed, for the training thread
        self.watchers: list[Any] = []
        self._published: dict[int, tuple[int, int]] = {}
        self.after_step: Callable[[StepRows], None] | None = None  # on the writer's thread
        writer.when_idle = self._publish_open

    @property
    def is_open(self) -> bool:
        """Is there still somebody to write to? Asked on the training thread, which is where warnings are seen."""
        while self._to_warn:
            warnings.warn(self._to_warn.pop(), stacklevel=2)
        if self.writer.failure is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"torcheer has stopped writing the watched run: {self.writer.failure}. Training goes on; what was "
                "written before can be read.",
                stacklevel=2,
            )
        return self.writer.failure is None and not self.writer.is_closed

    # -- series and notes ----------------------------------------------------------------------------

    def register(self, facts: Series) -> int:
        known = self.writer.series(facts.lane, facts.name, lambda number: dataclasses.replace(facts, id=number))
        self._series[known.id] = known
        return known.id

    def note_once(self, step: int, code: str, message: str) -> None:
        """Tell the reader of the run something, the first time it happens."""
        if code not in self._noted:
            self._noted.add(code)
            self.writer.add_note(max(step, 0), code, message)

    # -- structure -----------------------------------------------------------------------------------

    def run_and_record(
        self, watcher: Watched, forward: LoggedForward, call: Callable[[], Any], model: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run the model's call, recording its operations when the structure of the run needs it."""
        wanted = not self._recorded.get(watcher.name, False) and forward.step.lane.endswith("train")
        if not wanted or self._num_recordings >= MAX_RECORDINGS or not self._options.record:
            return call()
        self._recorded[watcher.name] = forward.is_recorded = True
        self._num_recordings += 1
        before = _State(model)
        session = TorchSession(model, Inputs(args, kwargs), None)
        try:
            out = session.run()
        except CaptureError as error:
            before.put_back()
            forward.start_again()
            self.note_once(watcher.step, "not-recorded", f"The graph of operations could not be recorded: {error}")
            return call()
        session.let_go()
        self._add_recording(watcher, session, model, self._recording_name.format(self._num_recordings))
        return out

    def _add_recording(self, watcher: Watched, session: TorchSession, model: Any, name: str) -> None:
        modules, step, owner = modules_of(model), max(watcher.step, 0), watcher.name

        def write() -> None:
            try:
                record = session.record()
                record_file.write(record, {}, self.writer.folder / name)
                structure = {**structure_of(record, modules, step), "record": name}
            except OSError:
                raise  # the disk: nothing can be written
            except Exception as error:  # noqa: BLE001 - a graph that cannot be drawn must not cost the run
                text = f"The graph of operations could not be built: {type(error).__name__}: {error}"
                self.note_once(step, "not-recorded", text)
                return
            self._set_structure(owner, step, structure)

        self.writer.do(write)

    def _set_structure(self, owner: str, step: int, structure: Structure) -> None:
        """On the writer's thread."""
        known = self._structures.get(owner)
        self._structures[owner] = whole = structure if known is None else union(known, structure)
        self.writer.write_structure(owner, step, whole)

    def saw_calls(self, watcher: Watched, forward: LoggedForward, model: Any) -> None:
        """After a logged forward: calls that no forward had before are added to the structure."""
        new = [place for place, _ in forward.seen_calls if place.is_new]
        if not new:
            return
        for place in new:
            place.is_new = False
        if forward.step.lane.endswith("train") and not forward.is_recorded:
            self._recorded[watcher.name] = False  # this one has taken another way; the next is recorded again
        order = {id(place): number for number, (place, _) in enumerate(forward.seen_calls)}
        training = forward.step.lane.endswith("train")
        seen = [
            (place.module, place.call, None if around is None else order[id(around)], training)
            for place, around in forward.seen_calls
        ]
        structure = structure_of_calls(seen, modules_of(model), max(watcher.step, 0))
        for place, _ in forward.seen_calls:
            structure["calls"][order[id(place)]]["attached"] = list(place.attached.values)
        owner, step = watcher.name, max(watcher.step, 0)
        self.writer.do(lambda: self._set_structure(owner, step, structure))

    # -- rows ----------------------------------------------------------------------------------------

    def add_step(self, step: LoggedStep) -> None:
        """Hand a complete step over; what is left to compute happens on the writer's thread."""
        collected = Collected.of(step)
        self.writer.add_step(lambda: self._rows(collected))

    def add_scalars(self, step: int, values: dict[str, Any]) -> None:
        moment = time.time()

        def write() -> None:
            numbers = {name: float(value) for name, value in values.items()}
            self.writer.write_scalars(step, numbers, moment)
            self._tell_backends(lambda backend: backend.add_scalars(step, numbers))

        self.writer.do(write)

    def _rows(self, collected: Collected) -> StepRows | None:
        rows = collected.to_rows(self._binning)
        if rows is None:
            return None
        if self._rules is not None:
            for finding in self._rules.check(rows, self._series):
                self.writer.write_alert(rows.step, finding.rule, finding.series, finding.message)
        self._tell_backends(lambda backend: backend.add_step(rows, self._series))
        if self.after_step is not None:
            self.after_step(rows)
        return rows

    def _tell_backends(self, tell: Callable[[Backend], None]) -> None:
        for backend in list(self._backends):
            try:
                tell(backend)
            except Exception as error:  # noqa: BLE001 - another package's code, and the run must go on without it
                self._backends.remove(backend)
                text = f"{type(backend).__name__}: {type(error).__name__}: {error}"
                self._to_warn.append(
                    f"torcheer sends nothing more to {text}. The run in {self.writer.folder} is still written."
                )
                self.note_once(0, "backend", f"From here on nothing was sent to {text}")

    def _publish_open(self) -> list[Callable[[], object]]:
        """Show a step that waits for its optimizer, or for the next forward. It is written again when complete."""
        works: list[Callable[[], object]] = []
        for watcher in self.watchers:
            step = watcher.open
            if step is None or not watcher.saw_backward:
                continue
            state = (step.step, len(step.rows))
            if self._published.get(id(watcher)) != state:
                self._published[id(watcher)] = state
                works.append(partial(self._publish, step))
        return works

    def _publish(self, step: LoggedStep) -> None:
        self.writer.write_step(Collected.of(step).to_rows(self._binning))

    def close(self) -> None:
        self.writer.close()
        self._tell_backends(lambda backend: backend.close())


class _State:
    """What a forward changes beside its output: random numbers and buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._random = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]

    def put_back(self) -> None:
        torch.set_rng_state(self._random)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
