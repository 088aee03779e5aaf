"""The page of a profile: flame, memory over the run, table, and what they say about one module."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.web import driver
from tests.web.driver import details, wait_for_place
from tests.web.subjects import Explorer


@pytest.fixture
def profile(page: Page, explorer: Explorer) -> Page:
    page.goto(driver.address(explorer.address, subject=explorer.subject("profile")))
    expect(page.get_by_role("group", name="forward by module")).to_be_visible()
    return page


def test_the_flame_is_as_wide_as_time_is_long(profile: Page) -> None:
    flame = profile.get_by_role("group", name="forward by module")
    whole = flame.get_by_role("button", name="Lab:").bounding_box()
    inner = flame.get_by_role("button", name="blocks:").bounding_box()
    assert whole
    assert inner
    assert inner["y"] > whole["y"]
    amount, share = (flame.get_by_role("button", name="blocks:").get_attribute("aria-label") or "").split(", ")
    # The share in the table is of forward and backward together, that of the flame of the forward alone.
    forward = amount.removeprefix("blocks: ")
    expect(profile.get_by_role("row", name="blocks Sequential").get_by_text(forward, exact=True).first).to_be_visible()
    # Parts that add up to more than the whole, as times on a busy machine may, are drawn to fit.
    bars = [bar for bar in flame.get_by_role("button").all() if (bar.bounding_box() or whole)["y"] == inner["y"]]
    parts = sum(float((bar.get_attribute("aria-label") or "").split(", ")[-1].split()[0]) for bar in bars)
    expected = float(share.split()[0]) / max(100, parts)
    assert inner["width"] / whole["width"] == pytest.approx(expected, abs=0.02)


def test_flame_table_and_details_select_together(profile: Page) -> None:
    profile.get_by_role("group", name="forward by module").get_by_role("button", name="blocks:").click()
    expect(details(profile).get_by_role("heading", name="blocks", exact=True)).to_be_visible()
    expect(profile.locator("tr.selected")).to_contain_text("Sequential")
    wait_for_place(profile, row=str(profile_row(profile)))
    profile.get_by_role("row", name="stem Conv2d").click()
    panel = details(profile)
    expect(panel.get_by_role("heading", name="stem")).to_be_visible()
    expect(panel).to_contain_text("params 224")
    expect(panel).to_contain_text("conv2d_1_1")
    expect(panel).to_contain_text("subjects.py:")


def profile_row(page: Page) -> int:
    return int(page.locator("tr.selected").get_attribute("aria-rowindex") or 0) - 2


def test_the_flame_of_another_figure_and_of_one_module(profile: Page) -> None:
    profile.get_by_label("Flame of").select_option(label="FLOPs fwd")
    expect(profile.get_by_role("group", name="FLOPs fwd by module")).to_be_visible()
    wait_for_place(profile, metric=profile.get_by_label("Flame of").input_value())
    bar = profile.get_by_role("group", name="FLOPs fwd by module").get_by_role("button", name="blocks:")
    bar.dblclick()
    profile.get_by_role("button", name="Whole model").click()
    expect(profile.get_by_role("button", name="Whole model")).to_be_hidden()


def test_memory_over_the_run_leads_to_the_module_that_holds_it(profile: Page) -> None:
    timeline = profile.get_by_role("img", name="Memory held over the run")
    area = timeline.bounding_box()
    assert area
    section = profile.get_by_role("region", name="Memory over the run")
    expect(section).to_contain_text("peak")
    profile.mouse.move(area["x"] + area["width"] * 0.4, area["y"] + area["height"] / 2)
    profile.mouse.click(area["x"] + area["width"] * 0.4, area["y"] + area["height"] / 2)
    expect(profile.locator("tr.selected")).to_have_count(1)
    assert profile_row(profile) > 0


COLOURS_OF_A_COLUMN = """(share) => {
    const canvas = document.querySelector('canvas[role=img]');
    const x = Math.floor(share * canvas.width);
    const data = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height).data;
    const found = {};
    for (let at = 0; at < data.length; at += 4) if (data[at + 3]) {
        const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
        found[colour] = (found[colour] ?? 0) + 1;
    }
    return found;
}"""
SWATCHES = """(list) => Object.fromEntries(
    [...list.querySelectorAll('li')].map((one) => [one.innerText.trim(), one.querySelector('b')])
        .filter(([, swatch]) => swatch).map(([name, swatch]) => [name, getComputedStyle(swatch).backgroundColor]))"""
HUE = "(bar) => bar.style.getPropertyValue('--hue')"


def test_memory_is_drawn_in_layers_by_module_in_the_colours_of_the_flame(profile: Page) -> None:
    legend = profile.get_by_role("list", name="Layers of the memory held")
    swatches = legend.evaluate(SWATCHES)
    assert {"blocks.0", "blocks.1", "blocks.2", "blocks.3"} <= set(swatches)
    assert len(set(swatches.values())) == len(swatches)
    late = profile.evaluate(COLOURS_OF_A_COLUMN, 0.95)
    assert len(set(late) & set(swatches.values())) >= 4, "several modules hold memory at the end of the forward pass"
    flame = profile.get_by_role("group", name="forward by module")
    hues = [flame.get_by_role("button", name=f"blocks.{at}:").evaluate(HUE) for at in range(4)]
    assert len(set(hues)) == 4
    title = legend.get_by_role("button", name="blocks.2")
    title.click()
    expect(details(profile).get_by_role("heading", name="blocks.2", exact=True)).to_be_visible()
    inner = flame.get_by_role("button", name="blocks.2.attention:").evaluate(HUE)
    assert inner == hues[2]


def test_memory_is_drawn_in_layers_by_category(profile: Page, explorer: Explorer) -> None:
    with urlopen(f"{explorer.address}api/subjects/{explorer.subject('profile')}", timeout=10) as answer:
        data = json.load(answer)
    profile.get_by_label("Layers of the memory", exact=True).select_option("category")
    wait_for_place(profile, memory="category")
    swatches = profile.get_by_role("list", name="Layers of the memory held").evaluate(SWATCHES)
    assert {"params", "activations", "gradients", "temporaries"} <= set(swatches)
    # As high as they are large, at the first point: what was there before the run.
    column = profile.evaluate(COLOURS_OF_A_COLUMN, 0)
    before, peak = data["memory_before"], max(point["held_bytes"] for point in data["timeline"])
    whole = peak + sum(before.values())
    assert column[swatches["params"]] == pytest.approx(105 * before["param"] / whole, abs=1.1)
    profile.reload()
    expect(profile.get_by_label("Layers of the memory", exact=True)).to_have_value("category")


def test_nan_and_what_else_to_know_is_said(profile: Page) -> None:
    panel = details(profile)
    expect(panel.get_by_text("NaN and Inf")).to_be_visible()
    expect(panel).to_contain_text("log")
