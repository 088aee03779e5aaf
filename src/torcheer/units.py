"""The only place where numbers become text: bytes, seconds, counts, shapes.

Bytes are shown in binary (IEC) units, counts with thousands separators, times in SI units.
"""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(size_bytes: int | None) -> str:
    """``259584`` → ``'253.5 KiB'``; None → ``'unknown size'``."""
    if size_bytes is None:
        return "unknown size"
    size = float(size_bytes)
    if size < 1024:
        return f"{size_bytes} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def seconds_text(time_ns: int | None) -> str:
    """``567000`` → ``'567.0 µs'``; None → ``'unknown time'``."""
    if time_ns is None:
        return "unknown time"
    for limit, divisor, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if time_ns < limit:
            return f"{time_ns / divisor:.{0 if unit == 'ns' else 1}f} {unit}"
    return f"{time_ns / 1e9:.3f} s"


def count_text(count: int) -> str:
    """``61100840`` → ``'61,100,840'``."""
    return f"{count:,}"


def shape_text(shape: Sequence[int | str]) -> str:
    """``(1, 384)`` → ``'(1, 384)'``; ``(384,)`` → ``'(384,)'``."""
    inner = ", ".join(str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
