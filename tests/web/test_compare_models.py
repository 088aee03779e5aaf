"""The page of a comparison of two real models: GPT-2 from its config, and the same with another epsilon in one norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

import torcheer as tl
from tests.web import driver
from tests.web.driver import address, seen
from tests.web.test_states import findings
from torcheer.views import comparison as comparison_view

transformers = pytest.importorskip("transformers")
CULPRIT = "transformer.h.1.ln_1"


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=3, n_embd=32, n_head=2, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def comparison() -> Any:
    reference, port = gpt2(), gpt2()
    port.transformer.h[1].ln_1.eps = 1e-2
    tokens = torch.randint(0, 64, (1, 8), generator=torch.Generator().manual_seed(0))
    return tl.compare(reference, port, tokens)


@pytest.fixture(scope="module")
def server(comparison: Any) -> Iterator[str]:
    with tl.explore(comparison, port=0) as server:
        yield server.address


@pytest.fixture
def compared(page: Page, server: str) -> Page:
    page.goto(address(server))
    for nth in (0, 1):
        driver.graph_of(page, nth)
    return page


def test_the_norm_that_differs_is_in_view_on_both_sides_with_the_values_of_each(
    compared: Page, comparison: Any
) -> None:
    first = comparison.first_divergence
    assert (first.a.module, first.b.module) == (CULPRIT, CULPRIT)
    for nth, place in enumerate((first.a, first.b)):
        expect(compared.locator("section.side").nth(nth).locator("[aria-live=polite]")).to_contain_text(place.op)
        labels = comparison_view.build(comparison)["sides"][nth]["ops"]["label"]
        box = seen(compared, f"op{labels.index(place.op)}", nth)
        assert box.form == "node"
        assert 100 < box.top < 768 - box.height
    panel = compared.get_by_role("complementary", name="What differs")
    heading = panel.get_by_role("heading", level=2)
    expect(heading).to_contain_text(CULPRIT)
    assert len(heading.inner_text()) < 80
    expect(panel).to_contain_text("A has ((32,), 1e-05), B has ((32,), 0.01)")
    for letter, head in zip("AB", first.heads, strict=True):
        side = panel.locator("section").filter(has=compared.get_by_role("heading", name=f"{letter}: "))
        expect(side).to_contain_text(head)
    assert first.heads[0] != first.heads[1]


def test_a_block_before_it_is_not_painted_as_without_counterpart(compared: Page, comparison: Any) -> None:
    for nth in (0, 1):
        found = comparison_view.build(comparison)["sides"][nth]
        calls = {
            found["modules"]["address"][module]: f"call{call}" for call, module in enumerate(found["calls"]["module"])
        }
        assert seen(compared, calls["transformer.h.0"], nth).look == ""
        assert seen(compared, calls["transformer.h.1"], nth).look == "missing"
        assert seen(compared, calls["transformer.h.2"], nth).look != ""
        assert seen(compared, calls["transformer"], nth).look == "missing"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding(page: Page, server: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(address(server))
    driver.graph_of(page, 1)
    expect(page.get_by_role("complementary", name="What differs")).to_contain_text(CULPRIT)
    assert findings(page) == []
