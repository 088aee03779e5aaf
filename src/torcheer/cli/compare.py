"""examples:
  torcheer compare old.py:Net new.py:Net -i 2x3x32x32 --set-weights copy
  torcheer compare net.py:Torch net.py:Paddle -i x.npy --atol 1e-4 -o report.html
  torcheer compare net.py:Net ranks -i x.npy             one process, and a folder with the recordings of all ranks
  torcheer compare before.tch after.tch                  two recordings: nothing is run, and no torch is needed

exit codes: 0 equal, 1 different, 2 they could not be compared, or it could not be told

result: what the report's to_dict() gives
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.cli import inputs, subject
from torcheer.cli.answer import DIFFERENT, DONE, FAILED, Answer
from torcheer.cli.progress import Step, progress
from torcheer.errors import ComparisonError
from torcheer.record import file

if TYPE_CHECKING:
    from torcheer.diff.comparison import Comparison

CODES = {"equal": DONE, "diverged": DIFFERENT}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the reference: a model (file.py:Net) or a recording (run.tch)")
    parser.add_argument("b", metavar="B", help="what should be the same; also a folder of ranks")
    parser.add_argument(
        "--set-weights",
        choices=("own", "copy", "equal"),
        default="own",
        help="own: as they are made (default); copy: A's, carried over to B; equal: the same for equal layers",
    )
    parser.add_argument("--backward", action="store_true", help="compare gradients, too")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="training steps to compare (0)")
    parser.add_argument("--weights-b", type=Path, metavar="FILE", help="a state dict for B; --weights is A's")
    parser.add_argument("--atol", type=float, metavar="NUMBER", help="absolute tolerance (measured from rounding)")
    parser.add_argument("--rtol", type=float, metavar="NUMBER", help="relative tolerance (measured from rounding)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the report: .html or .json")
    subject.add_options(parser)


def run(given: argparse.Namespace) -> Answer:
    if given.output is not None and given.output.suffix not in (".html", ".json"):
        raise ComparisonError(f"--output {given.output}: a report is written as .html or .json. Give one of these.")
    recorded = [subject.is_recording(one) for one in (given.a, given.b)]
    of_ranks = bool(file.recordings_in(given.b))
    if any(recorded) and not all(recorded) and not of_ranks:
        raise ComparisonError(
            "One of the two is a recording and the other is not. Record the other too, on the same input: "
            f"torcheer trace {given.b if recorded[0] else given.a} -i … -o other.tch."
        )
    with progress(1 if all(recorded) else 4) as step:
        if of_ranks and not recorded[0]:
            report = _of_ranks(given, step)
        elif all(recorded) or of_ranks:
            report = _of_recordings(given, step)
        else:
            report = _of_models(given, step)
        text, result = str(report), report.to_dict()
        files = _written(report, given.output)
    return Answer(text, result, files, code=CODES.get(report.verdict, FAILED))


def _of_recordings(given: Any, step: Step) -> Comparison:
    import torcheer as tl  # the package imports nothing until it is used

    step("comparing")
    return tl.compare(given.a, given.b, atol=given.atol, rtol=given.rtol)


def _of_ranks(given: Any, step: Step) -> Comparison:
    import torcheer as tl  # as above

    _check_input(given, "A model is compared with ranks on the whole input that they shared.")
    step("importing the model")
    model = subject.made(given.a, given)
    step("making its input")
    x = _input(given, model)
    step("comparing")
    return tl.compare(model, given.b, x, atol=given.atol, rtol=given.rtol)


def _of_models(given: Any, step: Step) -> Comparison:
    import torcheer as tl  # as above

    _check_input(given, "Two models are compared on an input.")
    step("importing the models")
    model_a = subject.made(given.a, given)
    given.weights = given.weights_b
    model_b = subject.made(given.b, given)
    step("making their input")
    x = _input(given, model_a)
    step("comparing")
    return tl.compare(
        model_a,
        model_b,
        x,
        atol=given.atol,
        rtol=given.rtol,
        weights=given.set_weights,
        backward=given.backward or None,
        steps=given.steps,
    )


def _check_input(given: Any, why: str) -> None:
    if not given.input:
        raise ComparisonError(f"{why} Give --input with a shape (1x3x224x224), a file or a function.")


def _input(given: Any, model: Any) -> Any:
    """The input that was asked for, as compare takes it."""
    args, kwargs = inputs.make(given.input, model, seed=given.seed)
    if args and kwargs:
        raise ComparisonError("Give all inputs by name (x=1x3x8x8), or none.")
    return kwargs or (args[0] if len(args) == 1 else args)


def _written(report: Comparison, path: Path | None) -> list[str]:
    if path is None:
        return []
    if path.suffix == ".html":
        report.to_html(path)
    else:
        report.to_json(path)
    return [str(path)]
