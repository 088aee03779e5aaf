"""A verb started by torchrun: every process runs it, the first one speaks and writes what is one for all.

    torchrun --nproc-per-node 2 --no-python torcheer trace net.py:make -i net.py:part -o sharded

The processes are known by the variables that torchrun sets; the model's own code makes the process group.
"""

from __future__ import annotations

import os
from pathlib import Path


def rank() -> int | None:
    """The rank of this process; None where torchrun has not started it, or has started no other."""
    own, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    is_one_of_several = own.isdigit() and world.isdigit() and int(world) > 1 and "TORCHELASTIC_RUN_ID" in os.environ
    return int(own) if is_one_of_several else None


def speaks() -> bool:
    """Whether this process is the one that prints and writes reports."""
    return not rank()


def named(message: str) -> str:
    """A message with the rank in front, where there are several."""
    return message if rank() is None else f"rank {rank()}: {message}"


def recording_of(folder: Path) -> Path:
    """Where this process writes its recording: the path itself, or among those of the other ranks in a folder."""
    return folder if rank() is None else folder / f"rank{rank()}.tch"
