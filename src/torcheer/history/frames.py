"""Where in the user's source an operation was called."""

from __future__ import annotations

import re

from torcheer.history.structure import Structure
from torcheer.record.model import Frame

INSTALLED = re.compile(r"[\\/](site-packages|dist-packages)[\\/]|[\\/]lib[\\/]python3[^\\/]*[\\/]|^<frozen ")
TORCH = re.compile(r"[\\/](site-packages|dist-packages)[\\/]torch[\\/]|^<frozen ")


def stack(structure: Structure, op: int) -> tuple[Frame, ...]:
    """Return the frames from the model's forward down to the call of an op."""
    record = structure.record
    sites = [record.calls[call].site for call in structure.call_chain(record.ops[op].call)]
    sites.append(record.ops[op].site)
    return tuple(frame for site in sites if site is not None for frame in record.sites[site].frames)


def source(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the innermost frame of the user's own code.

    A model that comes whole from an installed package has none: then it is the innermost frame outside torch.
    """
    for skipped in (INSTALLED, TORCH):
        for frame in reversed(frames):
            if not skipped.search(frame.file):
                return frame
    return frames[-1] if frames else None
