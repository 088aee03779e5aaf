"""The public functions that profile: run a model or watch the user's own run, and return a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torcheer import shown, whole_file
from torcheer.api.history import refuse_paddle
from torcheer.errors import CaptureError, RecordFileError, TorcheerError
from torcheer.profiling import Report, build

MEASURES = ("time", "memory", "flops", "nan")
EXECUTIONS = ("real", "fake")
CLOCKS = ("wall", "thread")
NAN_CHOICES = ("report", "warn", "stop")


def profile(
    model: Any,
    *args: Any,
    backward: bool = False,
    loss: Callable[[Any], Any] | None = None,
    measure: str | tuple[str, ...] = MEASURES,
    repeats: int = 5,
    warm_up: int = 1,
    clock: str = "wall",
    execution: str = "real",
    **kwargs: Any,
) -> Report:
    """Profile ``model`` on the given inputs: time, memory, FLOPs, and where NaN is born, per module and per op.

    Inputs are given as to ``log_forward_pass``. The model runs once measured, then ``warm_up`` and ``repeats`` times
    for its times; params, buffers, gradients and random state are as before afterwards.

    backward: also run and profile a backward pass, from ``loss(output)``, or else from the model's own loss or the mean
        of what it returned.
    measure: any of "time", "memory", "flops", "nan".
    clock: "wall"; or "thread", processor time of the calling thread: for a busy machine, with one thread of PyTorch's.
        What runs on an accelerator is timed by its own events, whatever is chosen here.
    execution: "fake" computes nothing: shapes, FLOPs and predicted memory of a model that may be on the meta device.

    If the model raises, the exception comes through, with the report so far as its attribute ``report``.
    """
    # torch takes seconds to import; only a run needs it.
    from torcheer.capture.torch import inputs
    from torcheer.capture.torch.profiled import Wish, profile_fake, profile_run

    refuse_paddle("profile", model)
    chosen = _measures(measure)
    if execution not in EXECUTIONS:
        raise CaptureError(f"execution is {execution!r}. It takes one of {', '.join(map(repr, EXECUTIONS))}.")
    if clock not in CLOCKS:
        raise CaptureError(f"clock is {clock!r}. It takes one of {', '.join(map(repr, CLOCKS))}.")
    if repeats < 0 or warm_up < 0:
        raise CaptureError("repeats and warm_up count runs: give 0 or more.")
    call = inputs.arrange(model, args, kwargs)
    wish = Wish(chosen, backward, loss, repeats, warm_up, clock)
    try:
        run = profile_fake if execution == "fake" else profile_run
        return build(run(model, call, wish))
    except BaseException as error:
        record_of = getattr(error, "profile_record", None)
        if record_of is not None:
            # An exception class of the user's may refuse further attributes.
            with suppress(AttributeError):
                error.report = build(record_of())  # type: ignore[attr-defined]
                del error.profile_record  # type: ignore[attr-defined]
        raise


def summary(model: Any, *args: Any, input_size: Any = None, execution: str | None = None, **kwargs: Any) -> Report:
    """The model as a tree: its modules, params, and with an input also the shapes and FLOPs of one forward pass.

    Inputs are given as to ``log_forward_pass``, or as ``input_size``, a shape or a list of shapes. Without any, nothing
    is run. A model on the meta device is run without computing anything, and so is any with ``execution="fake"``.
    """
    refuse_paddle("summary", model)
    # torch takes seconds to import; only a run needs it.
    from torcheer.capture.torch import profiled

    if not hasattr(model, "named_modules"):
        raise CaptureError(f"summary takes a module, and a {type(model).__name__} is none. Pass a torch.nn.Module.")
    if input_size is not None:
        if args or kwargs:
            raise CaptureError("Give summary the input itself or its input_size, not both.")
        args = profiled.inputs_of_size(model, input_size)
    if not args and not kwargs:
        return build(profiled.structure_record(model))
    chosen = execution or ("fake" if profiled.is_on_meta(model) else "real")
    return profile(model, *args, measure="flops", execution=chosen, **kwargs)


def _measures(measure: str | tuple[str, ...]) -> tuple[str, ...]:
    chosen = (measure,) if isinstance(measure, str) else tuple(measure)
    wrong = [one for one in chosen if one not in MEASURES]
    if wrong or not chosen:
        what = repr(wrong[0]) if wrong else "empty"
        raise CaptureError(f"measure is {what}. It takes any of {', '.join(map(repr, MEASURES))}.")
    return tuple(one for one in MEASURES if one in chosen)


class InspectorGadgets:
    """Profiles your own code, training or inference: put it between ``start()`` and ``finish()`` or into ``with``.

        with tl.InspectorGadgets(model, save_file="insight") as inspector:
            loss = model(x).mean()
            inspector.backward_mode()
            loss.backward()
        print(inspector.report)

    models: a model, a list of models, or a dict of models by name. Every call of one of them is measured, with the
        backward pass through it, and is a report of its own in ``reports``; ``report`` is that of the last call.
    save_file: where the JSON of Inspector Gadgets goes when it is finished: ``save_file`` itself if it ends in
        ".json", and with ".json" added otherwise. It is there whole or not at all.
    measure: any of "time", "memory", "flops", "nan". "time" alone costs least. "nan" alone checks every op and keeps
        no record, for use in training.
    nan: "report"; or "warn" or "stop", to warn or raise ``NonFiniteError`` as soon as NaN is born, with measure="nan".
    replay: with measure="nan": check only outputs, losses and gradients, which costs next to nothing, and run a step in
        which they are not finite again, every op checked. The last inputs are kept for it.
    """

    def __init__(
        self,
        models: Any,
        save_file: str | os.PathLike[str] | None = None,
        *,
        measure: str | tuple[str, ...] = MEASURES,
        nan: str = "report",
        replay: bool = False,
    ) -> None:
        self.measure = _measures(measure)
        self._reports: list[Report] | None = None
        self._models = _named(models)
        self._path = None if save_file is None else _json_path(Path(save_file))
        self._inspection: Any = None
        self._is_finished = False
        self._nan, self._replay = nan, replay
        if nan not in NAN_CHOICES:
            raise CaptureError(f"nan is {nan!r}. It takes one of {', '.join(map(repr, NAN_CHOICES))}.")
        if (nan != "report" or replay) and self.measure != ("nan",):
            option = "replay=True" if replay else f"nan={nan!r}"
            raise CaptureError(
                f"{option} works while the model runs, and other measurements are read after it. "
                'Pass measure="nan" with it.'
            )
        if self._path is not None:
            whole_file.check_writable(self._path)

    def start(self) -> InspectorGadgets:
        """Begin to watch the models. Call it before they run."""
        # torch takes seconds to import; only a run needs it.
        from torcheer.capture.torch.inspection import Inspection
        from torcheer.capture.torch.sentinel import nan_check

        if self._inspection is not None:
            raise CaptureError("This InspectorGadgets was started before. Make a new one for another inspection.")
        models = list(self._models.values())
        if self.measure == ("nan",):
            self._inspection = nan_check(models, self._nan, replay=self._replay)
        else:
            self._inspection = Inspection(models, self.measure)
        self._inspection.start()
        return self

    def backward_mode(self) -> None:
        """Say that the forward is over. Backward passes are recognised without it; it checks that there was a call."""
        if self._inspection is None:
            raise CaptureError(
                "backward_mode() was called, and nothing was started yet. Call start() and the model first."
            )
        if not self._inspection.runs:
            raise CaptureError(
                f"backward_mode() was called, and {self._names()} was not called yet. Call the model first."
            )

    def finish(self) -> None:
        """Stop watching, and write ``save_file``. A second call does nothing."""
        if self._is_finished:
            return
        if self._inspection is None:
            raise CaptureError("finish() was called, and nothing was started yet. Call start() and the model first.")
        self._is_finished = True
        self._inspection.finish()
        if not self._inspection.runs:
            raise CaptureError(
                f"Nothing was measured: {self._names()} was not called between start() and finish(). Call the model "
                "itself, not its forward(), inside the block."
            )
        if self._path is not None:
            shown.written(shown.json_text(self.to_inspector_gadgets()), self._path)

    @property
    def reports(self) -> list[Report]:
        """The report of each call. They are made when they are first read, which takes longer than a small step."""
        if not self._is_finished:
            return []
        if self._reports is None:
            self._reports = [build(record) for record in self._inspection.records()]
        return self._reports

    @property
    def report(self) -> Report:
        """The report of the last call; those of all calls are in ``reports``."""
        if not self._is_finished:
            raise CaptureError("The report is made at the end. Call finish() first, or read it after the with block.")
        if not self.reports:
            raise CaptureError(
                f"There is no report: {self._names()} was not called. Call the model between start() and finish()."
            )
        return self.reports[-1]

    def to_inspector_gadgets(self) -> dict[str, Any]:
        """The JSON of Inspector Gadgets: an entry per model; of a model that was called again, one per call."""
        entries: dict[str, Any] = {}
        names = {id(model): name for name, model in self._models.items()}
        for report, model in zip(self.reports, self._inspection.models_of_runs(), strict=True):
            name, count = names[id(model)], 1
            while (key := name if count == 1 else f"{name} (call {count})") in entries:
                count += 1
            entries[key] = next(iter(report.to_inspector_gadgets().values()))
        return entries

    def __enter__(self) -> InspectorGadgets:
        return self.start()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.finish()
            return
        # What the user's code raised comes through; what was seen until then is in the report and the file.
        with suppress(TorcheerError):
            self.finish()

    def _names(self) -> str:
        return " or ".join(self._models)


def _named(models: Any) -> dict[str, Any]:
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        named = {}
        for model in models if isinstance(models, (list, tuple)) else (models,):
            name, count = type(model).__name__, 1
            while (key := name if count == 1 else f"{name}_{count}") in named:
                count += 1
            named[key] = model
    refuse_paddle("InspectorGadgets", *named.values())
    wrong = next((type(model).__name__ for model in named.values() if not hasattr(model, "named_modules")), None)
    if wrong is not None or not named:
        what = "an empty list" if wrong is None else f"a {wrong}"
        raise CaptureError(f"InspectorGadgets was given {what}. It takes a model, a list or a dict of models.")
    return named


def _json_path(path: Path) -> Path:
    if not path.name:
        raise RecordFileError(
            f"{path} cannot be written: it is a folder. Give the path of a file, such as insight.json."
        )
    return path if path.suffix == ".json" else path.with_name(f"{path.name}.json")


__all__ = ["InspectorGadgets", "profile", "summary"]
