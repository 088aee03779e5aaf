"""The code of the pages runs and prints what they show; the reference is up to date; links lead somewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torcheer as tl
from tools import gen_api_reference, gen_cli_reference, gen_profile_reference, gen_record_reference
from tools.run_markdown import ROOT, blocks_of, run_page
from torcheer import errors

DOCS = ROOT / "docs"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
PAGES = sorted(DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if any(blocks_of(page.read_text(encoding="utf-8")))]
REFERENCES = [gen_record_reference, gen_api_reference, gen_cli_reference, gen_profile_reference]
ERRORS = [one.__name__ for one in (errors.TorcheerError, *errors.TorcheerError.__subclasses__())]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


# Paddle warns of programs that are not installed when it is imported.
@pytest.mark.filterwarnings("ignore::UserWarning:paddle")
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_page_prints_what_it_shows(page: Path) -> None:
    assert [(block.code, printed) for block, printed in run_page(page)] == []


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_how_to_has_code(page: Path) -> None:
    assert sum(block.shown is not None for block in blocks_of(page.read_text(encoding="utf-8"))) >= 5


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in PAGES:
        folder = page.parent if page.stem == "index" else page.with_suffix("")
        assert (tmp_path / folder.relative_to(DOCS) / "index.html").is_file(), page


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_page_names_no_folder_of_this_machine(page: Path) -> None:
    assert str(ROOT) not in page.read_text(encoding="utf-8")
    # A home may be "/root", which "watching/roots" contains.
    assert not re.search(rf"(?<!\w){re.escape(str(Path.home()))}\b", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("tool", REFERENCES, ids=lambda tool: tool.__name__)
def test_reference_is_up_to_date(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("tool", REFERENCES, ids=lambda tool: tool.__name__)
def test_reference_that_is_out_of_date_is_found(tool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert tool.main(["--check"], page) == 1
    assert f"python {tool.__name__.replace('.', '/')}.py" in capsys.readouterr().out
    assert tool.main([], page) == 0
    assert tool.main(["--check"], page) == 0


@pytest.mark.parametrize("name", sorted(tl._HOMES))
def test_public_name_is_explained_in_the_reference_and_in_the_changelog(name: str) -> None:
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert f"\n## tl.{name}\n" in reference
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", changelog), f"CHANGELOG.md says nothing of tl.{name}"


@pytest.mark.parametrize("name", sorted(gen_api_reference.public_names()))
def test_every_argument_of_a_public_name_is_explained(name: str) -> None:
    made = getattr(tl, name)
    if name in {"Comparison", "ModelHistory", "TorcheerError"}:
        return  # nobody makes one: they are returned and raised
    explained = inspect.getdoc(made) or ""
    given = inspect.signature(made).parameters.values()
    names = [one.name for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    assert [one for one in names if not re.search(rf"\b{one}\b", explained)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_page_names_nothing_that_is_not_there(page: Path) -> None:
    # On the pages about other tools, `tl` is theirs in the first column.
    text = page.read_text(encoding="utf-8")
    if page.name == "torchlens.md":
        text = re.sub(r"^\| [^|]*", "", text, flags=re.MULTILINE)
    assert set(re.findall(r"\btl\.(\w+)", text)) <= {*tl._HOMES, *tl.__all__}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_a_page_that_raises_it(name: str) -> None:
    page = DOCS / "errors" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert "**What to do.**" in text or name == "TorcheerError"
    assert any(block.shown for block in blocks_of(text))
    index = (DOCS / "errors" / "index.md").read_text(encoding="utf-8")
    assert f"]({name}.md)" in index
    assert re.search(rf"── {name} ", index) or name == "TorcheerError"


def test_there_is_no_page_of_an_error_that_is_gone() -> None:
    assert {page.stem for page in (DOCS / "errors").glob("*.md")} == {*ERRORS, "index"}


def test_every_page_about_another_tool_has_a_table_and_is_listed() -> None:
    index = (DOCS / "coming-from" / "index.md").read_text(encoding="utf-8")
    for page in (DOCS / "coming-from").glob("*.md"):
        if page.name != "index.md":
            assert f"]({page.name})" in index
            assert re.search(
                r"^\| .+ \| torcheer \| what is different \|$", page.read_text(encoding="utf-8"), re.MULTILINE
            )


def test_every_field_of_the_record_has_a_meaning() -> None:
    page = gen_record_reference.page_of(gen_record_reference.SOURCE.read_text(encoding="utf-8"))
    assert [line for line in page.splitlines() if line.endswith("|  |")] == []


def test_reference_takes_meanings_from_comments() -> None:
    source = '"""A page."""\nclass A:\n    """An ``a``."""\n\n    b: int | None  # how many | of them\n'
    page = gen_record_reference.page_of(source)
    assert "## A\n\nAn `a`.\n" in page
    assert "| `b` | `int \\| None` | how many \\| of them |" in page


def words_not_used() -> list[str]:
    """The last column of the glossary."""
    rows = re.findall(
        r"^\| .* \| .* \| (.*?) ?\|$", (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8"), re.M
    )
    return [word for row in rows[1:] for word in row.split(", ") if word]


def uses(text: str, words: list[str]) -> set[str]:
    return {word for word in words if re.search(rf"\b{re.escape(word)}s?\b", text, re.IGNORECASE)}


SPOKEN = [
    *(page for page in PAGES if page.stem != "glossary" and page.parent.name != "coming-from"),
    ROOT / "README.md",
    *sorted((ROOT / "src/torcheer/web/ui/src").rglob("*.svelte")),
    *(
        path
        for room in ("api", "cli", "history", "views")
        for path in sorted((ROOT / "src/torcheer" / room).glob("*.py"))
    ),
]


@pytest.mark.parametrize("place", SPOKEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_one_word_per_idea(place: Path) -> None:
    assert uses(place.read_text(encoding="utf-8"), words_not_used()) == set()


def test_a_second_word_is_found() -> None:
    assert len(words_not_used()) > 20
    assert uses("Its Submodules, in a dashboard.", words_not_used()) == {"submodule", "dashboard"}
