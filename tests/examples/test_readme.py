"""The README's code runs, and prints what the README shows.

Values of tensors and times differ between machines and are not compared, nor is the folder of the clone
(``tools/run_markdown.py``); every other character is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.run_markdown import ROOT, blocks_of, matches, run_page, with_output

README = ROOT / "README.md"


def test_readme_prints_what_it_shows() -> None:
    assert [(block.code, printed) for block, printed in run_page(README)] == []


def test_readme_shows_what_every_block_that_prints_prints() -> None:
    blocks = list(blocks_of(README.read_text(encoding="utf-8")))
    assert len(blocks) == 8
    assert [block.code for block in blocks if not block.shown and "print" in block.code] == []


@pytest.mark.parametrize("link", ["docs/design/shape.md", "docs/reference/api.md", "CONTRIBUTING.md"])
def test_readme_links_to_files_that_exist(link: str) -> None:
    assert f"]({link})" in README.read_text(encoding="utf-8")
    assert (ROOT / link).is_file()


def test_two_commands_of_the_readme_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"    make {command} " in README.read_text(encoding="utf-8")
        assert f"\n{command}: " in makefile


# -- the check itself --------------------------------------------------------------------------------------


PAGE = """\
# A page

```python
print("a", 1)
print("b 0.1234")
```

```text
a {number}
b 9.8765
```
"""


def test_page_that_shows_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(number=2), encoding="utf-8")
    different = run_page(page)
    assert [printed for _, printed in different] == ["a 1\nb 0.1234\n"]
    page.write_text(with_output(page.read_text(encoding="utf-8"), different), encoding="utf-8")
    assert "a 1\nb 0.1234\n```" in page.read_text(encoding="utf-8")
    assert run_page(page) == []


def test_values_of_tensors_are_not_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(number=1), encoding="utf-8")
    assert run_page(page) == []


def test_block_that_raises_fails_at_its_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\nx / 0\n```\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 3


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nb\nc\n", False),
        ("a\n…\nc", "a\nb\nc\n", True),
        ("a\n…\nd", "a\nb\nc\n", False),
        ("a\n…\nc\n…\ne", "a\nb\nc\nd\ne\n", True),
        ("a\n…\nd\n…\nb", "a\nb\nc\nd\n", False),
        ("Time elapsed: 0.288s", "Time elapsed: 1.500E-03s\n", True),
        ("12.3 ms", "1.2 µs", True),
        ("4.8 MiB", "4.9 MiB", False),
        ("operation 8/24", "operation 9/24", False),
    ],
)
def test_matches(shown: str, printed: str, expected: bool) -> None:
    assert matches(shown, printed) is expected
