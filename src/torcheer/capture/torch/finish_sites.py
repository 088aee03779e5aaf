"""Call sites: from code objects and instruction offsets to lines of source."""

from __future__ import annotations

from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Frame, Site


def describe_sites(tape: Tape) -> list[Site]:
    """The call sites of a tape, outermost frame first."""
    sites = []
    for chain in tape.sites:
        pairs = list(zip(chain[::2], chain[1::2], strict=True))
        sites.append(Site(tuple(_frame(tape, code, offset) for code, offset in reversed(pairs))))
    return sites


def _frame(tape: Tape, code_id: int, offset: int) -> Frame:
    code = tape.codes[code_id]
    line = None
    for start, end, candidate in code.co_lines():
        if start <= offset < end:
            line = candidate
            break
    return Frame(code.co_filename, line or code.co_firstlineno, getattr(code, "co_qualname", code.co_name))
