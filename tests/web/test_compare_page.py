"""The page of a comparison: two graphs that move and select together, and the first place where they part in view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import torcheer as tl
from tests.web import driver
from tests.web.driver import address, seen
from tests.web.subjects import heads
from torcheer.views import history as history_view
from torcheer.views import page as page_view


def comparison() -> dict[str, Any]:
    """What `views/comparison.py` writes of two models whose second gelu differs, the one with a step more."""
    model_a, model_b, x = heads()
    histories = [tl.log_forward_pass(model, x) for model in (model_a, model_b)]
    labels = [[op.label for op in history] for history in histories]
    place = {
        "function": "torch.nn.functional.gelu",
        "aten": "gelu",
        "module": "",
        "module_type": "Head",
        "frame": {"file": "net.py", "line": 12, "function": "forward", "text": "x = F.gelu(self.second(x))"},
        "stack": [
            {"file": "train.py", "line": 3, "function": "main", "text": "model(x)"},
            {"file": "net.py", "line": 12, "function": "forward", "text": "x = F.gelu(self.second(x))"},
        ],
        "params": [],
        "arguments": "approximate='none'",
    }
    values = [history["gelu_2_4"].tensor_contents.reshape(-1) for history in histories]
    at = int((values[0] - values[1]).abs().argmax())
    distance = {
        "num_elements": 32,
        "num_mismatched": 32,
        "max_abs": (values[0] - values[1]).abs().max().item(),
        "max_rel": 0.01,
        "rms_rel": 0.001,
        "largest_at": [at // 8, at % 8],
        "value_a": values[0][at].item(),
        "value_b": values[1][at].item(),
    }
    first = {
        "kind": "op",
        "headline": "gelu_2_4 makes other values of the same inputs",
        "a": {**place, "op": "gelu_2_4"},
        "b": {**place, "op": "gelu_2_4", "arguments": "approximate='tanh'"},
        "distance": distance,
        "heads": ["tensor([0.1, …])", "tensor([0.2, …])"],
        "confirmed": "B's op, given A's inputs, makes other values too.",
    }
    same_numbers = {"distance": {**distance, "num_mismatched": 0, "max_abs": 1e-7, "max_rel": 1e-7}}
    same = [("input_1_0", 0.0), ("linear_1_1", 0.0), ("gelu_1_2", 1e-7), ("linear_2_3", 1e-8)]
    return {
        "kind": "comparison",
        "names": ["reference", "port"],
        "verdict": "diverged",
        "reasons": [],
        "first_divergence": first,
        "candidates": [],
        "outputs": [
            {"path_a": "", "path_b": "", "verdict": "diverged", "distance": distance, "tolerance": 0, "reason": ""},
            {**same_numbers, "path_a": "hidden", "path_b": "state", "verdict": "equal", "tolerance": 0, "reason": ""},
        ],
        "gradients": [],
        "matches": [{"a": label, "b": label, "error": error, "layout": ""} for label, error in same],
        "notes": [],
        "num_ops": [len(labels[0]), len(labels[1])],
        "num_matched": [4, 4],
        "sides": [history_view.build(history) for history in histories],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("comparison") / "compared.json"
    path.write_bytes(page_view.encoded({"kind": "comparison", "title": "reference / port", "data": comparison()}))
    from torcheer.api.explore import start_server

    with start_server([Path(path)], port=0) as server:
        yield server.address


@pytest.fixture
def compared(page: Page, server: str) -> Page:
    page.goto(address(server))
    driver.graph_of(page, 0)
    driver.graph_of(page, 1)
    return page


def side(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=f"Graph of {name}")


def selected(page: Page, name: str) -> Locator:
    return side(page, name).locator("[aria-live=polite]")


def test_the_first_divergence_is_in_view_on_both_sides(compared: Page) -> None:
    expect(compared.get_by_text("diverged", exact=True).first).to_be_visible()
    for nth, name in enumerate(("reference", "port")):
        expect(selected(compared, name)).to_contain_text("gelu_2_4")
        box = seen(compared, "op4", nth)
        assert 115 < box.top < 768 - box.height
    panel = compared.get_by_role("complementary", name="What differs")
    for text in (
        "gelu_2_4 makes other values of the same inputs",
        "32 of 32 numbers differ",
        "B's op, given A's inputs, makes other values too.",
        "approximate='none'",
        "approximate='tanh'",
        "net.py:12 in forward",
        "x = F.gelu(self.second(x))",
        "tensor([0.1, …])",
        "tensor([0.2, …])",
    ):
        expect(panel).to_contain_text(text)
    expect(panel.get_by_role("row", name="hidden (B's state) equal 32 numbers agree to within 1.00e-7")).to_be_visible()
    panel.get_by_text("Stack 2").first.click()
    expect(panel).to_contain_text("train.py:3 in main")


def test_what_is_selected_on_one_side_is_on_the_other(compared: Page) -> None:
    side(compared, "port").hover()
    driver.click(compared, "op2", 1)
    expect(selected(compared, "port")).to_contain_text("gelu_1_2")
    expect(selected(compared, "reference")).to_contain_text("gelu_1_2")
    side(compared, "reference").hover()
    driver.click(compared, "op3", 0)
    expect(selected(compared, "port")).to_contain_text("linear_2_3")
    # What has no counterpart selects nothing there.
    side(compared, "port").hover()
    driver.click(compared, "op5", 1)
    expect(selected(compared, "port")).to_contain_text("mul_1_5")
    expect(selected(compared, "reference")).to_have_text("")
    compared.get_by_role("button", name="First divergence").click()
    expect(selected(compared, "reference")).to_contain_text("gelu_2_4")


def test_both_graphs_move_together_until_let_go(compared: Page) -> None:
    def drag() -> tuple[float, float]:
        before = [seen(compared, "op1", nth).top for nth in (0, 1)]
        compared.mouse.move(60, 500)
        compared.mouse.down()
        compared.mouse.move(60, 560, steps=4)
        compared.mouse.up()
        first, second = (seen(compared, "op1", nth).top - before[nth] for nth in (0, 1))
        return first, second

    assert drag() == pytest.approx((60, 60), abs=2)
    compared.get_by_role("button", name="Move together").click()
    moved, still = drag()
    assert moved == pytest.approx(60, abs=2)
    assert still == 0


def test_colours_say_what_has_no_counterpart_and_what_differs(compared: Page) -> None:
    fill = """([x, y, nth]) => {
        const canvas = document.querySelectorAll('canvas[role=application]')[nth];
        const area = canvas.getBoundingClientRect();
        return [...canvas.getContext('2d').getImageData(x - area.left, y - area.top, 1, 1).data].slice(0, 3);
    }"""

    def colour(item: str, nth: int) -> list[int]:
        box = driver.on_screen(compared, item, nth)
        found: list[int] = compared.evaluate(fill, [box.left + 8, box.top + box.height - 6, nth])
        return found

    matched, differing, unmatched = colour("op2", 0), colour("op4", 0), colour("op5", 1)
    assert len({tuple(each) for each in (matched, differing, unmatched)}) == 3
    assert differing[0] > differing[2] + 15
    assert colour("op6", 0) == matched  # an output: red would say that it differs
    compared.get_by_role("button", name="By difference").click()
    expect(compared.get_by_label("Colours: difference")).to_be_visible()
    driver.wait_for_place(compared, colour="difference")
    hot, warm, cold = colour("op4", 0), colour("op2", 0), colour("op1", 0)
    assert sum(hot) < sum(warm) < sum(cold)


def test_search_has_its_own_field_on_each_side(compared: Page) -> None:
    field = side(compared, "port").get_by_role("searchbox")
    field.fill("linear")
    field.press("Enter")
    expect(selected(compared, "port")).to_contain_text("linear_1_1")
    compared.keyboard.press("Escape")
    compared.keyboard.press("/")
    expect(side(compared, "reference").get_by_role("searchbox")).to_be_focused()
