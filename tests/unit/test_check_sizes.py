"""The size check warns and fails where it should, and the tree as it stands does not fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_sizes import Finding, check, main

ROOT = Path(__file__).parents[2]


def findings(root: Path, source: str, file: str = "src/torcheer/a.py") -> list[Finding]:
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return check(root)


def function(num_lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (num_lines - 1)


@pytest.mark.parametrize(
    ("source", "text", "fails"),
    [
        ("x = 1\n" * 401, "lines: 401, better at most 400", False),
        ("x = 1\n" * 601, "lines: 601, at most 600", True),
        (function(51), "lines of f(): 51, better at most 50", False),
        (function(101), "lines of f(): 101, at most 100", True),
        ("def f(a, b, c, d, /, e, f, g, h): ...", "positional parameters of f(): 8, at most 7", True),
        (
            "class A:\n async def f(self, a, b, c, d, e, f, g, h): ...",
            "positional parameters of f(): 8",
            True,
        ),
        (
            "class A:\n @staticmethod\n def f(a, b, c, d, e, f, g, h): ...",
            "positional parameters of f(): 8",
            True,
        ),
    ],
)
def test_what_is_too_large_is_found(tmp_path: Path, source: str, text: str, fails: bool) -> None:
    found = findings(tmp_path, source)

    assert len(found) == 1, found
    assert text in found[0].text
    assert found[0].fails is fails


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n" * 400,
        function(50),
        "def f(a, b, c, d, e, f, g, *, h, i, j): ...",
        "class A:\n def f(self, a, b, c, d, e, f, g): ...",
    ],
)
def test_what_is_small_enough_passes(tmp_path: Path, source: str) -> None:
    assert findings(tmp_path, source) == []


@pytest.mark.parametrize(("num_names", "outcome"), [(15, []), (16, [False]), (25, [False]), (26, [True])])
def test_public_names_are_counted(tmp_path: Path, num_names: int, outcome: list[bool]) -> None:
    names = [f"name_{index}" for index in range(num_names)]
    found = findings(tmp_path, f"__all__ = {names!r}", "src/torcheer/__init__.py")

    assert [finding.fails for finding in found] == outcome


def test_warnings_do_not_fail_and_errors_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    findings(tmp_path / "warns", function(51))
    assert main([str(tmp_path / "warns")]) == 0
    assert "src/torcheer/a.py:1: warning: lines of f()" in capsys.readouterr().out

    findings(tmp_path / "fails", function(101))
    assert main([str(tmp_path / "fails")]) == 1
    assert "src/torcheer/a.py:1: error: lines of f()" in capsys.readouterr().out


def test_the_tree_as_it_stands() -> None:
    assert [finding for finding in check(ROOT) if finding.fails] == []
