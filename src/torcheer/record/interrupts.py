"""Ctrl-C waits where it would leave something half done.

Python raises ``KeyboardInterrupt`` between any two instructions, so also between making something and the ``try``
that would take it back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# What these wrap, where Python says so. They look for every handler among the members of an enum, which takes ten
# times longer than the rest.
_plain: Any = getattr(signal, "_signal", signal)
_handler_of: Callable[[int], Any] = _plain.getsignal
_handle: Callable[[int, Any], Any] = _plain.signal


@contextmanager
def no_interrupts() -> Iterator[None]:
    """Have Ctrl-C wait until the end of the block. It reaches the main thread only."""
    usual = _handler_of(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(usual):  # another thread, or interrupts are ignored, or handled outside Python
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []

    def wait(signum: int, frame: FrameType | None) -> None:
        waiting.append((signum, frame))

    _handle(signal.SIGINT, wait)
    try:
        yield
    finally:
        _handle(signal.SIGINT, usual)
        if waiting:
            usual(*waiting[0])
