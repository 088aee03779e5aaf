"""Writes ``docs/reference/command-line.md`` from the options of the verbs.

python tools/gen_cli_reference.py           write the page
python tools/gen_cli_reference.py --check   fail when the page is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
from tools.pages import REFERENCE, cell, prose, write_or_check  # noqa: E402 - run as a script, they are found by then
from torcheer.cli import answer, inputs  # noqa: E402
from torcheer.cli.main import parser  # noqa: E402

PAGE = REFERENCE / "command-line.md"
HEAD = """\
# The command line

<!-- Written by tools/gen_cli_reference.py from src/torcheer/cli. Change it there. -->

`torcheer` and `python -m torcheer` are the same. What each verb prints is also there for programs:

"""


def page_of(whole: argparse.ArgumentParser) -> str:
    """Return the page. Made of the options, since Python's versions lay out the text of --help differently."""
    verbs = next(one for one in whole._actions if isinstance(one, argparse._SubParsersAction)).choices
    lines = [f"| [`{name}`](#torcheer-{name}) | {verb.description} |" for name, verb in verbs.items()]
    parts = [
        HEAD + prose(_after_first_line(answer.__doc__)),
        "\n".join(["| verb | |", "|---|---|", *lines]),
        _examples(whole),
        "## Inputs",
        prose(_after_first_line(inputs.__doc__)),
    ]
    for name, verb in verbs.items():
        parts += [f"## torcheer {name}", str(verb.description), _table(verb), _examples(verb)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _after_first_line(text: str | None) -> str:
    return (text or "").partition("\n")[2].strip("\n")


def _table(verb: argparse.ArgumentParser) -> str:
    rows = [f"| `{cell(_shown(one))}` | {cell(str(one.help))} |" for one in verb._actions if one.dest != "help"]
    return "\n".join(["| | |", "|---|---|", *rows])


def _shown(action: argparse.Action) -> str:
    """An argument as it is written: ``-o, --output FILE``."""
    value = (
        ""
        if action.nargs == 0
        else action.metavar
        or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices is not None else action.dest.upper())
    )
    many = " …" if action.nargs == "+" else ""
    return f"{', '.join(action.option_strings)} {value}{many}".strip()


def _examples(one: argparse.ArgumentParser) -> str:
    """What stands under the options: examples, as they would be typed, then words."""
    examples: list[str] = []
    words: list[str] = []
    for line in str(one.epilog).strip("\n").split("\n")[1:]:
        (examples if line.startswith("  ") else words).append(line.removeprefix("  "))
    return "```console\n" + "\n".join(examples) + "\n```\n" + "\n".join(words)


def main(arguments: list[str], page: Path = PAGE) -> int:
    """Write or check the page; return the exit status."""
    return write_or_check(page, page_of(parser()), arguments, "gen_cli_reference")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
