"""Builds the parser out of the verbs, runs one, and turns what it answers or raises into text, JSON and exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from torcheer import __version__
from torcheer.cli import ranks
from torcheer.cli.answer import FAILED, Answer, as_json, say, stdout_for_answer

# Here and not in the verbs' modules, of which only the one that is asked for is imported.
VERBS = {
    "trace": "record one run of a model: every operation, module call and tensor",
    "summary": "a model as a tree: modules, shapes, params, FLOPs; also of a recording",
    "profile": "where time, memory and FLOPs go, and where NaN is born, per module and per op",
    "compare": "whether two models or recordings are equal, and the first place where they are not",
    "watch": "run a training script, and see inside its models while they train",
    "open": "look at recordings, watched runs and results in the browser",
    "export": "write a recording or a watched run in another format",
    "demo": "see what torcheer does, on small models of its own",
    "doctor": "what is installed, what works here, and how to mend what is missing",
    "completion": "print what makes a shell complete torcheer's verbs and options",
}
DESCRIPTION = "Look inside a neural network while it runs: record it, profile it, compare it, watch it train."
EPILOG = """\
examples:
  torcheer trace net.py:Net -i 1x3x224x224          record a run of a model and print its layers
  torcheer profile net.py:Net -i 8x128:int64        where time, memory and FLOPs go
  torcheer compare old.py:Net new.py:Net -i 2x3x8x8 where two implementations part
  torcheer watch train.py                           see inside a model while it trains
  torcheer open run.tch                             look at a recording in the browser
  torcheer demo                                     see what all this looks like
  torcheer doctor                                   what works on this machine

exit codes: 0 done, 1 different or something missing, 2 it could not be done or was asked for wrongly
"""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of examples, and is of one width everywhere, as the reference in docs/ is made of it."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, width=110, **options)


class UsageError(Exception):
    """The command line was not written rightly."""


class Parser(argparse.ArgumentParser):
    """argparse's, whose errors end in the remedy."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise UsageError(f"{self.prog}: {message}. `{self.prog} --help` has examples.")


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line, with the options of the verbs among the words; None: of all verbs."""
    whole = Parser(prog="torcheer", description=DESCRIPTION, epilog=EPILOG, formatter_class=Formatter)
    whole.add_argument("--version", action="version", version=f"torcheer {__version__}")
    verbs = whole.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    for name, line in VERBS.items():
        one = verbs.add_parser(
            name, help=line, description=f"{line[0].upper()}{line[1:]}.", formatter_class=Formatter, allow_abbrev=False
        )
        if words is None or name in words:
            verb = import_module(f"torcheer.cli.{name}")
            one.epilog = verb.__doc__
            verb.add_arguments(one)
            if name != "completion":
                one.add_argument("--json", action="store_true", help="answer with one JSON object on stdout")
            one.set_defaults(run=verb.run, json=False)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # only a shell that completes asks for it

        argcomplete.autocomplete(parser(os.environ.get("COMP_LINE", "").split()))
    try:
        given = parser(words).parse_args(words)
    except UsageError as wrong:
        say(str(wrong))
        if "--json" in words:  # whoever asked for it parses what stands on stdout, whatever went wrong
            _print(as_json(next(iter(words), ""), Answer(code=FAILED), wrong).decode())
        return FAILED
    if not given.json:
        answer, error = _run(given)
        if error is None and answer.text and ranks.speaks():
            _print(answer.text)
        return answer.code
    with stdout_for_answer() as out:
        answer, error = _run(given)
        if ranks.speaks():
            out.write(as_json(given.verb, answer, error).decode() + "\n")
    return answer.code


def _run(given: Any) -> tuple[Answer, BaseException | None]:
    try:
        answer: Answer = given.run(given)
    except KeyboardInterrupt as error:
        say("torcheer: stopped")
        return Answer(code=FAILED), error
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything: exit code 2 and its traceback
        from torcheer.cli.failure import described  # only now is it needed

        say(ranks.named(described(error)))
        return Answer(code=FAILED), error
    if not ranks.speaks():
        return answer, None
    for note in answer.notes:
        say(f"note: {note}")
    for path in answer.files:
        say(f"written: {path}")
    return answer, None


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `torcheer … | head`
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
