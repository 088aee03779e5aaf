"""The page in a real Chromium: one browser and one server for all tests, a fresh window for each.

A test fails when the page logs an error, and when it asks anything of another host than the one it came from.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

import torcheer as tl
from tests.unit.store.make_run import make_run
from tests.web.subjects import Explorer, lab
from tools.get_chromium import chromium
from torcheer.views import history as history_view

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SIZE = {"width": 1366, "height": 768}
WAIT_MS = 10_000
LOCAL = ("http://localhost:", "http://127.0.0.1:", "file:", "data:", "blob:", "about:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def history() -> tl.ModelHistory:
    model, x = lab()
    history = tl.log_forward_pass(model, x)
    history.log_backward(history.output[0].square().mean())
    return history


@pytest.fixture(scope="session")
def explorer(history: tl.ModelHistory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    """A server that shows one thing of each kind."""
    model, x = lab()
    folder = tmp_path_factory.mktemp("shown")
    profile = tl.profile(model, x, loss=lambda output: output[0].square().mean(), backward=True, repeats=1)
    make_run(folder / "runs" / "first", 200)
    make_run(folder / "runs" / "second", 120)
    with tl.explore(history, profile, folder / "runs", port=0) as server:
        yield Explorer(server.address, history_view.build(history))


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window of a laptop's size. ``@pytest.mark.page_errors``: in this test the page may log errors."""
    context = browser.new_context(viewport=SIZE, color_scheme="light")
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    faults: list[str] = []

    def on_console(said: ConsoleMessage) -> None:
        if said.type == "error":
            faults.append(f"logged: {said.text}")

    def on_request(asked: Request) -> None:
        if not asked.url.startswith(LOCAL):
            faults.append(f"asked: {asked.url}")

    page.on("pageerror", lambda error: faults.append(f"raised: {error}"))
    page.on("console", on_console)
    context.on("request", on_request)
    yield page
    context.close()
    if request.node.get_closest_marker("page_errors") is None:
        assert faults == []
