"""``import torcheer`` is silent, light and honest about its names."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import torcheer

# Rooms that must open on a machine without torch.
TORCH_FREE = ("errors", "units", "record", "history", "profiling", "diff", "views", "web", "cli", "api")
HEAVY = ("torch", "numpy", "pandas", "paddle", "transformers")


def loaded_after(code: str) -> str:
    """Which heavy packages a fresh interpreter has loaded after running the code, and what it printed."""
    report = f"import sys; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return finished.stdout.strip() + finished.stderr.strip()


def torch_free_modules() -> list[str]:
    rooms = [name for name in TORCH_FREE if any((Path(torcheer.__path__[0])).glob(f"{name}*"))]
    modules = [f"torcheer.{room}" for room in rooms]
    for room in rooms:
        folder = Path(torcheer.__path__[0]) / room
        found = pkgutil.walk_packages([str(folder)], f"torcheer.{room}.")
        modules += [module.name for module in found if not module.name.endswith("__main__")]
    return modules


def test_import_is_silent_and_loads_nothing_heavy() -> None:
    assert loaded_after("import torcheer") == ""


def test_reading_rooms_need_no_torch() -> None:
    modules = torch_free_modules()

    assert "torcheer.record.model" in modules
    assert set(loaded_after("import " + ", ".join(modules)).split()) <= {"numpy"}


def test_loaded_after_sees_a_heavy_package() -> None:
    assert loaded_after("import sys; sys.modules['numpy'] = sys") == "numpy"


def test_every_public_name_is_there() -> None:
    assert set(torcheer.__all__) - {"__version__"} <= set(torcheer._HOMES)
    for name in torcheer._HOMES:
        assert getattr(torcheer, name) is not None


def test_completion_offers_what_a_session_begins_with_and_no_rooms() -> None:
    assert loaded_after("import torcheer.history\nassert sorted(dir(torcheer)) == sorted(torcheer.__all__)") == ""


def test_a_misspelt_name_lists_near_misses() -> None:
    with pytest.raises(AttributeError, match=r"^torcheer has no attribute 'lod'\. Did you mean 'load'\?$"):
        torcheer.lod  # noqa: B018


def test_an_unknown_name_says_where_to_look() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'\. dir\(torcheer\) lists"):
        torcheer.zzz  # noqa: B018


def test_what_type_checkers_see_is_what_there_is() -> None:
    tree = ast.parse(Path(torcheer.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == torcheer._HOMES


WITHOUT_TORCH = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
import torcheer as tl
for call in (lambda: tl.summary(object()), lambda: tl.watch(object()), lambda: tl.log_forward_pass(object(), 1)):
    try:
        call()
    except tl.TorcheerError as error:
        assert str(error).endswith("is not installed. Install it with: pip install torch"), error
    else:
        raise AssertionError("no error")
"""


def test_without_torch_the_error_says_what_to_install() -> None:
    assert set(loaded_after(WITHOUT_TORCH).split()) <= {"numpy"}


def test_an_empty_list_is_no_recording() -> None:
    with pytest.raises(torcheer.TorcheerError, match=r"empty list\. Pass the path"):
        torcheer.load([])
