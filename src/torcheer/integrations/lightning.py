"""``Trainer(callbacks=[WatchCallback(log_freq=100)])``: a Lightning module watched while it is fitted.

A Lightning module whose ``training_step`` calls ``self(x)`` is watched as a whole; one without a ``forward`` has its
children watched, each with a name and a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch

import torcheer as tl
from torcheer.watching.watch import Watch

EPOCHS = ("epoch", lambda module, step: module.current_epoch)  # noqa: ARG005 - for time_log, where the step is unused
Choose = Callable[[pl.LightningModule], Any]


class WatchCallback(pl.Callback):
    """Watches what is fitted. Takes the options of ``tl.watch``."""

    def __init__(self, model: Choose | None = None, **options: Any) -> None:
        """model: which part of the Lightning module to watch, ``lambda module: module.net``, or a dict of several."""
        self._choose = model or parts_of
        self._options = options
        self.watch: Watch | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        options = dict(self._options)
        if options.get("resume"):
            options.setdefault("start_step", trainer.fit_loop.total_batch_idx + 1)
        self.watch = tl.watch(self._choose(pl_module), **options)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        del pl_module
        if self.watch is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        values = {"loss": loss} if isinstance(loss, torch.Tensor) and loss.numel() == 1 else {}
        values.update({name: value for name, value in trainer.logged_metrics.items() if _is_number(value)})
        for place, optimizer in enumerate(trainer.optimizers):
            values[f"lr{place or ''}"] = optimizer.param_groups[0]["lr"]
        self.watch.log(**values)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        del pl_module
        if self.watch is not None and not trainer.sanity_checking:
            self.watch.log(**{name: value for name, value in trainer.callback_metrics.items() if _is_number(value)})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        del trainer, pl_module
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        del trainer, pl_module, exception
        self._stop()

    def _stop(self) -> None:
        if self.watch is not None:
            self.watch.stop()


def parts_of(module: pl.LightningModule) -> Any:
    """What is called while the module is fitted: itself, or, where it has no ``forward``, its children."""
    if type(module).forward is not pl.LightningModule.forward:
        return module
    children = {name: child for name, child in module.named_children() if any(True for _ in child.parameters())}
    return next(iter(children.values())) if len(children) == 1 else children or module


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1)
