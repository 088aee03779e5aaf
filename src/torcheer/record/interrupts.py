"""Ctrl-C waits where it would leave something half done.

Python raises ``KeyboardInterrupt`` between any two instructions, so also between making something and the ``try``
that would take it back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def no_interrupts() -> Iterator[None]:
    """Have Ctrl-C wait until the end of the block. It reaches the main thread only."""
    usual = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(usual):  # another thread, or interrupts are ignored, or handled outside Python
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []

    def wait(signum: int, frame: FrameType | None) -> None:
        waiting.append((signum, frame))

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if waiting:
            usual(*waiting[0])
