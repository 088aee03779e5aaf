"""TorchExplorer's first example in a browser, and what its README promises of the page, sentence by sentence.

The example runs as it is written, in a process of its own that ends: its page stays. What is dragged, drawn and
followed live is in test_watch_page.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conformance.test_torchexplorer_seed import STRUCTURE
from tests.web import driver
from tests.web.conftest import SIZE
from tests.web.driver import seen, wait_for_form

# torcheer under the seed's name, and a stand-in for torchvision with the same network.
STAND_INS = """
import sys, types
import torcheer
from benchmarks.watch_models import ResNet18
sys.modules["torchexplorer"] = torcheer
torchvision = sys.modules["torchvision"] = types.ModuleType("torchvision")
torchvision.models = types.SimpleNamespace(resnet18=lambda pretrained: ResNet18())
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("seed")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{STAND_INS}{STRUCTURE}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    try:
        assert done.returncode == 0, done.stderr
        found = re.search(r"watch it at (http://localhost:\d+/)", done.stdout)
        assert found is not None, done.stdout
        yield found[1]
    finally:
        driver.end_servers_of(folder)


@pytest.fixture(scope="module")
def shown(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport=SIZE, color_scheme="light")
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address)
    driver.graph_of(page)
    yield page
    context.close()
    assert faults == []


def test_your_model_will_be_available_at_localhost(shown: Page) -> None:
    expect(shown.get_by_text("ended", exact=True)).to_be_visible()
    expect(shown.get_by_text("step 0", exact=True)).to_be_visible()


def test_a_node_is_a_placeholder_or_an_invocation_of_a_submodule(shown: Page) -> None:
    for item in ("input:0", "conv1:1", "bn1:1", "blocks.0:1", "fc:1"):
        assert seen(shown, item).width > 20, item
    if seen(shown, "blocks.0:1").form == "closed":
        driver.double_click(shown, "blocks.0:1")
    wait_for_form(shown, "blocks.0:1", "open")
    # Called twice in one forward pass it is two nodes, with histograms of their own.
    assert seen(shown, "blocks.0.relu:1") != seen(shown, "blocks.0.relu:2")


def test_mousing_over_a_node_reveals_shapes_and_module_parameters(shown: Page) -> None:
    shown.mouse.move(*driver.on_screen(shown, "conv1:1").middle)
    tip = shown.locator(".tip")
    expect(tip).to_contain_text("input 0: 5×3×32×32")
    expect(tip).to_contain_text("output: 5×64×32×32")
    expect(tip).to_contain_text("kernel_size: (3, 3)")
    expect(tip).to_contain_text("- 64")
    shown.mouse.move(5, 400)


def test_only_inputs_outputs_and_parameters_are_logged(shown: Page) -> None:
    panel = shown.get_by_role("region", name="Module conv1")
    if not panel.is_visible():
        driver.click(shown, "conv1:1")
        shown.keyboard.press("1")
    for strip in ("Input 0", "Output 0", "Param weight"):
        expect(panel.get_by_role("img", name=f"{strip}: histogram over steps 0 to 1")).to_be_visible()
    expect(panel.get_by_role("img", name="grad")).to_have_count(0)


def test_the_top_left_list_leads_back_from_internal_submodules(shown: Page) -> None:
    driver.click_heading(shown, "blocks.0:1")
    driver.graph_of(shown).press("Shift+Enter")
    shown.wait_for_function(f"() => ({driver.PLACE})(['fc:1', 0]) === null")
    assert seen(shown, "blocks.0.conv1:1").width > 20
    shown.get_by_role("navigation", name="Path").get_by_role("button").first.click()
    shown.wait_for_function(f"() => ({driver.PLACE})(['fc:1', 0]) !== null")
