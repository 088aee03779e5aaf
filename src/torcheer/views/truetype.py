"""Reads of a TrueType font what putting it into a PDF takes: glyphs of characters, widths, extents."""

from __future__ import annotations

import struct
from functools import cached_property


class TrueType:
    """A font file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (num_tables,) = struct.unpack_from(">H", data, 4)
        entries = (struct.unpack_from(">4sIII", data, 12 + 16 * index) for index in range(num_tables))
        self._tables = {tag.decode("ascii"): start for tag, _, start, _ in entries}
        head, wide = self._tables["head"], self._tables["hhea"]
        units: int = struct.unpack_from(">H", data, head + 18)[0]
        self._units = units  # per height of a line
        self.box: tuple[int, ...] = struct.unpack_from(">4h", data, head + 36)  # left, bottom, right, top
        self.ascent, self.descent = struct.unpack_from(">2h", data, wide + 4)
        (self._num_widths,) = struct.unpack_from(">H", data, wide + 34)

    def scaled(self, length: int) -> int:
        """Return a length in thousandths of the height of a line, as PDF counts."""
        return round(length * 1000 / self._units)

    def glyph(self, char: str) -> int:
        """Return the number of a character's glyph; 0, an empty box, where the font has none."""
        return self._glyphs.get(ord(char), 0)

    def width(self, glyph: int) -> int:
        """Return how far the next glyph is from this one, in the font's units."""
        at = self._tables["hmtx"] + 4 * min(glyph, self._num_widths - 1)
        return int(struct.unpack_from(">H", self.data, at)[0])

    @cached_property
    def _glyphs(self) -> dict[int, int]:
        """Glyph of each character of the basic plane: a table of format 4."""
        start = self._tables["cmap"]
        (num_tables,) = struct.unpack_from(">H", self.data, start + 2)
        for index in range(num_tables):
            _, _, offset = struct.unpack_from(">HHI", self.data, start + 4 + 8 * index)
            if struct.unpack_from(">H", self.data, start + offset) == (4,):
                return self._segments(start + offset)
        raise ValueError("the font has no table of characters of format 4")

    def _segments(self, at: int) -> dict[int, int]:
        num = struct.unpack_from(">H", self.data, at + 6)[0] // 2
        read = [
            struct.unpack_from(f">{num}H", self.data, at + 14 + 2 * part * num + (2 if part else 0))
            for part in range(4)
        ]
        glyphs = {}
        for index, (end, start, delta, offset) in enumerate(zip(*read, strict=True)):
            here = at + 14 + 2 * 3 * num + 2 + 2 * index  # of this segment's offset, from which it counts
            for code in range(start, min(end, 0xFFFE) + 1):
                glyph = code
                if offset:
                    (glyph,) = struct.unpack_from(">H", self.data, here + offset + 2 * (code - start))
                if glyph or not offset:
                    glyphs[code] = (glyph + delta) & 0xFFFF
        return glyphs
