"""``Watch``: what ``tl.watch`` returns. Watches models, takes numbers, stops."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torcheer.capture.torch.sentinel import Sentinel
from torcheer.errors import WatchError
from torcheer.store import Run, StepRows, Writer
from torcheer.units import count_text
from torcheer.watching import roots
from torcheer.watching.options import Options
from torcheer.watching.run import Place
from torcheer.watching.sink import Backend, Sink
from torcheer.watching.watcher import Watcher

Module = torch.nn.Module

_alive: dict[int, Watch] = {}  # held here: `tl.watch(model)` alone is enough
_PROGRESS_SECONDS = 0.5


class Watch:
    """Watches one model or several until ``stop()``; also as ``with tl.watch(…) as w:``."""

    def __init__(
        self,
        models: Mapping[str, Module],
        options: Options,
        place: Place,
        backends: list[Backend],
        settings: Mapping[str, Any],
    ) -> None:
        """settings: start_step, verbose, max_size_bytes, facts."""
        for name, model in models.items():
            refuse_watched(name, model)
        self.folder: Path = place.folder
        self.rank = place.rank
        self._options, self._verbose = options, bool(settings["verbose"])
        self._pid = os.getpid()
        self._is_stopped = False
        self._server: Any = None
        self._server_thread: threading.Thread | None = None
        self._in_place: list[weakref.ref[Module]] = []  # modules whose flag is switched off
        writer = Writer(place.folder, place.rank, settings["facts"], settings["max_size_bytes"])
        try:
            first = self._first_step(writer, settings["start_step"], place.resumed)
            self.session = writer.session(first, {"options": options.facts(), "pid": os.getpid()})
        except BaseException:
            writer.close()
            raise
        self._sink = Sink(writer, options, backends)
        self._first_step_number = first
        self._watchers: list[Watcher] = self._sink.watchers
        self._progress = _Progress(self.folder.name) if self._verbose and _may_animate() else None
        if self._progress is not None:
            self._sink.after_step = self._progress.after_step
        self._check = Sentinel([], options.nan) if options.nan is not None else None
        if self._check is not None:
            self._check.tell = self._tell_birth
            self._check.start(sees_calls=True)
        for name, model in models.items():
            self.add(model, name)
        _alive[id(self)] = self

    @staticmethod
    def _first_step(writer: Writer, start_step: int | None, resumed: bool) -> int:
        last = writer.last_step()
        if start_step is None:
            return 0 if last is None or not resumed else last + 1
        if last is not None and start_step <= last:
            writer.drop_from(start_step)
        return start_step

    def add(self, model: Module, name: str = "") -> None:
        """Watch a further model in the same run: ``w.add(discriminator, "discriminator")``."""
        refuse_watched(name, model)
        if any(one.name == name for one in self._watchers):
            raise WatchError(f"The run watches a model named {name!r} already. Give this one another name.")
        if self._check is not None:
            self._check.models.append(model)
        self._watchers.append(Watcher(model, name, self._options, self._sink, self._first_step_number, self._check))

    @property
    def names(self) -> list[str]:
        """Names of the models, in the order in which they were added."""
        return [one.name for one in self._watchers]

    def _tell_birth(self, text: str) -> None:
        if self._sink.is_open:
            self._sink.writer.add_alert(max(self.step, 0), "nan", None, text)

    def disable_inplace(self) -> None:
        """Switch off the ``inplace`` flag of all modules until ``stop``."""
        for watcher in self._watchers:
            model = watcher.model
            for module in model.modules() if model is not None else ():
                if getattr(module, "inplace", None) is True:
                    module.inplace = False  # type: ignore[assignment]
                    self._in_place.append(weakref.ref(module))

    # -- while training ------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step training is in, from 0; -1 before the first forward."""
        return max((one.step for one in self._watchers), default=-1)

    def log(self, **values: Any) -> None:
        """Keep numbers of this step: ``w.log(loss=loss, lr=scheduler.get_last_lr()[0])``."""
        if self._is_stopped or os.getpid() != self._pid or not self._sink.is_open:
            return
        self._sink.add_scalars(max(self.step, 0), {name: _number(name, value) for name, value in values.items()})

    def attach(self, tensor: torch.Tensor, module: Module, name: str) -> bool:
        """Take a tensor by name, where a forward of ours is being logged. Returns whether the module is ours."""
        for watcher in self._watchers:
            forward = watcher.forward
            place = None if forward is None else forward.places.modules.get(id(module))
            if forward is not None and place is not None:
                forward.attach(place, tensor, name)
                return True
        return False

    # -- looking -------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why nothing is written any more; None while all is well."""
        return self._sink.writer.failure

    @property
    def url(self) -> str | None:
        """Address of the explorer, with ``backend="standalone"``."""
        if self._server_thread is not None:
            self._server_thread.join(timeout=60)
        return None if self._server is None else str(self._server.address)

    def starts(self, thread: threading.Thread) -> None:
        """A thread that starts the explorer; the end of the run waits for it."""
        self._server_thread = thread
        thread.start()

    def serves(self, server: Any) -> None:
        """The explorer answers."""
        self._server = server

    @property
    def structure(self) -> dict[str, Any] | None:
        """Modules, calls and edges as seen so far."""
        with self.open() as run:
            return run.structure()

    def open(self) -> Run:
        """Everything logged so far, for reading."""
        self.flush()
        return Run.open(self.folder, self.rank)

    def flush(self) -> None:
        """Wait until what was logged so far can be read."""
        for watcher in self._watchers:
            if watcher.open is not None and watcher.saw_backward:
                watcher.finish_step()
        self._sink.writer.flush()

    # -- the end -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Write what is left and leave the models as they were."""
        if self._is_stopped or os.getpid() != self._pid:
            return
        for watcher in self._watchers:
            watcher.stop()
        if self._check is not None:
            self._check.finish()
            self._check.models.clear()
        for reference in self._in_place:
            module = reference()
            if module is not None:
                module.inplace = True  # type: ignore[assignment]
        self._is_stopped = True
        if self._server_thread is not None:
            self._server_thread.join(timeout=60)
        _alive.pop(id(self), None)
        writer = self._sink.writer
        writer.set_facts({"ended": time.time(), "steps": self.step + 1})
        self._sink.close()
        if self._progress is not None:
            self._progress.end()
        _ = self._sink.is_open  # warns of a failure that nobody has been told of

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._is_stopped:
            return f"<Watch of {self.folder}: stopped after step {self.step}>"
        return f"<Watch of {self.folder}: at step {self.step}, every {self._options.log_freq}. step logged>"

    def __deepcopy__(self, memo: object) -> Watch:
        return self  # a trainer that holds it may be copied; the run is one

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()  # a checkpoint of what holds it stays loadable, and watches nothing


def _nothing() -> None:
    return None


def refuse_watched(name: str, model: Any) -> None:
    """Refuse what cannot be watched, or is watched already."""
    if not isinstance(model, Module):
        raise WatchError(
            f"tl.watch takes an nn.Module, and was given {type(model).__name__}"
            f"{f' as {name!r}' if name else ''}. Pass one, or several in a dict: "
            "tl.watch({'generator': g, 'discriminator': d})."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise WatchError(
            f"{type(model).__name__} is scripted: its modules run inside TorchScript, where nothing can be seen. "
            "Watch the model it was made from."
        )
    if roots.is_watched(model):
        raise WatchError(
            f"This {type(model).__name__} is watched already. Call .stop() of what tl.watch returned first, "
            "or keep using it: w.log(…)."
        )


@atexit.register
def _stop_all() -> None:
    """A script ends when it ends: what is in flight is written, then the process goes."""
    for watch in list(_alive.values()):
        watch.stop()


def all_watches() -> list[Watch]:
    """Those that are running, in this process."""
    return list(_alive.values())


def is_compiling() -> bool:
    """Is this being traced for a compiled model? Then nothing may be looked at."""
    return torch.compiler.is_compiling()


def _number(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise WatchError(
                f"log({name}=…) was given a tensor of shape {tuple(value.shape)}. Pass a number, such as its mean."
            )
        # On another device the writer's thread waits for it, not the training.
        return float(value.detach()) if value.device.type == "cpu" else value.detach().clone()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise WatchError(f"log({name}={value!r}): that is no number. Pass one.") from None


def _may_animate() -> bool:
    """A line that is rewritten is for a terminal that somebody watches."""
    in_notebook = "ipykernel" in sys.modules
    return sys.stderr.isatty() and not in_notebook and not os.environ.get("CI")


class _Progress:
    """One line in the terminal, rewritten at most twice a second, from the writer's thread."""

    def __init__(self, name: str) -> None:
        self._name, self._next, self._is_shown = name, 0.0, False
        self._lock = threading.Lock()

    def after_step(self, rows: StepRows) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS
        with self._lock:
            text = f"torcheer: {self._name}, step {count_text(rows.step)}, {count_text(len(rows.series))} tensors"
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
            self._is_shown = True

    def end(self) -> None:
        with self._lock:
            if self._is_shown:
                sys.stderr.write("\n")
                sys.stderr.flush()
