"""What the explorer costs, in a real Chromium without a GPU: ``python benchmarks/explorer_cost.py [--json PATH]``.

Every page is opened in a fresh window; the server that answers has not read the recording before, so that reading it
is in the figure. Times inside the page are taken by the page's own clock, from the event to the frame that shows its
effect. The synthetic models are residual blocks of ten operations in boxes of ten blocks (``pictures.py``), every one
of them drawn: equal blocks are not folded.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from typing import Any

from report import conditions, table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SIZE = {"width": 1366, "height": 768}
ROUNDS = 3
PARTS = re.compile("/(changes|series|scalars|subjects/[0-9]+$)")
NOTE_LIVE = "14 strips are looked at; twice the rows of one step, which are"
NUM_LARGE = 6  # of a model of 10,000 operations, which takes seconds for a step
LARGE_COLUMNS = "0.0.first:1,0.0.second:1|50.5.first:1|99.9.second:1"
LARGE_STRIPS = 31  # the first input has no gradient
NUM_STRIPS = "(num) => document.querySelectorAll('canvas[aria-label*=\"histogram over steps\"]').length >= num"
NUM_LIVE = 12  # steps logged while the page is open
# In the page: from an action to the frame after the one that shows it. The worker answers in between.
MEASURE = """
async (action) => {
  const canvas = document.querySelector('canvas[role=application]');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const start = performance.now();
  await new Function('canvas', action)(canvas);
  await new Promise((done) => setTimeout(done, 0));
  while (canvas.ariaBusy !== 'false') await frame();
  await frame();
  await frame();
  return performance.now() - start;
}
"""
KEY = "canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{}', bubbles: true }}))"
BUTTON = "[...document.querySelectorAll('button')].find((one) => one.textContent.trim() === '{}').click()"
CLICK = """
const place = canvas.placeOf('{}');
const [clientX, clientY] = [place.left + place.width / 2, place.top + place.height / 2];
const at = {{ clientX, clientY, bubbles: true, pointerId: 1, button: 0 }};
canvas.setPointerCapture = () => {{}};
canvas.dispatchEvent(new PointerEvent('pointerdown', {{ ...at, buttons: 1 }}));
canvas.dispatchEvent(new PointerEvent('pointerup', at));
"""
SEARCH = """
const field = document.querySelector('input[type=search]');
field.focus();
field.value = '{}';
field.dispatchEvent(new InputEvent('input', {{ bubbles: true }}));
"""
MODULE = "call2"  # a box of ten blocks
FORM = f"() => document.querySelector('canvas[role=application]').placeOf('{MODULE}').form"
# Longest time between two frames while every frame moves or zooms.
FRAMES = """
async (kind) => {
  const canvas = document.querySelector('canvas[role=application]');
  const area = canvas.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const x = area.left + area.width / 2, y = area.top + area.height / 2;
  const longest = [];
  await frame();
  let before = await frame();
  for (let at = 0; at < 60; at++) {
    const down = at < 30 ? 1 : -1;
    canvas.dispatchEvent(new WheelEvent('wheel', { clientX: x, clientY: y, deltaY: down * (kind === 'zoom' ? 60 : 90), shiftKey: kind === 'pan', bubbles: true, cancelable: true }));
    const now = await frame();
    longest.push(now - before);
    before = now;
  }
  return Math.max(...longest);
}
"""  # noqa: E501 - a line of the page's code

WATCH_FRAMES = """() => {
  window.frames_ms = [];
  let before = performance.now();
  const next = (now) => (window.frames_ms.push(now - before), (before = now), requestAnimationFrame(next));
  requestAnimationFrame(next);
}"""
SAYS_STEP = "(step) => document.body.innerText.includes(`step ${step.toLocaleString('en-US')}`)"


@dataclass
class Line:
    """One figure with its bar."""

    what: str
    figure: float
    unit: str  # "s", "ms", "KB", "MB"
    bar: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return "" if self.bar is None else "PASS" if self.figure <= self.bar else "MISS"

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self._text(self.figure),
            "" if self.bar is None else f"≤ {self.bar:g} {self.unit}",
            self.verdict,
            self.note,
        )

    def _text(self, value: float) -> str:
        return f"{value:.2f} {self.unit}" if self.unit in ("s", "MB") else f"{value:.0f} {self.unit}"


class Browser:
    """Windows on explorers that were started for them."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    @contextmanager
    def page(self, paths: list[Path], place: str = "") -> Iterator[Any]:
        from torcheer.api.explore import start_server

        with start_server(paths, port=0) as server, self.window(f"{server.address}{place}") as page:
            yield page

    @contextmanager
    def window(self, address: str) -> Iterator[Any]:
        context = self.browser.new_context(viewport=SIZE)
        page = context.new_page()
        page.goto(address, wait_until="commit")
        page.wait_for_function("() => performance.getEntriesByName('torcheer:drawn').length", timeout=120_000)
        yield page
        context.close()


def recording(name: str, folder: Path) -> Path:
    """Record a model in a process of its own."""
    path = folder / f"{name.replace(' ', '')}.tch"
    if path.exists():
        return path
    code = f"import pictures; pictures.history_of({name!r}).save({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
    return path


def drawn_s(page: Any) -> float:
    found: float = page.evaluate("() => performance.getEntriesByName('torcheer:drawn')[0].startTime")
    return found / 1000


def first_picture(browser: Browser, path: Path, what: str, bar: float) -> Line:
    seconds = []
    for _ in range(ROUNDS):
        with browser.page([path]) as page:
            seconds.append(drawn_s(page))
    return Line(f"first picture: {what}", median(seconds), "s", bar, f"of {ROUNDS}: {_listed(seconds)}")


def expand_all(browser: Browser, path: Path, num_ops: int, bar: float) -> Line:
    seconds = []
    for _ in range(ROUNDS):
        with browser.page([path], "#fold=0") as page:
            page.wait_for_timeout(300)  # figures are read meanwhile
            seconds.append(page.evaluate(MEASURE, BUTTON.format("Expand all")) / 1000)
            last = f"document.querySelector('canvas[role=application]').placeOf('op{num_ops - 1}').form"
            assert page.evaluate(f"() => {last}") == "node", "not everything is open"
    return Line(f"expand all: {num_ops:,} ops", median(seconds), "s", bar, f"of {ROUNDS}: {_listed(seconds)}")


def interactions(browser: Browser, path: Path) -> list[Line]:
    """On 10,000 ops that are all open."""
    timed: dict[str, list[float]] = {name: [] for name in ("select", "collapse", "expand", "search")}
    lines = []
    with browser.page([path], "#fold=0&open=all") as page:
        page.wait_for_timeout(500)  # figures are read meanwhile
        for op in ("op2", "op3", "op4"):
            timed["select"].append(page.evaluate(MEASURE, CLICK.format(op)))
        heading = CLICK.replace("place.height / 2", "8").replace("place.width / 2", "9")
        page.evaluate(MEASURE, heading.format(MODULE))
        for _ in range(ROUNDS):
            for name, form in (("collapse", "closed"), ("expand", "open")):
                timed[name].append(page.evaluate(MEASURE, KEY.format("Enter")))
                assert page.evaluate(FORM) == form, "the key did not do it"
        for text in ("tanh", "linear_77", "block 2×4"):
            timed["search"].append(page.evaluate(MEASURE, SEARCH.format(text)))
        for where, key in (("close by", "+"), ("all of it in view", "f")):
            page.evaluate(MEASURE, KEY.format(key))
            if key == "f":  # of a long graph, the first fit shows what is looked at
                page.evaluate(MEASURE, KEY.format(key))
            for kind in ("pan", "zoom"):
                frame = page.evaluate(FRAMES, kind)
                lines.append(Line(f"{kind}, 10,000 ops open, {where}", frame, "ms", 50, "longest frame"))
    found = timed.items()
    return [
        Line(f"{name}, 10,000 ops open", max(ms), "ms", 150, f"worst of {_listed(ms)}") for name, ms in found
    ] + lines


def code_size() -> Line:
    built = ROOT / "src" / "torcheer" / "views" / "built"
    sizes = {name: len(gzip.compress((built / name).read_bytes(), 9)) for name in ("page.js", "page.css", "worker.js")}
    note = ", ".join(f"{name} {size / 1000:.0f}" for name, size in sizes.items())
    return Line("all code of the page, gzipped", sum(sizes.values()) / 1000, "KB", 150, note)


def one_file(browser: Browser, folder: Path) -> list[Line]:
    path = folder / "gpt2.html"
    code = f"import pictures; pictures.history_of('gpt2').draw({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
    with browser.window(path.as_uri()) as page:
        seconds = drawn_s(page)
    return [
        Line("one HTML file: GPT-2", path.stat().st_size / 1e6, "MB", 1, "structure, FLOPs; opened from disk"),
        Line("opened from disk: GPT-2", seconds, "s"),
    ]


def static_pictures() -> list[Line]:
    """``benchmarks/pictures.py`` measures more of them."""
    lines = []
    for name in ("gpt2", "resnet50"):
        command = [sys.executable, "pictures.py", "--row", json.dumps([name, "svg", False])]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent).stdout
        lines.append(Line(f"SVG from Python, first call: {name}", json.loads(said)["first"], "s", 1.5))
    return lines


def live(browser: Browser, folder: Path, num_before: int) -> list[Line]:
    """From a step handed to the store to the page that says so, and what comes over the wire for it."""
    from tests.unit.store.make_run import rows_of, series_of, structure
    from torcheer.store import Run, Writer
    from torcheer.views import watch as watch_view
    from torcheer.views.page import encoded

    path = folder / f"run{num_before}"
    writer = Writer(path, facts={"name": "run", "model": "Net", "bins": 30})
    writer.session(0, {"options": {"log_freq": 1}})
    writer.add_structure("", 0, structure())
    series = series_of(writer)

    def log(step: int) -> None:
        writer.add_scalars(step, {"loss": 1 / (step + 1), "accuracy": 1 - 1 / (step + 2), "lr": 0.1})
        writer.add_step(rows_of(series, step))

    for step in range(num_before):
        log(step)
    sizes: list[int] = []
    seconds = []
    with browser.page([path]) as page:
        page.wait_for_selector(f"[aria-label*='histogram over steps 0 to {num_before - 1}, from']")
        shown_s = page.evaluate("() => performance.now()") / 1000
        page.wait_for_timeout(300)
        page.on("response", lambda answer: sizes.append(len(answer.body())) if PARTS.search(answer.url) else None)
        page.evaluate(WATCH_FRAMES)
        for step in range(num_before, num_before + NUM_LIVE):
            start = time.perf_counter()
            log(step)
            page.wait_for_function(SAYS_STEP, arg=step)
            seconds.append(time.perf_counter() - start)
        page.wait_for_timeout(300)
        frame = page.evaluate("() => Math.max(...window.frames_ms)")
    writer.close()
    # The rows of this step as JSON: what is new and looked at.
    with Run.open(path) as run:
        shown = [one.id for one in run.series if one.module in ("fc1", "fc2") and one.lane == "train"]
        new = sum(len(encoded(watch_view.rows_of(run, one, num_before - 1 + NUM_LIVE))) for one in shown)
    after = f"after {num_before:,} steps"
    return [
        Line(f"a run's histograms on screen, {after}", shown_s, "s", None, "from opening the page"),
        Line(f"live, {after}: longest frame", frame, "ms", 50, f"while {NUM_LIVE} steps came"),
        Line(
            f"live, {after}: a logged step on screen",
            max(seconds),
            "s",
            1,
            f"worst of {NUM_LIVE}; median {median(seconds):.2f} s",
        ),
        Line(
            f"live, {after}: traffic of an update",
            sum(sizes) / NUM_LIVE / 1000,
            "KB",
            2 * new / 1000,
            f"{NOTE_LIVE} {new / 1000:.1f} KB",
        ),
    ]


def live_large(browser: Browser, folder: Path) -> list[Line]:
    """A model of 10,000 operations while it trains, everything logged: 3,100 modules, 20,400 series."""
    from torcheer.store import Run

    trainer = [sys.executable, str(Path(__file__).with_name("train_large.py")), str(folder / "large"), str(NUM_LARGE)]
    with subprocess.Popen(trainer, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        path = Path(training.stdout.readline().strip())  # said once a step is written
        with Run.open(path) as run, browser.page([path], f"#columns={LARGE_COLUMNS}&heat=output+norm") as page:
            page.wait_for_function(NUM_STRIPS, arg=LARGE_STRIPS)
            shown_s = page.evaluate("() => performance.now()") / 1000
            page.wait_for_timeout(500)
            page.evaluate(WATCH_FRAMES)
            seconds = []
            last = run.last_step or 0
            while training.poll() is None and len(seconds) < NUM_LARGE:
                if (run.last_step or 0) == last:
                    time.sleep(0.01)
                    continue
                start, last = time.perf_counter(), run.last_step or 0
                page.wait_for_function(SAYS_STEP, arg=last)
                seconds.append(time.perf_counter() - start)
            frame = page.evaluate("() => Math.max(...window.frames_ms)")
            dragged = page.evaluate(FRAMES, "pan")
        training.terminate()
    note = f"worst of {len(seconds)}; median {median(seconds):.2f} s"
    return [
        Line("watching a model of 10,000 ops: histograms on screen", shown_s, "s", None, "while it trains"),
        Line("watching 10,000 ops: a written step on screen", max(seconds), "s", 1, note),
        Line("watching 10,000 ops: longest frame", frame, "ms", 50, f"while {len(seconds)} steps came"),
        Line("watching 10,000 ops: longest frame of a pan", dragged, "ms", 50, "while it trains"),
    ]


def footprint() -> Line:
    """What is installed beside torch and numpy: the files of every package that torcheer needs and torch does not."""
    own = _needed("torcheer", set()) - _needed("torch", set()) - _needed("numpy", set()) - {"torcheer"}
    sizes = {name: _installed_bytes(distribution(name)) for name in own}
    package = [
        path for path in (ROOT / "src" / "torcheer").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    sizes["torcheer"] = sum(path.stat().st_size for path in package if "ui" not in path.relative_to(ROOT).parts)
    largest = sorted(sizes.items(), key=lambda pair: -pair[1])[:4]
    note = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in largest)
    return Line(
        "installed beside torch and numpy", sum(sizes.values()) / 1e6, "MB", 40, f"{len(sizes)} packages; {note}"
    )


def _needed(name: str, known: set[str]) -> set[str]:
    from packaging.requirements import Requirement

    try:
        wanted = distribution(name).requires or []
    except PackageNotFoundError:
        return known
    known.add(name.lower())
    for text in wanted:
        requirement = Requirement(text)
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and requirement.name.lower() not in known:
            _needed(requirement.name, known)
    return known


def _installed_bytes(found: Distribution) -> int:
    paths = [Path(str(found.locate_file(file))) for file in found.files or () if "__pycache__" not in str(file)]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in values)


def measure(folder: Path, recordings: Path, rows: set[str]) -> Iterator[Line]:
    from playwright.sync_api import sync_playwright

    from tools.get_chromium import chromium

    def wanted(name: str) -> bool:
        return not rows or name in rows

    with sync_playwright() as playwright:
        browser = Browser(playwright.chromium.launch(executable_path=chromium(), args=FLAGS))
        if wanted("first"):
            yield first_picture(browser, recording("gpt2", recordings), "GPT-2", 1)
        if wanted("first") or wanted("use"):
            blocks = recording("blocks 10000", recordings)
        if wanted("first"):
            yield first_picture(browser, blocks, "10,000 ops", 1.5)
        if wanted("expand"):
            for num_ops, bar in ((2_000, 0.5), (10_000, 1.5), (50_000, 5)):
                yield expand_all(browser, recording(f"blocks {num_ops}", recordings), num_ops, bar)
        if wanted("use"):
            yield from interactions(browser, blocks)
        if wanted("file"):
            yield from one_file(browser, folder)
        if wanted("live"):
            yield from live(browser, folder, 400)
        if wanted("long"):
            yield from live(browser, folder, 100_000)
        if wanted("large"):
            yield from live_large(browser, folder)
    if wanted("svg"):
        yield from static_pictures()
    if wanted("size"):
        yield code_size()
        yield footprint()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write everything that was measured there")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument(
        "--rows",
        default="",
        help="only some of: first, expand, use, file, live, long, large, svg, size",
    )
    parser.add_argument("--recordings", type=Path, help="keep what is recorded there, and use it the next time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recordings = given.recordings or Path(folder)
        lines = list(measure(Path(folder), recordings, set(filter(None, given.rows.split(",")))))
    under = conditions()
    print("; ".join(f"{name} {value}" for name, value in under.items()), end="\n\n")
    print(table(("what", "figure", "bar", "", "note"), [line.cells() for line in lines], num_left=1))
    judged = [line for line in lines if line.verdict]
    held = sum(line.verdict == "PASS" for line in judged)
    print(f"\n{held} of {len(judged)} bars held.")
    if given.json:
        rows = [{**asdict(line), "verdict": line.verdict} for line in lines]
        given.json.write_text(json.dumps({"conditions": under, "lines": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if given.check and held < len(judged) else 0


if __name__ == "__main__":
    sys.exit(main())
