"""``tl.watch(model, backend="wandb")``: histograms, norms and numbers of a watched run in the active W&B run.

The run's folder has everything; this is a copy of what W&B can show. W&B's step counter is the user's: rows wait for
the user's next ``wandb.log`` and go along with it, as those of ``wandb.watch`` do. Where the user never logs, they are
committed here. With ``stop()``, or at the end of the script, the explorer follows: one page with the whole run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torcheer import shown
from torcheer.errors import MissingExtraError, WatchError
from torcheer.store import Run, Series, StepRows
from torcheer.store.schema import COLUMN
from torcheer.watching.options import Options

PREFIX = "torcheer"


def backend(folder: Path, options: Options) -> WandbBackend:
    """What ``tl.watch`` hands rows to. Refuses before training if that cannot work."""
    del options
    try:
        import wandb  # an extra
    except ImportError as error:
        raise MissingExtraError("wandb", "wandb", "tl.watch(backend='wandb')") from error
    if wandb.run is None:
        raise WatchError("backend='wandb' sends to the active run, and there is none. Call wandb.init() first.")
    return WandbBackend(wandb, wandb.run, folder)


class WandbBackend:
    """Sends rows to one W&B run."""

    def __init__(self, wandb: Any, run: Any, folder: Path) -> None:
        self._wandb, self._run, self._folder = wandb, run, folder
        self._own_commits, self._waiting = 0, False
        self._step = -1
        run.define_metric(f"{PREFIX}/step")
        run.define_metric(f"{PREFIX}/*", step_metric=f"{PREFIX}/step")
        run.config.update({f"{PREFIX}_folder": str(folder)}, allow_val_change=True)

    def add_step(self, rows: StepRows, series: dict[int, Series]) -> None:
        values: dict[str, Any] = {f"{PREFIX}/step": rows.step}
        for number, place in zip(rows.series.tolist(), rows.rows.tolist(), strict=True):
            one, stats = series[number], rows.stats[place]
            name = f"{'' if rows.lane.endswith('train') else 'eval/'}{one.name}"
            low, high = float(stats[COLUMN["low"]]), float(stats[COLUMN["high"]])
            if np.isfinite(low) and np.isfinite(high):
                values[f"{PREFIX}/{name}"] = self._histogram(rows.counts[place], low, high)
            for statistic in ("norm", "update"):
                value = float(stats[COLUMN[statistic]])
                if np.isfinite(value):
                    values[f"{PREFIX}/{statistic}/{name}"] = value
        self._log(values, rows.step)

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        self._log({f"{PREFIX}/step": step, **{f"{PREFIX}/{name}": value for name, value in values.items()}}, step)

    def close(self) -> None:
        with Run.open(self._folder) as run:
            page = self._wandb.Html(shown.html("watch", run), inject=False)
        self._run.log({f"{PREFIX}/explorer": page}, commit=self._waiting)

    def _histogram(self, counts: Any, low: float, high: float) -> Any:
        if high <= low:
            high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
        edges = np.linspace(low, high, len(counts) + 1)
        return self._wandb.Histogram(np_histogram=(counts.astype(np.int64), edges))

    def _log(self, values: dict[str, Any], step: int) -> None:
        if step != self._step and self._waiting and self._run.step == self._own_commits:
            # Nobody but us has ever committed: what waits would be written over.
            self._run.log({}, commit=True)
            self._own_commits += 1
        self._step, self._waiting = step, True
        self._run.log(values, commit=False)
