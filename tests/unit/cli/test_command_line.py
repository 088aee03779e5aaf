"""The command line itself: help, usage errors, JSON, what is imported; nothing here needs torch."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import torcheer
from tests.unit.make_record import make_record
from torcheer.cli import main as command
from torcheer.cli.answer import Answer, as_json, stdout_for_answer
from torcheer.cli.failure import described
from torcheer.errors import CaptureError
from torcheer.record import file

SOURCES = str(Path(torcheer.__file__).resolve().parents[1])


def run(*words: str, **options: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "torcheer", *words],
        env={**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8", **options},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "run.tch"
    file.write(make_record(), {}, path)
    return path


@pytest.mark.parametrize("verb", command.VERBS)
def test_every_verb_has_examples_and_says_what_its_result_is(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([verb, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:\n  " in shown
    assert command.VERBS[verb][1:] in " ".join(shown.split())
    assert verb == "completion" or "\nresult: " in shown


def test_help_lists_all_verbs_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert [verb for verb in command.VERBS if f"\n    {verb}" not in shown] == []
    assert "exit codes: 0 " in shown


def test_every_verb_is_one_file() -> None:
    folder = Path(command.__file__).parent
    verbs = {
        path.stem
        for path in folder.glob("*.py")
        if hasattr(importlib.import_module(f"torcheer.cli.{path.stem}"), "add_arguments")
    }
    assert verbs == set(command.VERBS)


@pytest.mark.parametrize("words", [[], ["frace"], ["trace"], ["trace", "a:b", "--no-such"], ["open"], ["export", "x"]])
def test_usage_errors_end_with_two_and_the_remedy(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    printed = capsys.readouterr()
    assert "--help` has examples." in printed.err
    assert printed.out == ""
    assert command.main([*words, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["exit"], answer["error"]["kind"]) == ("failed", 2, "UsageError")
    assert answer["error"]["message"].endswith("--help` has examples.")


def test_our_errors_are_one_message_and_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["trace", "no_such_module:Net"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("torcheer: no_such_module:Net needs an input to run on. Give --input")


def test_json_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["export", "nowhere.tch", "x.svg", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"torcheer", "verb", "status", "exit", "result", "files", "notes", "error"}
    assert (answer["verb"], answer["status"], answer["exit"]) == ("export", "failed", 2)
    assert answer["error"]["kind"] == "RecordFileError"
    assert "does not exist" in answer["error"]["message"]


def test_json_holds_numbers_json_has_not() -> None:
    assert json.loads(as_json("x", Answer(result={"a": float("nan")})))["result"] == {"a": "nan"}


def test_stdout_is_for_the_answer_only() -> None:
    code = (
        "import os, subprocess\nfrom torcheer.cli.answer import stdout_for_answer\n"
        "with stdout_for_answer() as out:\n"
        "    print('python'); os.write(1, b'C\\n'); subprocess.run(['echo', 'child'])\n"
        "    out.write('answer\\n')\nprint('after')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "answer\nafter\n"
    assert set(done.stderr.split()) == {"python", "C", "child"}


def test_stdout_of_a_test_is_for_the_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    with stdout_for_answer() as out:
        print("something else")
        out.write("answer")
    assert capsys.readouterr() == ("answer", "something else\n")


def test_errors_of_ours_are_told_as_mistakes_of_ours() -> None:
    try:
        command.VERBS["no such verb"]
    except KeyError as error:
        told = described(error.with_traceback(None))
    assert told.startswith("This is a mistake in torcheer. Please report it")


def test_errors_of_users_show_their_lines_only() -> None:
    def users() -> None:
        raise ValueError("theirs")

    try:
        users()
    except ValueError as error:
        told = described(error)
    assert told.startswith("Traceback of your code")
    assert told.endswith("ValueError: theirs")
    assert described(CaptureError("what. How.")) == "torcheer: what. How."


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--version"])
    assert capsys.readouterr().out == f"torcheer {torcheer.__version__}\n"


def test_broken_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m torcheer demo --where | true",
        shell=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""


# -- verbs that read files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["svg", "dot", "html", "csv", "json"])
def test_export_writes_each_format(recording: Path, ending: str) -> None:
    target = recording.with_name(f"out.{ending}")
    assert command.main(["export", str(recording), str(target)]) == 0
    assert target.stat().st_size > 100


def test_export_replaces_nothing_unasked(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = recording.with_name("out.csv")
    target.write_text("mine", encoding="utf-8")
    assert command.main(["export", str(recording), str(target)]) == 2
    assert "exists already. Give another path, or --overwrite." in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "mine"
    assert command.main(["export", str(recording), str(target), "--overwrite", "--table", "modules"]) == 0
    assert target.read_text(encoding="utf-8").startswith("address,type_name,")


def test_export_refuses_formats_it_has_not(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["export", str(recording), "out.docx"]) == 2
    assert "Name a file that ends in one of .svg, .png" in capsys.readouterr().err


def test_summary_of_a_recording(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["summary", str(recording)]) == 0
    assert "module" in capsys.readouterr().out


NO_TORCH = """
import sys
from torcheer.cli.main import main
code = main({words!r})
assert not {{"torch", "paddle"}} & set(sys.modules), "torch was imported"
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words",
    ["summary RUN", "export RUN OUT.svg", "export RUN OUT.csv", "doctor --quick", "demo --where"],
)
def test_verbs_that_read_files_do_not_import_torch(recording: Path, words: str) -> None:
    given = words.replace("RUN", str(recording)).replace("OUT", str(recording.with_name("out"))).split()
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH.format(words=given)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        cwd=recording.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # A machine without torch is told so by doctor.
    assert done.returncode == int(words.startswith("doctor") and find_spec("torch") is None), done.stderr


def test_doctor_says_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from torcheer.cli import doctor

    monkeypatch.setattr(doctor, "EXTRAS", {"wandb": "surely_not_installed"})
    assert command.main(["doctor", "--quick"]) == int(find_spec("torch") is None)
    assert "for tl.watch(backend='wandb'): pip install 'torcheer[wandb]'" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "_required", lambda: ["surely-not-installed"])
    assert command.main(["doctor", "--quick", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["result"]["checks"]
    broken = [check for check in checks if check["state"] == "broken"]
    assert [check["remedy"] for check in broken] == ["pip install surely-not-installed"]


# -- completion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_runs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["completion", shell]) == 0
    assert "_ARGCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torcheer su", {"summary "}),
        ("torcheer trace --ba", {"--backward "}),
        ("torcheer export --theme ", {"light", "dark"}),
    ],
)
def test_shell_completes_verbs_options_and_choices(line: str, expected: set[str], tmp_path: Path) -> None:
    # How a shell asks: https://kislyuk.github.io/argcomplete/
    answer = tmp_path / "answer"
    run(
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_STDOUT_FILENAME=str(answer),
        _ARGCOMPLETE_IFS="\n",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
        COMP_TYPE="9",
    )
    assert set(answer.read_text(encoding="utf-8").split("\n")) == expected


# -- what a stranger gets wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["summary", "nope.tch"], "There is no 'nope.tch'. Give the path of a recording"),
        (
            ["profile", "RUN"],
            "is a recording, and `torcheer profile` runs a model. Give the model, or read the recording",
        ),
        (["trace", "RUN", "-i", "1x3"], "is a recording, and `torcheer trace` runs a model."),
        (["open", "notes.txt"], "notes.txt is neither a recording nor the folder of a watched run. Give what"),
    ],
)
def test_the_wrong_thing_is_named_and_the_right_one_too(
    recording: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recording.parent)
    Path("notes.txt").touch()
    assert command.main([word.replace("RUN", str(recording)) for word in words]) == 2
    assert said in capsys.readouterr().err


def test_verbs_compare_recordings_without_torch(recording: Path) -> None:
    """Arrays of make_record are not the point: that the verb answers 0, 1 or 2 and imports no framework is."""
    words = ["compare", str(recording), str(recording), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH.format(words=words)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "torch was imported" not in done.stderr
    assert json.loads(done.stdout)["exit"] == done.returncode
