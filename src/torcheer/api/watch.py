"""``watch``, ``attach``, ``setup``: see inside a model while it trains.

torch is imported when a model is to be watched; reading a run needs none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torcheer.api.history import refuse_paddle
from torcheer.errors import TorcheerError, WatchError, near_or_all

if TYPE_CHECKING:
    from torcheer.watching.watch import Watch

T = TypeVar("T")

# By name, since nothing may import an integration.
_BACKENDS = {"wandb": "torcheer.integrations.wandb", "tensorboard": "torcheer.integrations.tensorboard"}
_NAMES = ("standalone", "store", "none", *_BACKENDS)
_PORT = 5000


def watch(
    module: Any,
    log: Sequence[str] = ("io", "io_grad", "params", "params_grad"),
    log_freq: int = 500,
    ignore_io_grad_classes: Sequence[type] = (),
    disable_inplace: bool = False,
    bins: int = 30,
    sample_n: int | None = 1000,
    *,
    reject_outlier_proportion: float = 0.1,
    time_log: Any = "step",
    delay_log_multi_backward: bool = True,
    delay_log_multibackward: bool = True,
    backend: str | Sequence[str] = "standalone",
    dir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    resume: bool = False,
    start_step: int | None = None,
    standalone_dir: str | os.PathLike[str] | None = None,
    standalone_port: int = _PORT,
    compiled: str = "outside",
    record: bool = True,
    alerts: bool = True,
    nan: str | None = None,
    max_size_bytes: int | None = 2 << 30,
    verbose: bool = True,
) -> Watch:
    """Watch a model while it trains: histograms and statistics of its tensors over the steps, kept in a folder.

    The training loop stays as it is. Nothing is put on the model, no random number is drawn, and the weights
    after training are the same bit for bit. A step is what lies between two backward passes.

    module: the model, or a dict of several by name, each with a clock of its own.
    log: ``"io"`` inputs and outputs of each module call, ``"io_grad"`` the norms of their gradients for each sample,
        ``"params"`` parameters, ``"params_grad"`` their gradients. ``[]`` for the structure only.
    log_freq: which steps are logged: 1 all, 100 each hundredth.
    ignore_io_grad_classes: modules of these classes without gradients of inputs and outputs.
    disable_inplace: switch off the ``inplace`` flag of modules while they are watched. In-place operations need no
        such thing here.
    bins: parts of a histogram's range.
    sample_n: at most so many values of a tensor go into its histogram, evenly spread; None takes all.
    reject_outlier_proportion: share of the values, those farthest from the median, left out of the histogram's range.
    time_log: ``("epoch", function of module and step)``: a further number for each logged step, kept as a scalar.
    delay_log_multi_backward, delay_log_multibackward: kept for code that passes them; several forwards before a
        backward always count as one step.
    backend: ``"standalone"`` serves the explorer from a process of its own; ``"wandb"`` and ``"tensorboard"`` also send
        what is logged there; ``"store"`` only writes the folder. Or a list of these.
    dir, name: the run is kept in ``dir/name``; default: ``torcheer_runs``, the model's class and the time.
    resume: go on with the run of that name. start_step: at this step, forgetting what the run had from there on.
    standalone_dir, standalone_port: TorchExplorer's names of ``dir`` and of the server's port; a port that is taken
        gives way to the next free one.
    compiled: what to do at logged steps with a model under ``torch.compile``: ``"outside"`` looks at it from outside,
        ``"eager"`` runs the step without the compiled code, to see inside.
    record: record the operations of the first logged forward, for the graph.
    alerts: look for vanishing, exploding, dead, saturated, unused, NaN.
    nan: ``"warn"`` or ``"stop"``: check outputs, losses and gradients of every step, logged or not; where one is not
        finite, run the step again with every operation checked, and warn or raise ``NonFiniteError`` with the
        operation that gave birth to it, its line and what it was given.
    max_size_bytes: bound of a process's file; old steps get coarser. None: no bound.
    verbose: print where the run is kept and where it is shown, and a progress line in a terminal.
    """
    # torch takes seconds to import; only a model to watch needs it.
    from torcheer.watching import options as of_options
    from torcheer.watching.run import place_of
    from torcheer.watching.watch import Watch, refuse_watched

    del delay_log_multi_backward, delay_log_multibackward  # what they ask for is always so
    models = dict(module) if isinstance(module, Mapping) else {"": module}
    refuse_paddle("watch", *models.values())
    for model_name, model in models.items():
        refuse_watched(model_name, model)
    options = of_options.check(
        log, log_freq, sample_n, bins, reject_outlier_proportion, ignore_io_grad_classes,
        compiled=compiled, time_log=time_log, alerts=alerts, record=record, nan=nan,
    )  # fmt: skip
    wanted = _backends(backend)
    label = "-".join(type(one).__name__ for one in models.values())
    place = place_of(label, dir if dir is not None else standalone_dir, name, resume)
    facts = {"name": place.folder.name, "model": label, "bins": bins, "torcheer": _version()}
    sent = [one for one in wanted if one in _BACKENDS] if place.rank == 0 else []
    made = [import_module(_BACKENDS[one]).backend(place.folder, options) for one in sent]
    settings = {"start_step": start_step, "verbose": verbose, "max_size_bytes": max_size_bytes, "facts": facts}
    watching = Watch(models, options, place, made, settings)
    if disable_inplace:
        watching.disable_inplace()
    if verbose and place.rank == 0:
        print(f"torcheer: watching {label}, kept in {_short(place.folder)}")
    if "standalone" in wanted and place.rank == 0:
        _serve(watching, place.folder, standalone_port, verbose)
    return watching


@contextmanager
def watching_script(**options: Any) -> Iterator[list[Watch]]:
    """Within the block, watch whatever models optimizers train; yields the list in which the watch will be.

    options: those of ``watch``.
    """
    # As above.
    from torcheer.watching.script import ModelFinder

    _backends(options.get("backend", "standalone"))  # now, and not when a model is found
    watches: list[Watch] = []

    def found(model: Any, is_only: bool) -> None:
        label = type(model).__name__
        if not watches:
            watches.append(watch(model if is_only else {label: model}, **options))
            return
        names = [f"{label}-{number}" if number > 1 else label for number in range(1, len(watches[0].names) + 2)]
        watches[0].add(model, next(name for name in names if name not in watches[0].names))

    try:
        with ModelFinder(found):
            yield watches
    finally:
        for one in watches:
            one.stop()


def attach(tensor: T, parent_module: Any, name: str) -> T:
    """Show a tensor of a forward under a name of its own: ``x = tl.attach(x, self, "intermediate")``.

    tensor: any tensor of the forward; it is returned as it is.
    parent_module: the module it is shown in: ``self``.
    name: what it is shown as.

    Does nothing where the module is not watched, or the step is not logged.
    """
    watching = sys.modules.get("torcheer.watching.watch")  # without it nothing is watched
    if watching is not None and not watching.is_compiling():
        for one in watching.all_watches():
            if one.attach(tensor, parent_module, name):
                break
    return tensor


def setup(ulimit: int = 50_000) -> None:
    """Raise the number of files this process may open, as TorchExplorer's ``setup`` does for Weights & Biases.

    ulimit: how many files it may open at least.

    Watching needs no such call; it is kept for code that makes it, and says what it did.
    """
    try:
        import resource  # not on Windows
    except ImportError:
        print("torcheer.setup: nothing to do here. Watching needs no setup.")
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ulimit if hard == resource.RLIM_INFINITY else min(ulimit, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        print(f"torcheer.setup: this process may open {soft} files already. Watching needs no setup.")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    print(f"torcheer.setup: this process may now open {wanted} files (before: {soft}). Watching needs no setup.")


def _backends(given: str | Sequence[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    for one in names:
        if one not in _NAMES:
            raise WatchError(f"backend={given!r}: {one!r} is no backend.{near_or_all(str(one), _NAMES)}")
    return names


def _serve(watching: Watch, folder: Path, port: int, verbose: bool) -> None:
    """Start the explorer without waiting for it; say where it is once it answers."""

    def start() -> None:
        # Only this backend needs a server.
        from torcheer.api.explore import start_server

        try:
            server = start_server([folder], port=port)
        except (TorcheerError, OSError) as error:
            print(f"torcheer: the explorer could not be started: {error} The run is written all the same.")
            return
        watching.serves(server)
        if verbose:
            print(f"torcheer: watch it at {server.address}")

    watching.starts(threading.Thread(target=start, name="torcheer-explorer", daemon=True))


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _version() -> str:
    # The package imports this module.
    from torcheer import __version__

    return __version__


__all__ = ["attach", "setup", "watch", "watching_script"]
