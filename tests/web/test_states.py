"""What every page is like for everybody: no serious finding of axe-core in light and dark, and what it says when there
is nothing to show, when something goes wrong, and while it waits."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

import torcheer as tl
from tests.web import driver
from tests.web.driver import address, details
from tests.web.subjects import Explorer

AXE = Path(__file__).parents[2] / "src/torcheer/web/ui/node_modules/axe-core/axe.min.js"


@cache
def axe() -> str:
    assert AXE.is_file(), "axe-core comes with the page's build: python tools/build_page.py --force"
    return AXE.read_text(encoding="utf-8")


def findings(page: Page) -> list[str]:
    """What axe-core calls serious or critical."""
    page.evaluate(axe())
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 5, "axe did not look"
    return [
        f"{one['id']}: {one['help']}: {node['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["history", "profile", "watch"])
def test_no_serious_finding(page: Page, explorer: Explorer, kind: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    place = {"select": explorer.op("softmax_1_12"), "table": "ops", "colour": "time"} if kind == "history" else {}
    page.goto(address(explorer.address, subject=explorer.subject(kind), **place))
    if kind == "profile":
        expect(page.get_by_role("group", name="forward by module")).to_be_visible()
    else:
        driver.graph_of(page)
    if kind == "history":
        expect(details(page).get_by_role("img", name="Output, attention head").first).to_be_visible()
    if kind == "watch":
        expect(page.get_by_role("img", name="Param bias: histogram").first).to_be_visible()
        page.get_by_text("1 alert").click()
    page.keyboard.press("?")
    assert findings(page) == []
    page.keyboard.press("Escape")
    assert findings(page) == []


def test_a_check_that_finds_nothing_would_find_this(page: Page) -> None:
    page.set_content("<!doctype html><html lang=en><title>x</title><main><button></button></main>")
    page.evaluate(axe())
    found = page.evaluate("() => axe.run(document)")
    assert "button-name" in {one["id"] for one in found["violations"]}


def test_every_control_is_reached_by_tab(page: Page, explorer: Explorer) -> None:
    page.goto(explorer.address)
    driver.graph_of(page)
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("() => document.activeElement.ariaLabel || document.activeElement.innerText || ''"))
    for name in ("Search", "Expand all", "Colour by", "Fit", "Graph of Lab", "Modules", "Help"):
        assert any(name in one for one in seen), f"{name} not among {seen}"


def test_nothing_to_show(page: Page, tmp_path: Path) -> None:
    with tl.explore(tmp_path, port=0) as server:
        page.goto(server.address)
        expect(page.get_by_role("status")).to_have_text(
            "There is nothing to show. Start with: torcheer.explore(history)"
        )
        page.goto("about:blank")


def test_a_recording_without_operations(page: Page, tmp_path: Path) -> None:
    from torch import nn

    class Nothing(nn.Module):
        def forward(self) -> None:
            return None

    with tl.explore(tl.log_forward_pass(Nothing(), ()), port=0) as server:
        page.goto(server.address)
        expect(page.get_by_text("There is nothing here: no operation was recorded.")).to_be_visible()
        expect(details(page)).to_contain_text("Operations 0")
        page.goto("about:blank")


def test_while_it_waits_it_says_so(page: Page, explorer: Explorer) -> None:
    held: list[Route] = []
    page.route("**/api/subjects/*", lambda route: held.append(route))
    page.goto(explorer.address)
    expect(page.get_by_role("status")).to_have_text("Loading the recording…")
    held[0].continue_()
    driver.graph_of(page)


@pytest.mark.page_errors
@pytest.mark.parametrize("kind", ["history", "profile", "watch"])
def test_what_went_wrong_and_how_to_mend_it_is_said(page: Page, explorer: Explorer, kind: str) -> None:
    error = {"error": {"status": 422, "message": "The recording is damaged.", "hint": "Record it again."}}
    page.route(
        "**/api/subjects/*",
        lambda route: route.fulfill(status=422, body=json.dumps(error), content_type="application/json"),
    )
    page.goto(address(explorer.address, subject=explorer.subject(kind)))
    expect(page.get_by_role("alert")).to_contain_text("The recording is damaged.")
    expect(page.get_by_role("alert")).to_contain_text("Record it again.")


@pytest.mark.page_errors
def test_a_server_that_is_gone(page: Page, explorer: Explorer) -> None:
    page.route("**/api", lambda route: route.abort())
    page.goto(explorer.address)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    expect(page.get_by_role("alert")).to_contain_text("start it again")


def test_a_narrow_window_still_has_everything(page: Page, explorer: Explorer) -> None:
    page.set_viewport_size({"width": 900, "height": 620})
    page.goto(explorer.address)
    driver.graph_of(page)
    width = page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= 900
    for name in ("Expand all", "Fit", "Ops", "Modules"):
        box = page.get_by_role("button", name=name, exact=True).bounding_box()
        assert box
        assert box["x"] + box["width"] <= 900, name
