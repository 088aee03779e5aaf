"""What a notebook shows."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.unit.history.make_history import bare_history, saved_history
from tests.unit.history.test_text import long_history
from tests.unit.make_record import loop_record, make_record, small_record


class Tags(HTMLParser):
    """Checks nesting and collects the names of all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_small_table() -> None:
    text = saved_history(make_record())._repr_html_()
    assert Tags(text).seen.count("tr") == 1 + 10
    assert "<td>conv2d_1_1</td><td>(1, 4, 8, 8)</td><td>1.0 KiB</td><td>features.0</td><td>1.0 µs</td>" in text


def test_long_listings_are_cut() -> None:
    text = long_history(500)._repr_html_()
    assert Tags(text).seen.count("tr") == 1 + 40 + 1 + 10
    assert "… 450 more" in text


def test_nothing_of_the_model_becomes_markup() -> None:
    record = small_record()
    record.run.model = "<script>alert(1)</script>"
    record.modules[2].address = "<img src=x>"
    record.run.error = "ValueError: <b>"
    seen = set(Tags(bare_history(record)._repr_html_()).seen)
    listing = {"div", "b", "br", "table", "thead", "tbody", "tr", "th", "td"}
    # The picture is there where the page is built, which a test without Node cannot ask for.
    assert seen <= listing | {"svg", "title", "rect", "path", "g", "text"}
    assert set(Tags(bare_history(record)["conv2d_1"]._repr_html_()).seen) == {"pre"}


def test_views() -> None:
    history = bare_history(loop_record())
    assert history["add_1"]._repr_html_().startswith("<pre>Layer add_1_1, 3 passes:")
