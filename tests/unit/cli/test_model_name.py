"""Models by name, without any framework."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torcheer.cli import model_name
from torcheer.cli.model_name import Name
from torcheer.errors import CaptureError

NETS = """
class Net:
    made = 0

    def __init__(self, hidden=3):
        Net.made += 1
        self.hidden = hidden

    def state_dict(self):
        return {}

    def __call__(self, x):
        return x

def make():
    return Net(5)

ready = Net(7)
number = 3

class nested:
    Inner = Net
"""


@pytest.fixture
def nets(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = tmp_path / f"nets_{abs(hash(request.node.name))}.py"
    path.write_text(NETS, encoding="utf-8")
    before = list(sys.path)
    yield path
    sys.path[:] = before
    sys.modules.pop(path.stem, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("net.py", Name("net.py", "net.py", "")),
        ("a.b:Net", Name("a.b:Net", "a.b", "Net")),
        ("n.py:a.B", Name("n.py:a.B", "n.py", "a.B")),
        ("n.py:f()", Name("n.py:f()", "n.py", "f", ())),
        ("n.py:f(3, 'x', k=[1])", Name("n.py:f(3, 'x', k=[1])", "n.py", "f", (3, "x"), {"k": [1]})),
        (r"C:\n.py:Net", Name(r"C:\n.py:Net", r"C:\n.py", "Net")),
    ],
)
def test_name_is_taken_apart(text: str, expected: Name) -> None:
    assert model_name.parse(text) == expected


@pytest.mark.parametrize("text", [":Net", "n.py:", "n.py:3", "n.py:f(x)", "n.py:f(open('x'))", "n.py:f[0]", "n.py:a b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(CaptureError, match=r"names no module|is not a name"):
        model_name.parse(text)


@pytest.mark.parametrize(
    ("attribute", "hidden"), [("Net", 3), ("Net(hidden=4)", 4), ("make", 5), ("ready", 7), ("nested.Inner", 3)]
)
def test_class_function_and_object_give_a_model(nets: Path, attribute: str, hidden: int) -> None:
    assert model_name.model(f"{nets}:{attribute}").hidden == hidden


def test_module_is_found_from_the_current_folder(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(nets.parent)
    assert model_name.model(f"{nets.stem}:ready").hidden == 7


def test_file_is_imported_once(nets: Path) -> None:
    first, second = (type(model_name.model(f"{nets}:make")) for _ in range(2))
    assert first is second


def test_file_named_like_a_loaded_module_keeps_out_of_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "json.py"
    path.write_text(NETS, encoding="utf-8")
    before = sys.modules["json"] if "json" in sys.modules else __import__("json")
    assert model_name.model(f"{path}:make").hidden == 5
    assert sys.modules["json"] is before


def test_misspelt_name_lists_near_misses(nets: Path) -> None:
    with pytest.raises(CaptureError, match=r"has no 'Nett'\. Did you mean 'Net'"):
        model_name.model(f"{nets}:Nett")


def test_what_is_no_model_is_refused(nets: Path) -> None:
    with pytest.raises(CaptureError, match=r"gave a int, where a model is needed"):
        model_name.model(f"{nets}:number")


def test_file_with_several_models_asks_which(nets: Path) -> None:
    with pytest.raises(CaptureError, match=r"which model is meant\. It has several: Net, ready\. Write .*:Net"):
        model_name.model(str(nets))


def test_file_with_one_model_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "only_one_net.py"
    path.write_text(NETS.split("def make", maxsplit=1)[0], encoding="utf-8")
    assert model_name.model(str(path)).hidden == 3


def test_missing_file_and_module_are_told(tmp_path: Path) -> None:
    (tmp_path / "network.py").touch()
    with pytest.raises(CaptureError, match=r"There is no file .*netwrk.py'\. Did you mean 'network.py'"):
        model_name.model(f"{tmp_path / 'netwrk.py'}:Net")
    with pytest.raises(CaptureError, match=r"There is no module 'no_such_module'"):
        model_name.model("no_such_module.inner:Net")


def test_import_that_fails_inside_the_file_comes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "imports_what_is_missing.py"
    path.write_text("import surely_not_installed\n", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        model_name.model(f"{path}:Net")
