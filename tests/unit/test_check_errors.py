"""Every error text in the sources ends in the remedy, and the check can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_errors import check, fault, main
from torcheer.errors import near_misses, near_or_all

ROOT = Path(__file__).parents[2]
CLASSES = '''"""Errors.

    TorcheerError
    └── GivenError    something given is wrong
"""
class TorcheerError(Exception): ...
class GivenError(TorcheerError, ValueError): ...
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with two errors."""
    (tmp_path / "src/torcheer").mkdir(parents=True)
    (tmp_path / "src/torcheer/errors.py").write_text(CLASSES, encoding="utf-8")
    return tmp_path


def found(tree: Path, body: str) -> list[str]:
    (tree / "src/torcheer/a.py").write_text(f"def f(x, known):\n    {body}\n", encoding="utf-8")
    return [text.partition(":")[0] for _, text in check(tree)]


def test_the_sources_end_their_errors_in_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(ROOT)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "x is 3. Pass a number below 2.",
        "x is 3. It takes one of 1, 2.",
        "The page is missing: in a clone, run `make page`.",
        "There is no x {x}.{near_or_all(x, known)}",
        "The file is of a newer version. Upgrade with pip install -U torcheer",
        "x is wrong; call it with y.",
    ],
)
def test_a_text_that_ends_in_the_remedy(text: str) -> None:
    assert fault(text) == ""


@pytest.mark.parametrize(
    "text",
    ["x is wrong.", "Pass y. It is not there, and x is none.", "{text}", "x cannot be read: {error}.", ""],
)
def test_a_text_that_does_not(text: str) -> None:
    assert fault(text)


def test_a_text_without_its_end() -> None:
    assert fault("x is 3. Pass a number") == "does not end as a sentence does"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("raise GivenError('x is wrong.')", 1),
        ("raise ValueError('x is wrong.')", 0),  # none of ours
        ("raise GivenError(f'x is {x}. ' + 'Pass y.')", 0),
        ("hint = 'Pass y.' if x else 'It is so.'\n    raise GivenError(f'x is wrong. {hint}')", 1),
        ("text = f'{x} is wrong. Pass y.'\n    raise GivenError(text)", 0),
        ("try: pass\n    except GivenError as error: raise TorcheerError(f'{x}: {error}')", 0),
        ("try: pass\n    except OSError as error: raise TorcheerError(f'{x}: {error}')", 1),
    ],
)
def test_errors_in_sources(tree: Path, body: str, count: int) -> None:
    assert len(found(tree, body)) == count


def test_the_tree_of_classes(tree: Path) -> None:
    assert found(tree, "pass") == []
    errors = tree / "src/torcheer/errors.py"
    errors.write_text(CLASSES.replace("    └── GivenError ", "    └── OldError "), encoding="utf-8")
    assert found(tree, "pass") == ["GivenError is missing in the tree of errors"]
    assert main([str(tree)]) == 1


def test_near_or_all_is_never_empty() -> None:
    assert near_or_all("wigth", ["width", "height"]) == near_misses("wigth", ["width", "height"])
    assert near_or_all("zzz", ["width", "height"]) == " There are: 'width', 'height'."
    assert near_or_all("zzz", map(str, range(12))).endswith("'9' and 2 more.")
    assert near_or_all("zzz", []) == " There are: none."
