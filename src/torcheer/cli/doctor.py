"""examples:
  torcheer doctor
  torcheer doctor --json | jq '.result.checks[] | select(.state != "ok")'

result: checks, a list of {name, state, found, remedy}; state is "ok", "absent" (an extra that nobody
needs who does not use it) or "broken" (exit code 1)
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from pathlib import Path

from torcheer import __version__
from torcheer.cli.answer import DIFFERENT, DONE, Answer
from torcheer.cli.progress import progress
from torcheer.errors import TorcheerError

OK, ABSENT, BROKEN = "ok", "absent", "broken"
MARKS = {OK: "✓", ABSENT: "·", BROKEN: "✗"}
# What each extra brings, by the module that shows it is there.
EXTRAS = {
    "lightning": "lightning",
    "onnx": "onnx",
    "paddle": "paddle",
    "pandas": "pandas",
    "parquet": "pyarrow",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}
PURPOSES = {
    "lightning": "the callback for Lightning",
    "onnx": "comparing exported models",
    "paddle": "recording and comparing Paddle layers",
    "pandas": "history.to_dataframe()",
    "parquet": "export to .parquet",
    "tensorboard": "tl.watch(backend='tensorboard')",
    "wandb": "tl.watch(backend='wandb')",
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: str
    found: str
    remedy: str = ""  # how to mend it; empty where all is well


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not import torch, and run nothing")


def run(given: argparse.Namespace) -> Answer:
    groups: list[Callable[[], Iterator[Check]]] = [_python, _extras, _page, _writing]
    groups += [] if given.quick else [_torch, _engine]
    checks: list[Check] = []
    with progress(len(groups)) as step:
        for group in groups:
            step(group.__name__.strip("_"))
            checks += group()
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{MARKS[check.state]} {check.name:<{width}}  {check.found}")
        lines += [f"  {'':<{width}}  → {check.remedy}"] if check.remedy else []
    broken = sum(check.state == BROKEN for check in checks)
    lines.append("\nAll well." if not broken else f"\n{broken} of {len(checks)} must be mended: see → above.")
    code = DIFFERENT if broken else DONE
    return Answer("\n".join(lines), {"checks": [asdict(check) for check in checks]}, code=code)


def _python() -> Iterator[Check]:
    yield Check("torcheer", OK, f"{__version__} in {Path(__file__).parents[1]}")
    where = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    old = sys.version_info < (3, 10)
    yield Check("Python", BROKEN if old else OK, where, "Use Python 3.10 or newer." if old else "")
    for package in _required():
        found = _version(package)
        if found is None:
            yield Check(package, BROKEN, "not installed", f"pip install {package}")
        elif package != "torch":
            yield Check(package, OK, found)


def _required() -> list[str]:
    """What torcheer itself depends on, by its own metadata."""
    try:
        lines = metadata("torcheer").get_all("Requires-Dist") or []
    except PackageNotFoundError:  # run from its sources
        lines = []
    return [line.split(";")[0].split(">")[0].split("=")[0].strip() for line in lines if "extra ==" not in line]


def _extras() -> Iterator[Check]:
    for extra, module in EXTRAS.items():
        found = _version("paddlepaddle" if module == "paddle" else module)
        if find_spec(module) is None:
            remedy = f"for {PURPOSES[extra]}: pip install 'torcheer[{extra}]'"
            yield Check(f"extra {extra}", ABSENT, "not installed", remedy)
        else:
            yield Check(f"extra {extra}", OK, f"{module} {found or ''}".strip())


def _page() -> Iterator[Check]:
    # It loads the views.
    from torcheer.views.page import BUILT, asset

    try:
        size = sum(len(asset(name)) for name in ("page.js", "page.css", "worker.js"))
    except TorcheerError as error:
        yield Check("explorer's page", BROKEN, "not built", str(error).rpartition(": ")[2])
    else:
        yield Check("explorer's page", OK, f"built, {size // 1024} KiB in {BUILT}")


def _writing() -> Iterator[Check]:
    for name, folder in (("this folder", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"torcheer")
        except OSError as error:
            yield Check(name, BROKEN, f"{folder} cannot be written: {error.strerror}", "Work where you may write.")
        else:
            yield Check(name, OK, f"{folder} can be written")


def _torch() -> Iterator[Check]:
    if find_spec("torch") is None:
        yield Check("torch", BROKEN, "not installed", "pip install torch: needed to run models, not to read recordings")
        return
    # torch, by way of the api.
    from torcheer.api.health import devices, missing_private_names, torch_version

    try:
        found = torch_version()
    except (ImportError, OSError) as error:
        yield Check(
            "torch", BROKEN, f"cannot be imported: {error}", "Install it again: pip install --force-reinstall torch"
        )
        return
    is_old = tuple(int(part) for part in found.split("+")[0].split(".")[:2]) < (2, 6)
    yield Check("torch", BROKEN if is_old else OK, found, "pip install 'torch>=2.6'" if is_old else "")
    missing = missing_private_names()
    yield Check(
        "torch's private names",
        BROKEN if missing else OK,
        f"missing: {', '.join(missing)}" if missing else "all there",
        "This torch is newer than this torcheer: upgrade torcheer, or take the torch it was tested with."
        if missing
        else "",
    )
    yield from (Check("device", OK, device) for device in devices())


def _engine() -> Iterator[Check]:
    if find_spec("torch") is None:
        return
    # As above.
    from torcheer.api.health import self_test

    for name, problem in self_test():
        yield Check(
            name, BROKEN if problem else OK, problem or "works", "Please report it with this text." if problem else ""
        )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        try:
            return str(getattr(import_module(package), "__version__", "")) if package == "torch" else None
        except ImportError:
            return None
