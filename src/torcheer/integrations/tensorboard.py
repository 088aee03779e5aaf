"""``tl.watch(model, backend="tensorboard")``: histograms, norms and numbers of a watched run as TensorBoard events.

They lie in ``tensorboard/`` inside the run's folder: ``tensorboard --logdir torcheer_runs`` finds all runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torcheer.errors import MissingExtraError
from torcheer.store import Series, StepRows
from torcheer.store.schema import COLUMN
from torcheer.watching.options import Options


def backend(folder: Path, options: Options) -> TensorBoardBackend:
    """What ``tl.watch`` hands rows to. Refuses before training if that cannot work."""
    del options
    try:
        from torch.utils.tensorboard import SummaryWriter  # an extra, and slow to import
    except ImportError as error:
        raise MissingExtraError("tensorboard", "tensorboard", "tl.watch(backend='tensorboard')") from error
    return TensorBoardBackend(SummaryWriter, folder / "tensorboard")


class TensorBoardBackend:
    """Writes rows as events. The file is made with the first of them."""

    def __init__(self, writer: Any, folder: Path) -> None:
        self._make, self._folder = writer, folder
        self._writer: Any = None

    def _events(self) -> Any:
        if self._writer is None:
            self._writer = self._make(str(self._folder))
        return self._writer

    def add_step(self, rows: StepRows, series: dict[int, Series]) -> None:
        events = self._events()
        for number, place in zip(rows.series.tolist(), rows.rows.tolist(), strict=True):
            one, stats = series[number], rows.stats[place]
            name = f"{'' if rows.lane.endswith('train') else 'eval/'}{one.name}"
            self._histogram(events, name, stats, rows.counts[place], rows.step)
            for statistic in ("norm", "update"):
                value = float(stats[COLUMN[statistic]])
                if not np.isnan(value):
                    events.add_scalar(f"{statistic}/{name}", value, rows.step)

    @staticmethod
    def _histogram(events: Any, name: str, stats: Any, counts: Any, step: int) -> None:
        low, high, mean, std = (float(stats[COLUMN[key]]) for key in ("low", "high", "mean", "std"))
        num = int(counts.sum())
        if not (np.isfinite(low) and np.isfinite(high)) or num == 0:
            return
        limits = np.linspace(low, high, len(counts) + 1)[1:] if high > low else low + np.arange(len(counts))
        events.add_histogram_raw(
            name, min=float(stats[COLUMN["min"]]), max=float(stats[COLUMN["max"]]), num=num, sum=mean * num,
            sum_squares=(std**2 + mean**2) * num, bucket_limits=limits.tolist(), bucket_counts=counts.tolist(),
            global_step=step,
        )  # fmt: skip

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._events().add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
