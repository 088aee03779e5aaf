"""The page as one file: opened from disk, framed in a notebook, mailed. It asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playwright.sync_api import FrameLocator, Page, expect
from torch import nn

import torcheer as tl
from tests.web import driver
from tests.web.driver import address, details, seen, wait_for_place
from tests.web.subjects import Explorer, lab
from torcheer.views import page as page_view


@pytest.fixture
def file(history: tl.ModelHistory, tmp_path: Path) -> str:
    path = tmp_path / "lab.html"
    history.draw(path)
    return path.as_uri()


def test_it_opens_from_disk_and_asks_for_nothing(page: Page, file: str, explorer: Explorer) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file)
    driver.graph_of(page)
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert page.title() == "Lab · Run · torcheer"
    assert seen(page, explorer.op("conv2d_1_1")).form == "node"


def test_all_of_it_works_without_a_server(page: Page, file: str, explorer: Explorer) -> None:
    page.goto(address(file, select=explorer.op("conv2d_1_1"), fold="0"))
    driver.graph_of(page)
    panel = details(page)
    expect(panel.get_by_role("heading", name="conv2d_1_1")).to_be_visible()
    expect(panel.get_by_role("img", name="Histogram")).to_be_visible()
    box = page.get_by_role("searchbox", name="Search")
    box.fill("nan")
    box.press("Enter")
    wait_for_place(page, select=explorer.op("log_1_74"))
    for colouring in ("flops", "nan", "gradient"):
        page.get_by_label("Colour by").select_option(colouring)
        wait_for_place(page, colour=colouring)
    page.get_by_role("button", name="ATen", exact=True).click()
    wait_for_place(page, level="aten")
    page.get_by_role("button", name="Ops").click()
    expect(page.get_by_role("region", name="ops, scrollable")).to_be_visible()
    driver.click(page, explorer.call("blocks"))
    details(page).get_by_role("button", name="Enter").click()
    wait_for_place(page, **{"in": explorer.call("blocks")})
    page.go_back()
    wait_for_place(page, **{"in": None})


def test_it_works_in_a_frame_without_an_origin(page: Page, history: tl.ModelHistory, tmp_path: Path) -> None:
    """What Jupyter, Colab and VS Code put the output of a cell into."""
    framed = page_view.framed(history.draw().html)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>A notebook</title><body>{framed}</body>", encoding="utf-8")
    page.goto(notebook.as_uri())
    inside: FrameLocator = page.frame_locator("iframe[title='torcheer explorer']")
    expect(inside.get_by_role("heading", name="Lab")).to_be_visible()
    canvas = inside.locator("canvas[role=application]")
    expect(canvas).to_have_attribute("aria-busy", "false")
    inside.get_by_role("button", name="Expand all").click()
    expect(canvas).to_have_attribute("aria-busy", "false")
    inside.get_by_role("searchbox", name="Search").fill("softmax_1_12")
    inside.get_by_role("searchbox", name="Search").press("Enter")
    expect(inside.get_by_role("heading", name="softmax_1_12")).to_be_visible()


def test_a_profile_as_a_file(page: Page, tmp_path: Path) -> None:
    model, x = lab()
    path = tmp_path / "profile.html"
    tl.profile(model, x, repeats=1).to_html(path)
    page.goto(path.as_uri())
    expect(page.get_by_role("group", name="forward by module")).to_be_visible()
    expect(page.get_by_role("row", name="stem Conv2d")).to_be_visible()


def test_names_from_a_model_are_text(page: Page, tmp_path: Path) -> None:
    """A module may be called anything; the page never takes it for HTML, and the file for its own end."""

    class Evil(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("</script><img src=x onerror=alert(1)>", nn.Linear(4, 4))
            self.add_module("<!--<script>", nn.Linear(4, 4))

        def forward(self, x):
            for module in self.children():
                x = module(x)
            return x

    path = tmp_path / "evil.html"
    tl.log_forward_pass(Evil(), torch.rand(2, 4)).draw(path)
    page.on("dialog", lambda dialog: pytest.fail("a name was run"))
    page.goto(address(path.as_uri(), select="op1", table="modules"))
    driver.graph_of(page)
    expect(details(page)).to_contain_text("</script><img src=x onerror=alert(1)>.weight")
    assert page.locator("img[src=x]").count() == 0


def test_a_comparison_is_called_by_both_models(page: Page, tmp_path: Path) -> None:
    a, b = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
    tl.compare(a, b, torch.ones(1, 2), weights="copy").to_html(tmp_path / "compared.html")
    page.goto((tmp_path / "compared.html").as_uri())
    expect(page.get_by_role("button", name="Comparison Sequential / Linear")).to_be_visible()
    assert page.title() == "Sequential / Linear · Comparison · torcheer"
