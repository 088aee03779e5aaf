"""The page of a training run: columns of histograms over time, live, with steps, alerts and several runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Locator, Page, Request, expect

import torcheer as tl
from tests.unit.store.make_run import make_run, rows_of, series_of, structure
from tests.web import driver
from tests.web.driver import address, seen, wait_for_place
from tests.web.subjects import Explorer
from torcheer.store import Writer


def column(page: Page, number: int) -> Locator:
    return page.locator(f"[data-column='{number}']")


@pytest.fixture
def run(page: Page, explorer: Explorer) -> Page:
    """The run of 200 steps, with two modules in columns."""
    subject = explorer.subject_of("first")
    page.goto(address(explorer.address, subject=subject, columns="fc1:1||fc2:1"))
    driver.graph_of(page)
    expect(page.get_by_role("figure", name="lr: last value 0.1")).to_be_visible()
    expect(column(page, 2).get_by_role("img", name="Param bias: histogram")).to_be_visible()
    return page


def test_what_is_first_seen(page: Page, explorer: Explorer) -> None:
    page.goto(address(explorer.address, subject=explorer.subject_of("first")))
    driver.graph_of(page)
    expect(page.get_by_text("ended", exact=True)).to_be_visible()
    expect(page.get_by_text("step 199")).to_be_visible()
    expect(column(page, 0).get_by_role("region", name="Module fc1")).to_be_visible()
    expect(page.get_by_role("figure", name="loss: last value 0.1367")).to_be_visible()
    for module in ("fc1:1", "act:1", "fc2:1"):
        assert seen(page, module).form == "node"


def test_a_module_is_dragged_into_a_column(run: Page) -> None:
    start = seen(run, "act:1")
    target = column(run, 1).bounding_box()
    assert target
    run.mouse.move(*start.middle)
    run.mouse.down()
    run.mouse.move(start.middle[0] + 40, start.middle[1] + 10, steps=3)
    run.mouse.move(target["x"] + 60, target["y"] + 60, steps=6)
    expect(run.locator(".column.over")).to_have_attribute("data-column", "1")
    run.mouse.up()
    panel = column(run, 1).get_by_role("region", name="Module act")
    for strip in ("Input 0", "Input 0 grad norm", "Output 0", "Output 0 grad norm"):
        expect(panel.get_by_role("img", name=f"{strip}: histogram over steps 0 to 199")).to_be_visible()
    wait_for_place(run, columns="fc1:1|act:1|fc2:1")
    # Dragged on into another one it leaves the first; × takes it away.
    panel.get_by_role("button", name="Close act").click()
    wait_for_place(run, columns="fc1:1||fc2:1")


def test_keys_put_a_module_into_a_column(run: Page) -> None:
    driver.click(run, "act:1")
    run.keyboard.press("2")
    expect(column(run, 1).get_by_role("region", name="Module act")).to_be_visible()


def test_parameters_and_their_gradients_have_strips(run: Page) -> None:
    panel = column(run, 0).get_by_role("region", name="Module fc1")
    for strip in ("Param weight", "Param bias", "Param weight gradient"):
        expect(panel.get_by_role("img", name=f"{strip}: histogram")).to_be_visible()
    # Values below and above zero: a dashed line at zero.
    expect(panel.locator(".zero").first).to_be_visible()


def test_panel_and_graph_share_a_colour(run: Page) -> None:
    panel = column(run, 0).get_by_role("region", name="Module fc1")
    tint = panel.evaluate("(one) => getComputedStyle(one).borderTopColor")
    box = seen(run, "fc1:1")
    pixels = run.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector('canvas[role=application]');
            const area = canvas.getBoundingClientRect();
            const image = canvas.getContext('2d').getImageData(x - area.left - 6, y - area.top, 12, 1).data;
            return [...Array(12).keys()].map((at) => `rgb(${image.slice(4 * at, 4 * at + 3).join(', ')})`);
        }""",
        [box.left, box.middle[1]],
    )
    assert tint in pixels


def test_strips_show_their_numbers_at_a_step(run: Page) -> None:
    strip = column(run, 0).get_by_role("img", name="Output 0: histogram")
    expect(run.get_by_text("Reading…")).to_have_count(0)  # what is still being read may move what is below it
    strip.hover()  # waits until it has stopped moving
    area = strip.bounding_box()
    assert area
    run.mouse.move(area["x"] + area["width"] / 2, area["y"] + 20)
    # The same step in every strip, with the numbers of make_run.py: mean sin(step / 50) + place / 10.
    expect(run.get_by_text("at 100", exact=True)).to_be_visible()
    expect(column(run, 0).get_by_role("figure").first).to_contain_text("1.309 ± 1.04 · norm 15")
    expect(column(run, 2).get_by_role("figure").first).to_contain_text("norm")
    assert strip.bounding_box() == area, "what is under the pointer must not move away"


def test_the_slider_colours_the_graph_at_a_step(run: Page) -> None:
    canvas = driver.graph_of(run)
    run.get_by_label("Colour by").select_option("output norm")
    wait_for_place(run, heat="output norm")
    expect(run.get_by_label("Colours: output norm")).to_be_visible()
    before = canvas.screenshot()
    with run.expect_response(lambda answer: "/at?step=60" in answer.url):
        run.get_by_role("slider", name="Step").fill("60")
    expect(run.get_by_text("at 60")).to_be_visible()
    expect(column(run, 0).get_by_role("figure").first).to_contain_text("norm 14.6")
    assert before
    run.get_by_role("slider", name="Step").fill("199")
    expect(run.get_by_text("newest")).to_be_visible()


def test_an_alert_leads_to_its_module_and_step(run: Page) -> None:
    run.get_by_text("1 alert").click()
    run.get_by_role("button", name="step 100 · dead").click()
    expect(run.get_by_text("at 100")).to_be_visible()
    expect(column(run, 0).get_by_role("region", name="Module act")).to_be_visible()


def test_another_run_is_laid_over_scalars_and_histograms(run: Page) -> None:
    other = run.get_by_role("button", name="second").last  # the first one leads to its own page
    other.click()
    expect(other).to_have_attribute("aria-pressed", "true")
    run.wait_for_function("() => document.querySelectorAll('.u-wrap').length === 2")
    strip = column(run, 0).get_by_role("img", name="Output 0: histogram over steps 0 to 199")
    expect(strip).to_have_attribute("aria-label", re.compile("over it second$"))
    # Its three lines have the colour of its button; its numbers are those of its last step: sin(119 / 50) + 0.5.
    colour = other.locator(".swatch").evaluate("(one) => getComputedStyle(one).backgroundColor")
    count = """(canvas, colour) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const wanted = colour.match(/\\d+/g).map(Number);
        let count = 0;
        for (let at = 0; at < data.length; at += 4) count += wanted.every((value, i) => data[at + i] === value);
        return count;
    }"""
    run.wait_for_function(
        f"([canvas, colour]) => ({count})(canvas, colour) > 100", arg=[strip.element_handle(), colour]
    )
    figure = column(run, 0).get_by_role("figure").filter(has_text="Output 0").first
    expect(figure.locator(".over")).to_have_text("second1.19 ± 1.05")
    other.click()
    expect(figure.locator(".over")).to_have_count(0)
    assert strip.evaluate(count, colour) == 0


def test_validation_has_its_own_strips(run: Page) -> None:
    run.get_by_label("Lane").select_option("eval")
    wait_for_place(run, lane="eval")
    expect(column(run, 0).get_by_role("img", name="Output 0: histogram")).to_be_visible()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "growing", facts={"name": "growing", "model": "Net", "bins": 30})
    writer.session(0, {"options": {"log_freq": 1}})
    writer.add_structure("", 0, structure())
    yield writer
    writer.close()


def add_steps(writer: Writer, first: int, end: int) -> None:
    series = series_of(writer)
    for step in range(first, end):
        writer.add_scalars(step, {"loss": 1 / (step + 1)})
        writer.add_step(rows_of(series, step))


def test_new_steps_come_by_themselves_and_only_they(page: Page, growing: Writer, tmp_path: Path) -> None:
    add_steps(growing, 0, 100)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    with tl.explore(tmp_path, port=0) as server:
        page.goto(address(server.address, columns="fc1:1||"))
        driver.graph_of(page)
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_text("step 99")).to_be_visible()
        expect(column(page, 0).get_by_role("img", name="Output 0: histogram over steps 0 to 99")).to_be_visible()
        asked.clear()
        add_steps(growing, 100, 103)
        expect(column(page, 0).get_by_role("img", name="Output 0: histogram over steps 0 to 102")).to_be_visible()
        for request in asked:
            if "/series?" in request.url:
                response = request.response()
                assert response
                assert min(min(rows["steps"]) for rows in response.json()["rows"]) >= 100
            assert "/scalars?since=-1" not in request.url
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("paused", exact=True)).to_be_visible()
        asked.clear()
        add_steps(growing, 103, 106)
        page.wait_for_timeout(600)  # three looks of the server: nothing may come of them
        assert not [request.url for request in asked if "/changes" in request.url]
        expect(page.get_by_text("step 102")).to_be_visible()
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_text("step 105")).to_be_visible()
        growing.add_alert(105, "nan", 1, "act:1/output/0 has NaN")
        expect(page.get_by_text("1 alert")).to_be_visible()
        growing.close()
        expect(page.get_by_text("ended", exact=True)).to_be_visible()
        page.goto("about:blank")


TRAINING = """
import sys, time, torch, torcheer as tl
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
tl.watch(model, log_freq=1, backend="store", dir=sys.argv[1], name="training", verbose=False)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for step in range(100_000):
    loss = model(torch.randn(32, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
"""


def test_a_running_training_process_is_followed(page: Page, tmp_path: Path) -> None:
    training = subprocess.Popen([sys.executable, "-c", TRAINING, str(tmp_path)])
    try:
        with tl.explore(tmp_path, port=0) as server:
            page.goto(server.address)
            expect(
                page.get_by_text("There is nothing to show").or_(page.get_by_text("live", exact=True))
            ).to_be_visible()
            # A run that begins after the page was opened is found.
            expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=30_000)
            driver.graph_of(page)
            strip = column(page, 0).get_by_role("img", name="Output 0: histogram over steps")
            expect(strip).to_be_visible()
            first = strip.get_attribute("aria-label")
            expect(strip).not_to_have_attribute("aria-label", first or "")
            assert training.poll() is None
            # The last module's edge leads to the model's output, which has no name of its own.
            driver.click(page, "2:1")
            driver.graph_of(page).press("ArrowDown")
            expect(page.locator("[aria-live=polite]")).to_have_text("output")
            # Killed, it is no longer live: nobody claims what is not so.
            training.kill()
            training.wait()
            expect(page.get_by_text("ended", exact=True)).to_be_visible(timeout=20_000)
            page.goto("about:blank")
    finally:
        training.kill()
        training.wait()


def test_no_connection_is_said(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    make_run(tmp_path / "run", 20)
    request.node.add_marker("page_errors")  # the browser logs that the server is gone
    server = tl.explore(tmp_path / "run", port=0)
    page.goto(server.address)
    driver.graph_of(page)
    server.close()
    expect(page.get_by_text("no connection")).to_be_visible()


# The seed's second snippet, followed by the training that it leaves out.
SNIPPET = """
import sys, time
import torch
from torch import nn
import torcheer as torchexplorer

class AttachModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x):
        x = self.fc1(x)
        x = torchexplorer.attach(x, self, 'intermediate')
        return self.fc2(x)

model = AttachModule()
dummy_X = torch.randn(5, 10)
torchexplorer.watch(model, log_freq=1, backend='standalone', standalone_dir=sys.argv[1])
while True:
    model(dummy_X).sum().backward()
    time.sleep(0.05)
"""


def test_the_seeds_snippet_shows_its_page(page: Page, tmp_path: Path) -> None:
    training = subprocess.Popen(
        [sys.executable, "-c", SNIPPET, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert training.stdout is not None
    try:
        said = ""
        while (found := re.search(r"http://localhost:(\d+)\S*", said)) is None:
            line = training.stdout.readline()
            assert line, said
            said += line
        assert int(found[1]) >= 5000  # the next free one where 5000 is taken
        page.goto(found[0])
        expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=30_000)
        driver.graph_of(page)
        strips = page.get_by_role("img", name="histogram over steps")
        expect(strips.first).to_be_visible()
        first = strips.first.get_attribute("aria-label") or ""
        expect(strips.first).not_to_have_attribute("aria-label", first)  # steps come by themselves
        with urlopen(f"{found[0]}api/subjects/0", timeout=10) as answer:
            series = json.load(answer)["series"]
        assert ("attached", "intermediate") in {(one["kind"], one["path"]) for one in series}
        page.goto("about:blank")
        with urlopen(f"{found[0]}api", timeout=10) as answer:
            assert len(json.load(answer)["subjects"]) == 1
    finally:
        training.kill()
        training.wait()
        training.stdout.close()
        driver.end_servers_of(tmp_path)
