"""What works on this machine: asked by ``torcheer doctor``. torch is imported when it is asked about."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torcheer.api.history import load, log_forward_pass, validate
from torcheer.api.profile import profile


def torch_version() -> str:
    """Of the PyTorch that is installed. Raises what importing it raises."""
    # torch takes seconds to import.
    from torcheer.capture.torch import health

    return health.version()


def devices() -> list[str]:
    """The devices models can run on."""
    # As above.
    from torcheer.capture.torch import health

    return health.devices()


def missing_private_names() -> list[str]:
    """Private names of PyTorch that recording needs and this PyTorch lacks."""
    # As above.
    from torcheer.capture.torch import health

    return health.missing_private_names()


def self_test() -> Iterator[tuple[str, str]]:
    """Try the main jobs on a tiny model: what was tried, and what went wrong, empty where nothing did."""
    # As above.
    from torcheer.capture.torch import health

    model, x = health.tiny_model()
    trials: list[tuple[str, Callable[[], Any]]] = [
        ("recording", lambda: None if bool(validate(model, x)) else "the record does not stand for the run"),
        ("saving and loading", lambda: _save_and_load(model, x)),
        ("profiling", lambda: None if profile(model, x, repeats=1).totals.figures.flops_forward else "no FLOPs"),
        ("drawing", lambda: None if "<svg" in log_forward_pass(model, x).draw().svg else "no picture"),
    ]
    for name, trial in trials:
        try:
            yield name, trial() or ""
        except Exception as error:  # noqa: BLE001 - whatever is wrong here is what is to be told
            yield name, f"{type(error).__name__}: {error}"


def _save_and_load(model: Any, x: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tch"
        log_forward_pass(model, x).save(path)
        return "" if len(load(path)) == 4 else "the recording has another length"


__all__ = ["devices", "missing_private_names", "self_test", "torch_version"]
