"""Pictures of recorded runs: files, formats, options, errors. Records are made by hand."""

from __future__ import annotations

import json
import os
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pictures.scenes import check_boxes, check_texts
from tests.unit.history.make_history import (
    bare_history,
    nested_record,
    saved_history,
    shared_record,
    split_record,
)
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.errors import DrawError, TorcheerError
from torcheer.history import ModelHistory
from torcheer.record.model import Edge, Record
from torcheer.views import engine, page
from torcheer.views.picture import Picture, notebook

RECORDS = [small_record, loop_record, make_record, nested_record, shared_record, split_record]
SVG = "{http://www.w3.org/2000/svg}"


def picture_of(record: Record, **options: Any) -> Picture:
    return Picture(bare_history(record), **options)


def texts(picture: Picture) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def items(picture: Picture) -> dict[str, dict[str, Any]]:
    return {item["title"]: item for item in picture.scene["graph"]["items"]}


def edges(picture: Picture) -> list[tuple[str, str, str]]:
    graph = picture.scene["graph"]
    titles = [item["title"] for item in graph["items"]]
    return [(titles[edge["from"]], titles[edge["to"]], edge["kind"]) for edge in graph["edges"]]


@pytest.mark.parametrize("level", ["function", "aten"])
@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("make", RECORDS)
def test_every_picture_is_whole(make: Callable[[], Record], rolled: bool, level: str) -> None:
    picture = picture_of(make(), rolled=rolled, level=level)
    check_boxes(picture.scene["scene"])
    check_texts(picture.scene["scene"])
    root = ET.fromstring(picture.svg)
    assert root.find(f"{SVG}title").text == picture.history.record.run.model  # type: ignore[union-attr]
    placed = [text["text"] for box in picture.scene["scene"]["boxes"] for text in box["texts"]]
    assert sorted(texts(picture)) == sorted(placed)


def test_unrolled_has_every_operation_in_its_modules() -> None:
    history = bare_history(small_record())
    graph = history.draw().scene["graph"]
    leaves = {item["title"]: item for item in graph["items"] if item["role"] != "module"}
    assert list(leaves) == [op.label for op in history]
    assert graph["items"][leaves["relu_1_2"]["parent"]]["title"] == "features"
    conv = leaves["conv2d_1_1"]
    assert conv["lines"] == ["features.0 · Conv2d", "params 4×3×3×3, 4"]
    assert (conv["out"], conv["role"], conv["key"], conv["id"]) == ("1×4×8×8", "params", "conv2d_1_1", "op1")
    assert [leaves[name]["role"] for name in ("input_1_0", "relu_1_2", "output_1_6")] == ["input", "op", "output"]


def test_rolled_draws_a_loop_once() -> None:
    picture = picture_of(loop_record(), rolled=True)
    assert {title: item["count"] for title, item in items(picture).items()} == {
        "input_1_0": 1,
        "add_1_1": 3,
        "output_1_2": 1,
    }
    assert edges(picture) == [
        ("input_1_0", "add_1_1", "tensor"),
        ("add_1_1", "add_1_1", "tensor"),
        ("add_1_1", "output_1_2", "tensor"),
    ]
    assert "×3" in texts(picture)
    assert [route["back"] for route in picture.scene["scene"]["routes"]] == [False, True, False]


def test_a_module_called_several_times() -> None:
    lines = [item["lines"][0] for item in items(picture_of(shared_record())).values() if item["lines"]]
    assert lines == ["cell:1 · Linear", "cell:2 · Linear", "cell:3 · Linear"]
    rolled = items(picture_of(shared_record(), rolled=True))
    assert [(item["lines"][0], item["count"]) for item in rolled.values() if item["lines"]] == [("cell · Linear", 3)]


def test_calls_that_share_no_layer_stay_apart_when_rolled() -> None:
    rolled = items(picture_of(shared_record(one_layer=False), rolled=True))
    assert [item["count"] for item in rolled.values() if item["lines"]] == [1, 1, 1]


def test_operations_inside_others_are_not_drawn() -> None:
    picture = picture_of(nested_record())
    assert list(items(picture)) == ["input_1_0", "double_1_1", "relu_1_2", "output_1_3"]
    assert [ends[:2] for ends in edges(picture)] == [
        ("input_1_0", "double_1_1"),
        ("double_1_1", "relu_1_2"),
        ("relu_1_2", "output_1_3"),
    ]


def test_several_tensors_between_two_operations_are_one_line() -> None:
    picture = picture_of(split_record())
    boxes = [picture.scene["graph"]["items"][box["item"]]["title"] for box in picture.scene["scene"]["boxes"]]
    lines = {
        (boxes[route["from"]], boxes[route["to"]]): len(route["edges"]) for route in picture.scene["scene"]["routes"]
    }
    assert lines["chunk_1_1", "add_1_2"] == 2
    assert items(picture)["chunk_1_1"]["out"] == "2×1 | 2×2"


def test_memory_edges_are_dashed() -> None:
    record = small_record()
    record.ops[4].parents += (Edge(1, record.ops[1].outputs[0].value, "memory", ""),)
    picture = picture_of(record)
    assert ("conv2d_1_1", picture.history[4].label, "memory") in edges(picture)
    assert "stroke-dasharray" in picture.svg
    assert "stroke-dasharray" not in picture_of(small_record()).svg


def test_depth_closes_modules() -> None:
    closed = picture_of(small_record(), depth=0).scene["scene"]["boxes"]
    opened = picture_of(small_record()).scene["scene"]["boxes"]
    assert {box["form"] for box in closed} == {"node", "closed"}
    assert {box["form"] for box in opened} == {"node", "open"}
    assert len(closed) < len(opened)


def test_aten_calls_are_inside_their_operations() -> None:
    picture = picture_of(make_record(), level="aten")
    graph = picture.scene["graph"]
    aten = [item for item in graph["items"] if item["role"] == "aten"]
    forward = [op for op in picture.history.record.aten if op.phase == "forward" and op.owner is not None]
    assert len(aten) == len(forward) > 0
    assert all(graph["items"][item["parent"]]["id"].startswith("op") for item in aten)


@pytest.mark.parametrize("metric", ["time", "memory", "params"])
def test_colour_by_a_metric_adds_up(metric: str) -> None:
    graph = picture_of(make_record(), colour_by=metric).scene["graph"]["items"]
    shares = [item["heat"] ** 2 if item["heat"] >= 0 else 0 for item in graph]  # -1: not known
    assert sum(share for share, item in zip(shares, graph, strict=True) if item["parent"] < 0) == pytest.approx(1)
    for index, item in enumerate(graph):
        inside = [share for share, other in zip(shares, graph, strict=True) if other["parent"] == index]
        if inside:
            assert sum(inside) == pytest.approx(shares[index])
            assert item["role"] == "module"


def test_dark_and_light_differ_in_colours_only() -> None:
    light, dark = (
        re.sub("#[0-9a-f]{6}", "", picture_of(make_record(), theme=theme).svg) for theme in ("light", "dark")
    )
    assert light == dark
    assert picture_of(make_record()).svg != picture_of(make_record(), theme="dark").svg


@pytest.mark.parametrize("name", ['a"]; evil [', "back\\slash", "new\nline", "<b>&amp;", "\0", "]]>", "模型", "\udc80"])
def test_any_name_is_safe(name: str, tmp_path: Path) -> None:
    record = small_record()
    record.run.model = name
    record.modules[1].address = name
    record.layers[2].name = name
    picture = picture_of(record)
    ET.fromstring(picture.svg)
    for ending in ("svg", "png", "pdf", "dot"):
        picture.save(tmp_path / f"net.{ending}")
    dot = picture.dot
    assert dot.count("{") - name.count("{") == dot.count("}") - name.count("}")
    quotes = re.sub(r"\\.", "", dot).count('"')
    assert quotes % 2 == 0


# -- files ----------------------------------------------------------------------------------------------------


def test_the_ending_decides_the_kind_of_file(tmp_path: Path) -> None:
    history = bare_history(make_record())
    for ending, start in (
        ("svg", b"<svg "),
        ("png", b"\x89PNG"),
        ("pdf", b"%PDF-"),
        ("dot", b"digraph"),
        ("SVG", b"<"),
    ):
        path = tmp_path / f"net.{ending}"
        assert isinstance(history.draw(path), Picture)
        assert path.read_bytes().startswith(start)
    assert not list(tmp_path.glob(".*"))


def test_html_is_the_explorer(tmp_path: Path) -> None:
    bare_history(make_record()).draw(tmp_path / "net.html")
    assert (tmp_path / "net.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_png_is_twice_as_large_as_the_svg() -> None:
    picture = picture_of(small_record())
    width, height = struct.unpack(">2I", picture.png[16:24])
    assert (width, height) == (2 * picture.size[0], 2 * picture.size[1])


def test_a_png_that_nobody_could_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = picture_of(small_record())
    monkeypatch.setattr("torcheer.views.picture.MOST_PIXELS", 1000)
    with pytest.raises(
        DrawError, match=r"too large to be read as PNG. Draw an .svg or .pdf, or less of it: rolled=True"
    ):
        _ = picture.png


def test_png_has_text_without_any_font_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("resvg_py.svg_to_bytes", lambda **given: seen.update(given) or b"")
    _ = picture_of(small_record()).png
    assert seen["skip_system_fonts"]
    assert all(os.path.getsize(file) > 10_000 for file in seen["font_files"])
    record = small_record()
    record.modules[1].address = "模型"
    _ = picture_of(record).png
    assert not seen["skip_system_fonts"]


def test_pdf_has_every_text_and_its_fonts() -> None:
    picture = picture_of(make_record())
    objects = pdf_objects(picture.pdf)
    fonts = [content for content in objects.values() if b"/FontFile2" in content]
    assert len(fonts) == 2
    (page_object,) = (content for content in objects.values() if b"/Type /Page " in content)
    content = objects[int(re.search(rb"/Contents (\d+)", page_object)[1])]  # type: ignore[index]
    shown = re.findall(rb"<([0-9A-F]+)> Tj", content)
    meanings: dict[str, str] = {}
    for meaning in objects.values():
        pairs = re.findall(rb"<([0-9A-F]{4})> <([0-9A-F]{4,8})>\n", meaning)
        meanings |= {glyph.decode(): bytes.fromhex(char.decode()).decode("utf-16-be") for glyph, char in pairs}
    read = ["".join(meanings[word.decode()[at : at + 4]] for at in range(0, len(word), 4)) for word in shown]
    assert sorted(read) == sorted(texts(picture))


def pdf_objects(pdf: bytes) -> dict[int, bytes]:
    """The objects of a PDF found through its table of places, streams unpacked."""
    start = int(pdf[pdf.rindex(b"startxref") :].split()[1])
    lines = pdf[start:].splitlines()
    assert lines[0] == b"xref"
    num = int(lines[1].split()[1])
    found = {}
    for number in range(1, num):
        place = int(lines[2 + number][:10])
        head = b"%d 0 obj\n" % number
        assert pdf[place:].startswith(head)
        content = pdf[place + len(head) : pdf.index(b"\nendobj", place)]
        if b"\nstream\n" in content:
            entries, packed = content.split(b"\nstream\n", 1)
            packed = packed.removesuffix(b"\nendstream")
            assert int(re.search(rb"/Length (\d+)", entries)[1]) == len(packed)  # type: ignore[index]
            content = entries + zlib.decompress(packed)
        found[number] = content
    return found


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.svg").write_text("before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DrawError, match=r"net.svg cannot be written: No space left on device"):
        bare_history(small_record()).draw(tmp_path / "net.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["net.svg"]
    assert (tmp_path / "net.svg").read_text() == "before"


def test_folders_are_made_where_they_can_be(tmp_path: Path) -> None:
    bare_history(small_record()).draw(tmp_path / "new" / "net.svg")
    assert (tmp_path / "new" / "net.svg").is_file()
    with pytest.raises(
        DrawError, match=r"net.svg.a.svg cannot be written: .* Give a path in a folder you may write to"
    ):
        bare_history(small_record()).draw(tmp_path / "new" / "net.svg" / "a.svg")


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "direction is 'up'. It takes one of 'down', 'right'."),
        ({"colour_by": "tim"}, "It takes one of 'kind', 'time', .* Did you mean 'time'"),
        ({"theme": None}, "theme is None. It takes one of 'light', 'dark'."),
        ({"depth": -1}, "depth is -1. It takes a number of module levels, 0 or more, or None for all"),
        ({"depth": True}, "depth is True."),
        ({"gradients": True}, r"gradients=True needs a backward pass, .* Call history.log_backward\(loss\) first"),
        ({"colour_by": "backward"}, 'colour_by="backward" needs a backward pass'),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    record = small_record()
    record.run.num_backward = 0
    with pytest.raises(DrawError, match=message):
        bare_history(record).draw(**options)


@pytest.mark.parametrize("path", ["net", "net.jpg", "net.svg.gz"])
def test_an_unknown_ending(path: str, tmp_path: Path) -> None:
    with pytest.raises(DrawError, match=r"what kind of file to draw. It takes one of .svg, .png, .pdf, .dot, .html\."):
        bare_history(small_record()).draw(tmp_path / path)
    assert not list(tmp_path.iterdir())


# -- notebooks ------------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_picture_and_the_listing() -> None:
    shown = saved_history(make_record())._repr_html_()
    assert shown.index("<svg") < shown.index("<table")


def test_the_picture_asked_for_is_the_one_shown() -> None:
    history = bare_history(loop_record())
    assert ">add_1_1</text>" in history._repr_html_()
    history.drawing = history.draw()
    assert ">add_1_1:2</text>" in history._repr_html_()


def test_a_tree_that_is_not_built_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (engine, page):
        monkeypatch.setattr(module, "BUILT", tmp_path)
    page._read.cache_clear()
    history: ModelHistory = bare_history(small_record())
    try:
        assert notebook(history) == ""
        with pytest.raises(TorcheerError, match="run `make page`"):
            _ = history.draw().svg
    finally:
        page._read.cache_clear()


def test_data_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = picture_of(small_record())
    json.loads(picture._data)
    monkeypatch.setattr("torcheer.views.picture.build", None)
    assert picture.svg
    assert picture.dot
