"""Takes the documentation's pictures of the explorer again: ``python tools/take_screenshots.py [FOLDER]``.

What they show is recorded here, on the models of ``examples``: a run, a profile, a comparison with a planted mistake
and two training runs. Times differ from one taking to the next, so nothing compares them; take them when the page has
changed, and look at them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import torcheer as tl

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
COLUMNS = "stem:1|blocks.0.conv1:1|head:1"
# name of the picture: the subject's kind, its place, and what is clicked
PICTURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "explorer-graph": ("history", "colour=time&select=op4", ()),
    "explorer-profile": ("profile", "", ()),
    "explorer-compare": ("comparison", "", ()),
    "explorer-training": (
        "watch",
        "columns=stem:1|blocks.0.conv1:1|head:1&heat=output+norm",
        ('.bar button[title^="Lay"]',),
    ),
}


def example(name: str) -> types.ModuleType:
    """Run a file of the examples under a name that is the same on every machine: comparisons show where code is."""
    place = f"examples/{name}.py"
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile((ROOT / place).read_text(encoding="utf-8"), place, "exec"), vars(module))
    return module


def trained(folder: Path, demo: dict[str, Any], name: str, rate: float) -> None:
    torch.manual_seed(0)
    model = demo["ResidualNet"]()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with tl.watch(model, log_freq=1, backend="store", dir=folder, name=name, verbose=False) as watching:
        for _ in range(120):
            images, labels = torch.rand(16, 3, 16, 16), torch.randint(10, (16,))
            images += labels[:, None, None, None] / 10
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            watching.log(loss=loss)


def things(folder: Path) -> list[Any]:
    """Record all that is shown."""
    example("models")
    demo = vars(example("demo"))
    torch.manual_seed(0)
    model = demo["ResidualNet"]()
    images, labels = torch.rand(4, 3, 16, 16), torch.randint(10, (4,))
    tl.log_forward_pass(model, images)  # once before: the first convolution of a process is slow
    history = tl.log_forward_pass(model, images)
    history.log_backward(functional.cross_entropy(history.output, labels))
    profile = tl.profile(model, images, backward=True, repeats=3)
    trained(folder, demo, "lr 1e-2", 1e-2)
    trained(folder, demo, "lr 1e-3", 1e-3)
    model.eval()
    diff = tl.compare(model, demo["Rewritten"](model, residual_first=False).eval(), images)
    return [history, profile, diff, folder]


def main() -> None:
    from playwright.sync_api import ViewportSize, sync_playwright

    sys.path.insert(0, str(ROOT))
    from tools.get_chromium import chromium

    target = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    os.chdir(ROOT)  # files are named from here in the pictures
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        with tl.explore(*things(Path(folder)), port=0) as server:
            page = browser.new_page(viewport=ViewportSize(width=1366, height=768), color_scheme="light")
            page.goto(server.address)
            subjects = page.evaluate("() => fetch('api').then((answer) => answer.json())")["subjects"]
            for name, (kind, place, clicks) in PICTURES.items():
                number = [one["id"] for one in subjects if one["kind"] == kind][-1]
                page.goto("about:blank")
                page.goto(f"{server.address}#subject={number}&{place}")
                page.wait_for_selector("main > .page")
                for button in clicks:
                    page.locator(button).first.click()
                page.wait_for_timeout(2500)  # figures, strips and pictures of tensors are read after the first frame
                page.screenshot(path=target / f"{name}.png")
                print(f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
