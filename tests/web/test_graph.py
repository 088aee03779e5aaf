"""The graph in the browser: open, close, enter, search, keys, colours, and the address that keeps it all."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web import driver
from tests.web.driver import details, place_of, seen, wait_for_form, wait_for_place
from tests.web.subjects import Explorer


@pytest.fixture
def graph(page: Page, explorer: Explorer) -> Page:
    page.goto(explorer.address)
    driver.graph_of(page)
    return page


def test_the_first_picture_has_the_whole_model(graph: Page, explorer: Explorer) -> None:
    for label in ("input_1_0", "conv2d_1_1", "output_1_75"):
        assert seen(graph, explorer.op(label)).form == "node"
    assert graph.title() == "Lab · Run · torcheer"
    expect(details(graph)).to_contain_text("Operations 81")
    expect(details(graph).get_by_role("heading", name="Lab")).to_be_visible()


def test_a_double_click_opens_a_module_in_place_and_closes_it(graph: Page, explorer: Explorer) -> None:
    block = explorer.call("blocks.0")
    graph.get_by_role("button", name="Collapse").click()
    driver.double_click(graph, wait_and_id(graph, explorer.call("blocks"), "closed"))
    before = wait_for_form(graph, explorer.call("blocks"), "open")
    driver.double_click(graph, block)
    wait_for_form(graph, block, "open")
    after = seen(graph, explorer.call("blocks"))
    # What is opened grows downwards, and what was on the screen stays where it was.
    assert abs(after.top - before.top) < 300
    driver.double_click(graph, block)
    wait_for_form(graph, block, "closed")


def wait_and_id(page: Page, item: str, form: str) -> str:
    wait_for_form(page, item, form)
    return item


def test_equal_blocks_are_drawn_once_until_unfolded(graph: Page, explorer: Explorer) -> None:
    first, last = explorer.call("blocks.0"), explorer.call("blocks.3")
    assert driver.box_of(graph, first) is not None
    assert driver.box_of(graph, last) is None
    graph.get_by_role("button", name="Fold").click()
    wait_for_place(graph, fold="0")
    graph.get_by_role("button", name="Expand all").click()
    assert wait_for_form(graph, last, "open").top > wait_for_form(graph, first, "open").top


def test_entering_a_module_leaves_a_way_back(graph: Page, explorer: Explorer) -> None:
    block = explorer.call("blocks.0")
    driver.click_heading(graph, block)
    details(graph).get_by_role("button", name="Enter").click()
    path = graph.get_by_role("navigation", name="Path")
    expect(path.get_by_role("button")).to_have_text(["Lab", "blocks", "blocks.0 … blocks.3"])
    wait_for_place(graph, **{"in": block})
    assert driver.box_of(graph, explorer.op("conv2d_1_1")) is None
    assert seen(graph, explorer.op("layernorm_1_5")).form == "node"
    path.get_by_role("button", name="Lab").click()
    wait_for_form(graph, explorer.op("conv2d_1_1"), "node")
    graph.go_back()
    wait_for_place(graph, **{"in": block})
    expect(path.get_by_role("button")).to_have_text(["Lab", "blocks", "blocks.0 … blocks.3"])
    graph.go_back()
    expect(path.get_by_role("button")).to_have_text(["Lab"])
    wait_for_form(graph, explorer.op("conv2d_1_1"), "node")


def test_the_address_brings_back_what_was_shown(graph: Page, explorer: Explorer, page: Page) -> None:
    graph.get_by_role("button", name="Fold").click()
    graph.get_by_role("button", name="Rolled").click()
    graph.get_by_label("Colour by").select_option("params")
    graph.get_by_role("button", name="Ops").click()
    driver.click(graph, "layer1")
    wait_for_place(graph, select="layer1", rolled="1", fold="0", colour="params", table="ops")
    place = place_of(graph)
    link = graph.url
    page.goto("about:blank")
    page.goto(link)
    driver.graph_of(page)
    expect(details(page).get_by_role("heading", name="conv2d_1_1")).to_be_visible()
    expect(page.get_by_role("button", name="Rolled")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Colour by")).to_have_value("params")
    assert place_of(page) == place


def test_rolled_draws_a_loop_once(graph: Page, explorer: Explorer) -> None:
    passes = [explorer.op(f"linear_13_70:{index}") for index in (1, 2, 3)]
    assert all(driver.box_of(graph, each) for each in passes)
    graph.get_by_role("button", name="Rolled").click()
    wait_for_place(graph, rolled="1")
    layer = explorer.data["ops"]["layer"][int(passes[0][2:])]
    wait_for_form(graph, f"layer{layer}", "node")
    driver.click(graph, f"layer{layer}")
    expect(details(graph)).to_contain_text("Passes 3")


def test_the_aten_level_opens_operations(graph: Page, explorer: Explorer) -> None:
    conv = explorer.op("conv2d_1_1")
    graph.get_by_role("button", name="ATen", exact=True).click()
    wait_for_place(graph, level="aten")
    graph.get_by_role("button", name="Collapse").click()
    driver.double_click(graph, wait_and_id(graph, conv, "closed"))
    wait_for_form(graph, conv, "open")
    owner = int(conv[2:])
    inside = [index for index, of in enumerate(explorer.data["aten"]["owner"]) if of == owner]
    driver.click(graph, f"aten{inside[0]}")
    expect(details(graph)).to_contain_text("ATen call")
    expect(details(graph)).to_contain_text("aten.convolution.default")
    graph.get_by_role("button", name="ATen", exact=True).click()
    wait_for_form(graph, conv, "node")


@pytest.mark.parametrize(
    ("query", "count", "first"),
    [
        ("softmax_3_44", 1, "softmax_3_44"),  # a lookup key
        ("gelu", 4, "gelu_1_19"),  # an op
        ("2x8x6x6", 2, "conv2d_1_1"),  # a shape, as one types it
        ("(2, 8, 6, 6)", 2, "conv2d_1_1"),  # and as Python shows it
        ("nan", 2, "log_1_74"),  # where NaN was seen
        ("/tanh_1_71:[23]/", 2, "tanh_1_71:2"),
        ("no such thing", 0, None),
    ],
)
def test_search(graph: Page, explorer: Explorer, query: str, count: int, first: str | None) -> None:
    graph.get_by_role("button", name="Fold").click()
    wait_for_place(graph, fold="0")
    graph.keyboard.press("/")
    box = graph.get_by_role("searchbox", name="Search")
    expect(box).to_be_focused()
    box.fill(query)
    expect(graph.get_by_role("search").get_by_role("status")).to_have_text(str(count) if count else "none")
    box.press("Enter")
    if first is None:
        assert "select" not in place_of(graph)
    else:
        wait_for_place(graph, select=explorer.op(first))
        found = seen(graph, explorer.op(first))
        assert 78 < found.top < 768 - found.height


def test_search_reaches_into_folded_blocks(graph: Page, explorer: Explorer) -> None:
    box = graph.get_by_role("searchbox", name="Search")
    box.fill("softmax_3_44")
    box.press("Enter")
    wait_for_place(graph, select=explorer.op("softmax_3_44"))
    assert seen(graph, explorer.op("softmax_3_44")).form == "node"
    assert place_of(graph)["fold"] == "0"


def test_fit_and_zoom_and_pan(graph: Page, explorer: Explorer) -> None:
    graph.get_by_role("button", name="Expand all").click()
    wait_for_form(graph, explorer.call("blocks.0"), "open")
    first, last = explorer.op("input_1_0"), explorer.op("output_1_75")
    assert seen(graph, last).top > 768
    graph.get_by_role("button", name="Fit").click()
    top, bottom = seen(graph, first), seen(graph, last)
    assert top.top > 78
    assert bottom.top + bottom.height < 768
    canvas = graph.locator("canvas[role=application]")
    canvas.focus()
    canvas.press("+")
    assert seen(graph, first).width > top.width * 1.2
    canvas.press("f")
    assert seen(graph, first).width == pytest.approx(top.width)
    graph.mouse.move(300, 400)
    graph.mouse.wheel(0, -300)
    graph.wait_for_function(
        f"(before) => ({driver.PLACE})(before[0]).width > before[1] * 1.2", arg=[[first, 0], top.width]
    )
    before = seen(graph, first)
    graph.mouse.move(100, 300)
    graph.mouse.down()
    graph.mouse.move(180, 340, steps=4)
    graph.mouse.up()
    after = seen(graph, first)
    assert after.left == pytest.approx(before.left + 80, abs=12)
    assert after.top == pytest.approx(before.top + 40, abs=12)


def test_fit_of_a_long_graph_is_its_width_first(graph: Page, explorer: Explorer) -> None:
    graph.set_viewport_size({"width": 1366, "height": 420})
    graph.get_by_role("button", name="Expand all").click()
    wait_for_form(graph, explorer.call("blocks.0"), "open")
    graph.get_by_role("button", name="Fit").click()
    first, last = explorer.op("input_1_0"), explorer.op("output_1_75")
    start = seen(graph, first)
    assert start.top > 78
    assert start.height > 15
    assert seen(graph, last).top > 420
    graph.get_by_role("button", name="Fit").click()
    assert seen(graph, last).top < 420
    assert seen(graph, first).height < start.height / 3
    # Once more: what can be read, about the place looked at.
    canvas = graph.locator("canvas[role=application]")
    for _ in range(3):
        canvas.press("+")
    graph.mouse.move(400, 250)
    graph.mouse.down()
    graph.mouse.move(400, 100)
    graph.mouse.up()
    graph.get_by_role("button", name="Fit").click()
    assert seen(graph, first).height == pytest.approx(start.height)
    assert seen(graph, first).top < -50
    assert seen(graph, last).top > -50


def test_the_minimap_moves_the_view(graph: Page, explorer: Explorer) -> None:
    graph.get_by_role("button", name="Expand all").click()
    wait_for_form(graph, explorer.call("blocks.0"), "open")
    minimap = graph.locator(".minimap canvas")
    area = minimap.bounding_box()
    assert area is not None
    graph.mouse.click(area["x"] + area["width"] / 2, area["y"] + area["height"] - 6)
    assert seen(graph, explorer.op("output_1_75")).top < 768


def test_the_graph_by_keyboard(graph: Page, explorer: Explorer) -> None:
    canvas = graph.locator("canvas[role=application]")
    canvas.focus()
    canvas.press("ArrowDown")
    wait_for_place(graph, select=explorer.op("input_1_0"))
    canvas.press("ArrowDown")
    wait_for_place(graph, select=explorer.op("conv2d_1_1"))
    expect(graph.locator("[aria-live=polite]")).to_contain_text("conv2d_1_1, stem · Conv2d")
    canvas.press("ArrowUp")
    wait_for_place(graph, select=explorer.op("input_1_0"))
    graph.get_by_role("button", name="Collapse").click()
    blocks = explorer.call("blocks")
    wait_for_form(graph, blocks, "closed")
    driver.click(graph, blocks)
    canvas.press("Enter")
    wait_for_form(graph, blocks, "open")
    canvas.press("Shift+Enter")
    wait_for_place(graph, **{"in": blocks})
    canvas.press("Escape")
    wait_for_place(graph, select=None)


@pytest.mark.parametrize("colouring", ["time", "backward", "memory", "params", "flops", "nan", "gradient"])
def test_colours_by_a_metric(graph: Page, explorer: Explorer, colouring: str) -> None:
    canvas = driver.graph_of(graph)
    plain = canvas.screenshot()
    graph.get_by_label("Colour by").select_option(colouring)
    wait_for_place(graph, colour=colouring)
    graph.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert canvas.screenshot() != plain


def test_help_is_a_question_mark_away(graph: Page) -> None:
    graph.keyboard.press("?")
    help_ = graph.get_by_role("dialog", name="Keys")
    expect(help_).to_contain_text("Shift Enter")
    graph.keyboard.press("Escape")
    expect(help_).to_be_hidden()


def test_light_and_dark(graph: Page) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = graph.evaluate(ground)
    pixel = "() => [...document.querySelector('canvas').getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)"
    assert min(graph.evaluate(pixel)) > 200
    graph.get_by_role("button", name="Dark colours").click()
    expect(graph.get_by_role("button", name="Light colours")).to_be_visible()
    assert graph.evaluate(ground) != light
    graph.wait_for_function(f"() => Math.max(...({pixel})()) < 60")
    graph.reload()
    expect(graph.get_by_role("button", name="Light colours")).to_be_visible()
