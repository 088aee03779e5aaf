"""The rivals of the watch, each as a way of training: those that are installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from watch_models import Training, build

Rival = tuple[str, Training, Callable[[], object], Callable[[Training], object]]


def rivals(model: str, folder: Path) -> Iterator[Rival]:
    if find_spec("tensorboard"):
        yield tensorboard(model, folder)
    if find_spec("wandb"):
        yield wandb_watch(model, folder)
    if find_spec("torchexplorer"):
        yield torchexplorer(model, folder)


def _nothing(*_: Any) -> None:
    pass


def tensorboard(model: str, folder: Path) -> Rival:
    """Histograms of parameters and gradients at every step."""
    # An optional rival, and slow to import.
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / f"tensorboard-{model}"))
    training, step = build(model), [0]

    def after(training: Training) -> None:
        for name, parameter in training.model.named_parameters():
            writer.add_histogram(name, parameter, step[0])
            writer.add_histogram(f"{name}.grad", parameter.grad, step[0])
        step[0] += 1

    return "TensorBoard histograms", training, writer.flush, after


def wandb_watch(model: str, folder: Path) -> Rival:
    """``wandb.watch(model, log="all", log_freq=1)``, offline; another process does the writing and is not counted."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
    # An optional rival.
    import wandb

    run = wandb.init(project="watch-cost", dir=str(folder), reinit="finish_previous")
    training = build(model)
    run.watch(training.model, log="all", log_freq=1)

    def after(_: Training) -> None:
        run.log({"step": 1})

    return "wandb.watch, offline", training, _nothing, after


def torchexplorer(model: str, folder: Path) -> Rival:
    """``torchexplorer.watch(log_freq=1)``, without the in-place operations that it cannot bear.

    Where Graphviz is not installed its picture is left out, which is drawn once but copied and written at every step:
    the figure is then a lower bound.
    """
    del folder  # the standalone backend would keep this process from ending
    # An optional rival.
    import torchexplorer as rival
    from torchexplorer.render import layout

    if shutil.which("dot") is None or find_spec("pygraphviz") is None:
        layout.layout = lambda structure, cache: (structure, cache)
    training = build(model, inplace=False)
    rival.watch(training.model, log_freq=1, backend="none", verbose=False)
    return "torchexplorer 1.1.2", training, _nothing, _nothing
