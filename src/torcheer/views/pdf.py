"""A picture as PDF: one page of lines and text, with the fonts in the file, as journals want it.

Written from the marks the page's drawing gives (``web/ui/src/scene/marks.ts``). PDF is little more than those marks
in another notation, so this needs no library; Cairo or a browser would be a system package.
"""

from __future__ import annotations

import zlib
from importlib import resources
from typing import Any

from torcheer.views.truetype import TrueType

LARGEST_PAGE = 14_400  # points: what readers accept; larger pictures are scaled, with the true unit in the file
FONTS = {False: "Arimo-Regular.ttf", True: "Arimo-Bold.ttf"}
NAMES = {False: "F1", True: "F2"}
ROUND = 0.5523  # of a radius: where the control points of a quarter circle are
Mark = dict[str, Any]


def to_pdf(drawn: dict[str, Any]) -> bytes:
    """Return the PDF of a picture: its ``title``, ``width``, ``height`` and ``marks``."""
    fonts = {
        bold: TrueType((resources.files("torcheer.views") / "fonts" / name).read_bytes())
        for bold, name in FONTS.items()
    }
    used: dict[bool, dict[int, str]] = {False: {}, True: {}}
    unit = max(1.0, drawn["width"] / LARGEST_PAGE, drawn["height"] / LARGEST_PAGE)
    width, height = drawn["width"] / unit, drawn["height"] / unit
    # PDF counts y from below.
    lines = [f"{_n(1 / unit)} 0 0 {_n(-1 / unit)} 0 {_n(height)} cm 1 w"]
    for mark in drawn["marks"]:
        if mark["kind"] == "rect":
            lines += _rect(mark)
        elif mark["kind"] == "path":
            lines += _path(mark)
        else:
            lines += _words(mark, fonts[mark["bold"]], used[mark["bold"]])
    file = _File()
    pages, page, content = file.reserve(), file.reserve(), file.stream("\n".join(lines).encode())
    listed = " ".join(f"/{NAMES[bold]} {_font(file, fonts[bold], used[bold], FONTS[bold])} 0 R" for bold in FONTS)
    file.put(
        page,
        f"<< /Type /Page /Parent {pages} 0 R /MediaBox [0 0 {_n(width)} {_n(height)}] /UserUnit {_n(unit)} "
        f"/Resources << /Font << {listed} >> >> /Contents {content} 0 R >>",
    )
    file.put(pages, f"<< /Type /Pages /Kids [{page} 0 R] /Count 1 >>")
    catalog = file.add(f"<< /Type /Catalog /Pages {pages} 0 R >>")
    info = file.add(f"<< /Title {_text(drawn['title'])} /Producer {_text('torcheer')} >>")
    return file.whole(catalog, info)


def _n(number: float) -> str:
    return f"{number:.4f}".rstrip("0").rstrip(".")


def _colour(colour: str, operator: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return f"{_n(red)} {_n(green)} {_n(blue)} {operator}"


def _paint(mark: Mark) -> tuple[list[str], str]:
    """The colours of a mark, and the operator that paints with them."""
    before = [_colour(mark[key], operator) for key, operator in (("fill", "rg"), ("stroke", "RG")) if mark[key]]
    return before, {(True, True): "B", (True, False): "f", (False, True): "S"}[bool(mark["fill"]), bool(mark["stroke"])]


def _rect(mark: Mark) -> list[str]:
    before, operator = _paint(mark)
    x, y, width, height, radius = (mark[key] for key in ("x", "y", "width", "height", "round"))
    if not radius:
        return [*before, f"{_n(x)} {_n(y)} {_n(width)} {_n(height)} re {operator}"]
    right, bottom, bend = x + width, y + height, radius * (1 - ROUND)
    corners = [
        [("L", right - radius, y), ("C", right - bend, y, right, y + bend, right, y + radius)],
        [("L", right, bottom - radius), ("C", right, bottom - bend, right - bend, bottom, right - radius, bottom)],
        [("L", x + radius, bottom), ("C", x + bend, bottom, x, bottom - bend, x, bottom - radius)],
        [("L", x, y + radius), ("C", x, y + bend, x + bend, y, x + radius, y)],
    ]
    path = [("M", x + radius, y), *(command for corner in corners for command in corner)]
    return [*before, *_commands(path), f"h {operator}"]


def _path(mark: Mark) -> list[str]:
    before, operator = _paint(mark)
    dash = " ".join(map(_n, mark["dash"]))
    path = [line for commands in mark["paths"] for line in (*_commands(commands), *(["h"] if mark["fill"] else []))]
    return ["q", *before, f"{_n(mark['lineWidth'])} w [{dash}] 0 d", *path, operator, "Q"]


def _commands(commands: list[Any]) -> list[str]:
    operators = {"M": "m", "L": "l", "C": "c"}
    return [f"{' '.join(map(_n, numbers))} {operators[name]}" for name, *numbers in commands]


def _words(mark: Mark, font: TrueType, used: dict[int, str]) -> list[str]:
    lines = [f"BT {_colour(mark['fill'], 'rg')} /{NAMES[mark['bold']]} {_n(mark['size'])} Tf"]
    before = {"left": 0.0, "middle": 0.5, "right": 1.0}[mark["align"]]
    for word in mark["words"]:
        glyphs = [font.glyph(char) for char in word["text"]]
        used.update(zip(glyphs, word["text"], strict=True))
        # Upside down, since the page is.
        lines.append(f"1 0 0 -1 {_n(word['x'] - before * word['width'])} {_n(word['y'])} Tm")
        lines.append(f"<{''.join(f'{glyph:04X}' for glyph in glyphs)}> Tj")
    return [*lines, "ET"]


def _font(file: _File, font: TrueType, used: dict[int, str], name: str) -> int:
    """Put a font into the file, with what its glyphs mean, so that text can be searched and copied."""
    name = name.removesuffix(".ttf")
    source = file.stream(font.data, f"/Length1 {len(font.data)}")
    box = " ".join(str(font.scaled(edge)) for edge in font.box)
    descriptor = file.add(
        f"<< /Type /FontDescriptor /FontName /{name} /Flags 32 /FontBBox [{box}] /ItalicAngle 0 "
        f"/Ascent {font.scaled(font.ascent)} /Descent {font.scaled(font.descent)} /CapHeight 716 /StemV 80 "
        f"/FontFile2 {source} 0 R >>"
    )
    widths = " ".join(f"{glyph} [{font.scaled(font.width(glyph))}]" for glyph in sorted(used))
    inner = file.add(
        f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /{name} /CIDToGIDMap /Identity /W [{widths}] "
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> "
        f"/FontDescriptor {descriptor} 0 R >>"
    )
    meaning = file.stream(_meaning(used))
    return file.add(
        f"<< /Type /Font /Subtype /Type0 /BaseFont /{name} /Encoding /Identity-H "
        f"/DescendantFonts [{inner} 0 R] /ToUnicode {meaning} 0 R >>"
    )


def _meaning(used: dict[int, str]) -> bytes:
    """Which character each glyph stands for."""
    lines = ["/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def /CMapName /Text def"]
    lines.append("1 begincodespacerange <0000> <FFFF> endcodespacerange")
    pairs = [
        f"<{glyph:04X}> <{char.encode('utf-16-be', 'replace').hex().upper()}>" for glyph, char in sorted(used.items())
    ]
    for at in range(0, len(pairs), 100):  # the most that one list may have
        part = pairs[at : at + 100]
        lines.append(f"{len(part)} beginbfchar\n" + "\n".join(part) + "\nendbfchar")
    return "\n".join([*lines, "endcmap end end"]).encode()


def _text(text: str) -> str:
    return f"<FEFF{text.encode('utf-16-be', 'replace').hex().upper()}>"


class _File:
    """The objects of a PDF, numbered from 1."""

    def __init__(self) -> None:
        self.objects: list[bytes] = []

    def reserve(self) -> int:
        self.objects.append(b"")
        return len(self.objects)

    def put(self, number: int, text: str) -> None:
        self.objects[number - 1] = text.encode("ascii")

    def add(self, text: str) -> int:
        number = self.reserve()
        self.put(number, text)
        return number

    def stream(self, content: bytes, entries: str = "") -> int:
        packed = zlib.compress(content, 9)
        head = f"<< /Length {len(packed)} /Filter /FlateDecode {entries} >>\nstream\n"
        self.objects.append(head.encode("ascii") + packed + b"\nendstream")
        return len(self.objects)

    def whole(self, catalog: int, info: int) -> bytes:
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")  # the second line says that this is not text
        places = []
        for number, content in enumerate(self.objects, 1):
            places.append(len(out))
            out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
        start = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
        for place in places:
            out += b"%010d 00000 n \n" % place
        out += b"trailer << /Size %d /Root %d 0 R /Info %d 0 R >>\n" % (len(places) + 1, catalog, info)
        out += b"startxref\n%d\n%%%%EOF\n" % start
        return bytes(out)
