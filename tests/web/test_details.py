"""What the panel says of what is selected, and the tables beside the graph: all linked with one another."""

from __future__ import annotations

import pytest
import torch
from playwright.sync_api import Page, expect

import torcheer as tl
from tests.web import driver
from tests.web.driver import details, place_of, seen, wait_for_place
from tests.web.subjects import Explorer


@pytest.fixture
def show(page: Page, explorer: Explorer):
    """Open the page with something selected."""

    def show(item: str, **place: str) -> Page:
        page.goto(driver.address(explorer.address, select=item, fold="0", **place))
        driver.graph_of(page)
        return page

    return show


def test_an_operation(show, explorer: Explorer) -> None:
    page = show(explorer.op("conv2d_1_1"))
    panel = details(page)
    expect(panel.get_by_role("heading", name="conv2d_1_1")).to_be_visible()
    for text in (
        "Function torch.conv2d",
        "Module stem (Conv2d)",
        "2×8×6×6 · float32 · 2.3 KiB",
        "stem.weight 8×3×3×3 · param",
        "Autograd ConvolutionBackward0",
        "torch/nn/modules/conv.py:",
    ):
        expect(panel).to_contain_text(text)
    for name in ("Time", "Backward", "Arguments"):
        expect(panel.get_by_role("term").filter(has_text=name)).to_be_visible()


def test_its_numbers_are_those_of_the_tensor(show, explorer: Explorer, history: tl.ModelHistory) -> None:
    page = show(explorer.op("conv2d_1_1"))
    contents = history["conv2d_1_1"].tensor_contents
    panel = details(page)
    expect(panel.get_by_role("term").filter(has_text="Mean")).to_be_visible()
    names, texts = (panel.get_by_role(role).all_text_contents() for role in ("term", "definition"))
    shown = dict(zip(names, texts, strict=True))
    assert float(shown["Mean"]) == pytest.approx(contents.mean().item(), rel=1e-3)
    assert float(shown["Std"]) == pytest.approx(contents.std(unbiased=False).item(), rel=1e-3)
    assert float(shown["Max"]) == pytest.approx(contents.max().item(), rel=1e-3)
    assert shown["Elements"] == "576"
    histogram = panel.get_by_role("img", name="Histogram")
    expect(histogram).to_be_visible()
    expect(panel.get_by_role("img", name="Output, channel")).to_have_count(8)


def test_attention_is_shown_as_pictures(show, explorer: Explorer, history: tl.ModelHistory) -> None:
    page = show(explorer.op("softmax_1_12"))
    heads = details(page).get_by_role("img", name="Output, attention head")
    expect(heads).to_have_count(2)
    expect(details(page)).to_contain_text("2 of 2 attention heads")
    # The brightest pixel is where the most attention is.
    weights = history["softmax_1_12"].tensor_contents[0]
    strongest = divmod(int(weights[1].argmax()), weights.shape[-1])
    brightest = heads.nth(1).evaluate(
        """(canvas) => {
            const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let best = 0;
            for (let at = 0; at < data.length; at += 4) if (data[at + 1] > data[best + 1]) best = at;
            return [Math.floor(best / 4 / width), (best / 4) % width];
        }"""
    )
    assert torch.isclose(weights[1][tuple(brightest)], weights[1][strongest], rtol=0.01)


def test_nan_is_counted(show, explorer: Explorer) -> None:
    page = show(explorer.op("log_1_74"))
    expect(details(page).locator("dd.bad")).to_have_text("16")


def test_a_module(show, explorer: Explorer) -> None:
    page = show(explorer.call("blocks.1.attention"))
    panel = details(page)
    expect(panel.get_by_role("heading", name="blocks.1.attention", exact=True)).to_be_visible()
    for text in ("tests.web.subjects.Attention", "Params 288", "Operations 11", "Input", "2×36×8"):
        expect(panel).to_contain_text(text)
    expect(panel.get_by_role("button", name="blocks.1.attention.qkv")).to_be_visible()


def test_the_settings_of_a_module_are_lines(show, explorer: Explorer) -> None:
    page = show(explorer.op("conv2d_1_1"), table="modules")
    page.get_by_role("region", name="module calls").get_by_role("row", name="stem").click()
    # The module's one operation stands for it in the graph; the table's row says what the module is.
    wait_for_place(page, select=explorer.op("conv2d_1_1"))


def test_sources_and_users_lead_on(show, explorer: Explorer) -> None:
    page = show(explorer.op("relu_1_2"))
    details(page).get_by_role("button", name="conv2d_1_1").click()
    wait_for_place(page, select=explorer.op("conv2d_1_1"))
    details(page).get_by_role("button", name="relu_1_2").click()
    wait_for_place(page, select=explorer.op("relu_1_2"))
    details(page).get_by_role("button", name="flatten_1_3").click()
    wait_for_place(page, select=explorer.op("flatten_1_3"))


def test_source_lines_and_stack(show, explorer: Explorer) -> None:
    page = show(explorer.op("softmax_2_28"))
    panel = details(page)
    # From the model's forward down to the line that called it.
    expect(panel.locator(".stack pre")).to_contain_text(
        ["x = self.blocks(x).mean(1)", "x = x + self.attention(self.norm(x))", "weights = torch.softmax("]
    )
    expect(panel.locator(".stack li").last).to_contain_text("tests/web/subjects.py:")


def test_the_lookup_key_is_copied(show, explorer: Explorer, history: tl.ModelHistory) -> None:
    page = show(explorer.op("linear_13_70:2"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    details(page).get_by_role("button", name='history["linear_13_70:2"]').click()
    expect(details(page)).to_contain_text("copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == 'history["linear_13_70:2"]'
    assert eval(copied, {"history": history}).label == "linear_13_70:2"


def test_edges_of_what_is_selected_stand_out(show, explorer: Explorer) -> None:
    page = show(explorer.op("relu_1_2"))
    box = seen(page, explorer.op("relu_1_2"))
    colour = """([x, y]) => {
        const canvas = document.querySelector('canvas[role=application]');
        const area = canvas.getBoundingClientRect();
        const image = canvas.getContext('2d').getImageData(x - area.left - 3, y - area.top, 6, 1).data;
        return [...Array(6).keys()].map((at) => [...image.slice(4 * at, 4 * at + 3)]);
    }"""
    above = page.evaluate(colour, [box.middle[0], box.top - 22])
    below = page.evaluate(colour, [box.middle[0], box.top + box.height + 10])
    assert any(blue > 150 and red < 120 for red, _, blue in above), above
    assert any(red > 150 and blue < 120 for red, _, blue in below), below


def test_the_table_and_the_graph_select_together(show, explorer: Explorer) -> None:
    page = show(explorer.op("conv2d_1_1"), table="ops")
    table = page.get_by_role("region", name="ops, scrollable")
    table.get_by_role("row", name="relu_1_2").click()
    wait_for_place(page, select=explorer.op("relu_1_2"))
    driver.click(page, explorer.op("flatten_1_3"))
    expect(table.locator("tr.selected td").first).to_have_text("flatten_1_3")
    table.focus()
    table.press("ArrowDown")
    wait_for_place(page, select=explorer.op("transpose_1_4"))


def test_tables_are_sorted_filtered_and_their_columns_chosen(show, explorer: Explorer) -> None:
    page = show(explorer.op("conv2d_1_1"), table="ops")
    panel = page.get_by_role("region", name="Table", exact=True)
    rows = panel.locator("tbody tr:not([aria-hidden])")
    panel.get_by_role("button", name="Params").click()
    expect(panel.locator("th[aria-sort=descending]")).to_contain_text("Params")
    # The four attentions' projections have the most; among equals as they ran.
    expect(rows.first.locator("td").first).to_have_text("conv2d_1_1")
    panel.get_by_role("button", name="Params").click()
    expect(panel.locator("th[aria-sort=ascending]")).to_contain_text("Params")
    panel.get_by_role("button", name="Params").click()
    expect(rows.first.locator("td").first).to_have_text("input_1_0")
    panel.get_by_role("searchbox", name="Filter ops").fill("softmax blocks.2")
    expect(rows).to_have_count(2)  # the softmax, and what takes it
    expect(panel.get_by_role("status")).to_have_text("2 ops")
    panel.get_by_role("searchbox", name="Filter ops").fill("nothing like it")
    expect(panel).to_contain_text("Nothing matches the filter.")
    panel.get_by_role("searchbox", name="Filter ops").fill("")
    panel.get_by_text("Columns").click()
    panel.get_by_role("checkbox", name="Arguments").check()
    panel.get_by_role("checkbox", name="NaN").check()
    panel.get_by_role("checkbox", name="Module", exact=True).uncheck()
    expect(panel.get_by_role("button", name="Arguments")).to_be_visible()
    expect(panel.get_by_role("button", name="Module", exact=True)).to_be_hidden()
    panel.get_by_role("button", name="NaN").click()
    expect(rows.first.locator("td").first).to_have_text("log_1_74")


def test_the_table_of_modules(show, explorer: Explorer) -> None:
    page = show(explorer.op("conv2d_1_1"), table="modules")
    table = page.get_by_role("region", name="module calls, scrollable")
    table.get_by_role("row", name="blocks.2 Block").first.click()
    wait_for_place(page, select=explorer.call("blocks.2"))
    expect(details(page).get_by_role("heading", name="blocks.2", exact=True)).to_be_visible()
    assert place_of(page)["table"] == "modules"
