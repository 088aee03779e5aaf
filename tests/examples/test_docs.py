"""The code of the how-to pages runs and prints what they show; the reference is up to date; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import gen_record_reference
from tools.run_markdown import ROOT, blocks_of, run_page

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_how_to_prints_what_it_shows(page: Path) -> None:
    assert [(block.code, printed) for block, printed in run_page(page)] == []


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_how_to_has_code(page: Path) -> None:
    assert sum(block.shown is not None for block in blocks_of(page.read_text(encoding="utf-8"))) >= 5


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_page_names_no_folder_of_this_machine(page: Path) -> None:
    assert str(ROOT) not in page.read_text(encoding="utf-8")
    assert str(Path.home()) not in page.read_text(encoding="utf-8")


def test_reference_of_the_record_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert gen_record_reference.main(["--check"]) == 0, capsys.readouterr().out


def test_reference_that_is_out_of_date_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "record.md"
    assert gen_record_reference.main(["--check"], page) == 1
    assert "python tools/gen_record_reference.py" in capsys.readouterr().out
    assert gen_record_reference.main([], page) == 0
    assert gen_record_reference.main(["--check"], page) == 0


def test_every_field_of_the_record_has_a_meaning() -> None:
    page = gen_record_reference.page_of(gen_record_reference.SOURCE.read_text(encoding="utf-8"))
    assert [line for line in page.splitlines() if line.endswith("|  |")] == []


def test_reference_takes_meanings_from_comments() -> None:
    source = '"""A page."""\nclass A:\n    """An ``a``."""\n\n    b: int | None  # how many | of them\n'
    page = gen_record_reference.page_of(source)
    assert "## A\n\nAn `a`.\n" in page
    assert "| `b` | `int \\| None` | how many \\| of them |" in page
