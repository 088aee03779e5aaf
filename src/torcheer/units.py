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


def elapsed_text(time_ns: int | None) -> str:
    """``288000000`` → ``'0.288s'``, as TorchLens prints the time of a run; None → ``'not known'``."""
    if time_ns is None or time_ns < 10_000_000:
        return scientific_seconds(time_ns)
    return f"{time_ns / 1e9:.3f}s"


def scientific_seconds(time_ns: int | None) -> str:
    """``567000`` → ``'5.670E-04s'``, as TorchLens prints the time of a layer; None → ``'not known'``."""
    return "not known" if time_ns is None else f"{time_ns / 1e9:.3E}s"


def count_text(count: int) -> str:
    """``61100840`` → ``'61,100,840'``."""
    return f"{count:,}"


def counted_text(count: int, noun: str, nouns: str = "") -> str:
    """``1, 'op'`` → ``'1 op'``; ``1200, 'op'`` → ``'1,200 ops'``; ``2, 'pass', 'passes'`` → ``'2 passes'``."""
    return f"{count_text(count)} {noun if count == 1 else nouns or noun + 's'}"


def shape_text(shape: Sequence[int | str]) -> str:
    """``(1, 384)`` → ``'(1, 384)'``; ``(384,)`` → ``'(384,)'``."""
    inner = ", ".join(str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def flops_text(flops: int | None) -> str:
    """``5161600`` → ``'5.162 MFLOP'``; None → ``'unknown'``."""
    if flops is None:
        return "unknown"
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops >= limit:
            return f"{_four_digits(flops / limit)} {unit}FLOP"
    return f"{flops} FLOP"


def rate_text(flops_per_second: float | None) -> str:
    """``5.2e9`` → ``'5.200 GFLOP/s'``; None → ``'unknown'``."""
    return "unknown" if flops_per_second is None else f"{flops_text(round(flops_per_second))}/s"


def ratio_text(ratio: float | None) -> str:
    """``0.4275`` → ``'42.8 %'``; None → ``'unknown'``."""
    return "unknown" if ratio is None else f"{100 * ratio:.1f} %"


def _four_digits(number: float) -> str:
    return f"{number:.3f}" if number < 10 else f"{number:.2f}" if number < 100 else f"{number:.1f}"
