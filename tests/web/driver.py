"""Handles to the page: where a box is on the canvas, and what a reader does with it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from playwright.sync_api import Locator, Page, expect

DRAWN = "() => [...document.querySelectorAll('canvas[role=application]')].every((one) => one.ariaBusy === 'false')"
PLACE = """([id, nth]) => document.querySelectorAll('canvas[role=application]')[nth]?.placeOf?.(id) ?? null"""


@dataclass(frozen=True)
class Box:
    """A box on the canvas, in pixels of the window."""

    left: float
    top: float
    width: float
    height: float
    form: str  # "node", "closed" or "open"
    look: str  # of a comparison: "changed" has no counterpart, "missing" differs

    @property
    def middle(self) -> tuple[float, float]:
        return self.left + self.width / 2, self.top + self.height / 2


def graph_of(page: Page, nth: int = 0) -> Locator:
    """Return the canvas, once something is drawn on it."""
    canvas = page.locator("canvas[role=application]").nth(nth)
    expect(canvas).to_have_attribute("aria-busy", "false")
    page.wait_for_function("() => performance.getEntriesByName('torcheer:drawn').length > 0")
    return canvas


def box_of(page: Page, item: str, nth: int = 0) -> Box | None:
    """Return where an item is, or the closed box it is in; None where it is not drawn."""
    graph_of(page, nth)
    place = page.evaluate(PLACE, [item, nth])
    return None if place is None else Box(**place)


def seen(page: Page, item: str, nth: int = 0) -> Box:
    box = box_of(page, item, nth)
    assert box is not None, f"{item} is not drawn"
    return box


def wait_for_form(page: Page, item: str, form: str, nth: int = 0) -> Box:
    """Wait until a box is a node, closed or open."""
    page.wait_for_function(f"(asked) => ({PLACE})(asked[0])?.form === asked[1]", arg=[[item, nth], form])
    return seen(page, item, nth)


def on_screen(page: Page, item: str, nth: int = 0) -> Box:
    """Return where an item is, all of the graph being fitted on the screen if it would be beside it."""
    for _ in range(2):  # of a long graph, the first fit shows the part looked at
        box = seen(page, item, nth)
        x, y = box.middle
        area = graph_of(page, nth).bounding_box()
        assert area is not None
        if area["x"] <= x <= area["x"] + area["width"] and area["y"] <= y <= area["y"] + area["height"] - 1:
            break
        graph_of(page, nth).press("f")
    return seen(page, item, nth)


def click(page: Page, item: str, nth: int = 0) -> None:
    page.mouse.click(*on_screen(page, item, nth).middle)


def click_heading(page: Page, item: str, nth: int = 0, count: int = 1) -> None:
    """Click into the top left of a box: the middle of an open one belongs to what is in it."""
    box = on_screen(page, item, nth)
    x, y = (12, 8) if box.width > 40 else (box.width / 3, 2)
    page.mouse.click(box.left + x, box.top + y, click_count=count)


def double_click(page: Page, item: str, nth: int = 0) -> None:
    click_heading(page, item, nth, count=2)


def place_of(page: Page) -> dict[str, str]:
    """Return what the address keeps."""
    return dict(parse_qsl(urlsplit(page.url).fragment))


def wait_for_place(page: Page, **wanted: str | None) -> None:
    """Wait until the address has entries, or has them no more."""
    page.wait_for_function(
        """(wanted) => {
            const place = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
            return Object.entries(wanted).every(([name, value]) => (place[name] ?? null) === value);
        }""",
        arg=wanted,
    )


def address(base: str, **place: Any) -> str:
    return f"{base}#{urlencode(place)}" if place else base


def end_servers_of(folder: Path) -> None:
    """End the servers of runs below a folder: they wait for readers for ten minutes."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in command.read_bytes():
                os.kill(int(command.parent.name), signal.SIGTERM)


def details(page: Page) -> Locator:
    return page.get_by_role("complementary", name="Details")
