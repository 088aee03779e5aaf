"""What a watch was asked for, checked before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torcheer.errors import WatchError, near_or_all

LOG = ("io", "io_grad", "params", "params_grad")
COMPILED = ("outside", "eager")
NAN = (None, "warn", "stop")


@dataclass(frozen=True)
class Options:
    """Settings of one watch; ``tl.watch`` says what each means."""

    log: frozenset[str]
    log_freq: int
    sample_n: int | None
    bins: int
    reject_outlier_proportion: float
    ignored: tuple[type, ...]
    compiled: str
    time_log: tuple[str, Callable[[Any, int], float] | None]
    alerts: bool
    record: bool
    nan: str | None

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "log": sorted(self.log), "log_freq": self.log_freq, "sample_n": self.sample_n, "bins": self.bins,
            "reject_outlier_proportion": self.reject_outlier_proportion, "compiled": self.compiled,
            "ignore_io_grad_classes": [kind.__name__ for kind in self.ignored], "time": self.time_log[0],
            "nan": self.nan,
        }  # fmt: skip


def check(
    log: Iterable[str],
    log_freq: int,
    sample_n: int | None,
    bins: int,
    reject_outlier_proportion: float,
    ignore_io_grad_classes: Sequence[type],
    **others: Any,
) -> Options:
    """Options as given, or an error that says which is wrong."""
    wanted = [log] if isinstance(log, str) else list(log)
    for name in wanted:
        if name not in LOG:
            raise WatchError(f"log={wanted!r}: {name!r} cannot be logged.{near_or_all(str(name), LOG)}")
    _whole("log_freq", log_freq, 1, "1 logs every step, 100 every hundredth.")
    _whole("bins", bins, 2, "30 is the default.")
    if bins > 1024:
        raise WatchError(f"bins={bins}: it takes at most 1024. 30 is the default.")
    if sample_n is not None:
        _whole("sample_n", sample_n, 2, "None takes every value of a tensor.")
    if not 0 <= reject_outlier_proportion < 1:
        raise WatchError(
            f"reject_outlier_proportion={reject_outlier_proportion!r}: it takes a share of the values, from 0.0, "
            "none, to below 1.0, such as 0.1, the default."
        )
    for kind in ignore_io_grad_classes:
        if not isinstance(kind, type):
            raise WatchError(f"ignore_io_grad_classes: {kind!r} is no class. It takes classes, such as [MyBlock].")
    if others["compiled"] not in COMPILED:
        raise WatchError(f"compiled={others['compiled']!r}: it takes one of {', '.join(map(repr, COMPILED))}.")
    if others["nan"] not in NAN:
        raise WatchError(f"nan={others['nan']!r}: it takes one of {', '.join(map(repr, NAN))}.")
    return Options(
        frozenset(wanted), log_freq, sample_n, bins, float(reject_outlier_proportion), tuple(ignore_io_grad_classes),
        others["compiled"], _time_log(others["time_log"]), others["alerts"], others["record"],
        others["nan"],
    )  # fmt: skip


def _whole(name: str, value: object, least: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise WatchError(f"{name}={value!r}: it takes a whole number, at least {least}. {hint}")


def _time_log(given: Any) -> tuple[str, Callable[[Any, int], float] | None]:
    if given is None or given == "step":
        return "step", None
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and callable(given[1])):
        raise WatchError(
            f"time_log={given!r}: it takes a name and a function of the module and the step, "
            'such as ("epoch", lambda module, step: step / 500).'
        )
    return given
