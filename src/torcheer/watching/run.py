"""Where a watched run is kept: its name, its folder, which process of how many writes it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from torcheer.errors import WatchError
from torcheer.store.folder import rank_path, read_manifest
from torcheer.store.schema import MANIFEST

WAIT_SECONDS = 60.0
FOLDER = "torcheer_runs"


@dataclass(frozen=True)
class Place:
    """The folder of a run, and whose file in it is ours."""

    folder: Path
    rank: int
    resumed: bool


def place_of(model: str, folder: str | os.PathLike[str] | None, name: str | None, resume: bool) -> Place:
    """Decide where a run goes. Refuses a name that is taken, unless the run is to be resumed."""
    root = Path(FOLDER if folder is None else folder).absolute()
    rank = int(os.environ.get("RANK", "0") or 0)
    if name is not None and (not name or name in {".", ".."} or re.search(r"[/\\\0]", name)):
        raise WatchError(f"name={name!r}: it becomes the name of a folder, so it takes no slashes. Try 'baseline-1'.")
    if resume and name is None:
        raise WatchError("resume=True goes on with a run that is there: say which with name=….")
    chosen = name or _name_for_all_ranks(root, model, rank)
    path = root / chosen
    exists = (path / MANIFEST).exists() and rank_path(path, rank).exists()
    if exists and not resume:
        raise WatchError(
            f"{path} is a run already. Go on with it by resume=True, or give this one another name (name=…), or none "
            "for one made of the model and the time."
        )
    if path.exists() and not (path / MANIFEST).exists() and any(path.iterdir()):
        raise WatchError(f"{path} is there and is no watched run. Give another name or another folder: dir=….")
    if exists:
        read_manifest(path)
    return Place(path, rank, exists)


def _name_for_all_ranks(root: Path, model: str, rank: int) -> str:
    """A new name. Under torchrun process 0 chooses it, and the others read it."""
    if int(os.environ.get("WORLD_SIZE", "1") or 1) <= 1:
        return _new_name(root, model)
    words = [os.environ.get(key, "") for key in (
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"
    )]  # fmt: skip
    pointer = root / ("." + re.sub(r"[^\w.-]", "_", "-".join(["ranks", *words])))
    if rank == 0:
        name = _new_name(root, model)
        root.mkdir(parents=True, exist_ok=True)
        part = pointer.with_suffix(f".{os.getpid()}")
        part.write_text(name, encoding="utf-8")
        part.replace(pointer)
        return name
    end = time.monotonic() + WAIT_SECONDS
    started = time.time() - WAIT_SECONDS
    while time.monotonic() < end:
        if pointer.exists() and pointer.stat().st_mtime >= started:
            return pointer.read_text(encoding="utf-8")
        time.sleep(0.05)
    raise WatchError(
        f"Process {rank} has waited {WAIT_SECONDS:.0f} s for process 0 to name the run in {root}. Call tl.watch in "
        "every process, with a folder that all of them see, or give the run a name: name=…."
    )


def _new_name(root: Path, model: str) -> str:
    label = re.sub(r"[^\w.-]", "_", model) or "model"
    base = f"{label}-{time.strftime('%Y%m%d-%H%M%S')}"
    name, number = base, 2
    while (root / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name
