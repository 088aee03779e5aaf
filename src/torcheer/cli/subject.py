"""The options that say what to run, shared by every verb that runs a model, and what they make."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.cli import inputs, model_name
from torcheer.cli.progress import Step
from torcheer.errors import CaptureError
from torcheer.record import file


@dataclass(slots=True)
class Subject:
    """A model and its inputs."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def add_model(parser: argparse.ArgumentParser, what: str = "") -> None:
    """The model."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=what or "file.py:Net, package.module:make_net, file.py:Net(hidden=64): a class, function or object",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything else that decides what is run."""
    options = parser.add_argument_group("what to run")
    options.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="INPUT",
        help="a shape (1x3x224x224, 1x128:int64:50257), a file (.npy, .npz, .pt, .safetensors) or a function "
        "(net.py:make_input); one for each argument, or name=… for a keyword",
    )
    options.add_argument("--weights", type=Path, metavar="FILE", help="a state dict for the model: .pt or .safetensors")
    options.add_argument("--eval", action="store_true", help="put the model into eval mode first")
    options.add_argument("--device", metavar="NAME", help="move the model there first: cuda, cuda:1, mps, …")
    options.add_argument("--seed", type=int, default=0, help="of the model's random weights and of random inputs (0)")


def make(given: Any, step: Step, *, needs_input: bool = True) -> Subject:
    """Make the model and its inputs."""
    if is_recording(given.model):
        raise CaptureError(
            f"{given.model} is a recording, and `torcheer {given.verb}` runs a model. Give the model, or read the "
            f"recording: torcheer summary {given.model}, torcheer open {given.model}."
        )
    for text in given.input:
        inputs.parse(text)  # a misspelt one is told before anything takes long
    if needs_input and not given.input:
        raise CaptureError(
            f"{given.model} needs an input to run on. Give --input with a shape (1x3x224x224), a file or a function: "
            f"torcheer {given.verb} {given.model} --input 1x3x224x224."
        )
    step("importing the model")
    model = made(given.model, given)
    step("making its input")
    return Subject(model, *inputs.make(given.input, model, seed=given.seed))


def made(name: str, given: Any) -> Any:
    """A model by name, with the weights, mode and device that were asked for."""
    model_name.check(model_name.parse(name))
    # It imports torch.
    from torcheer.api import given as of_given

    of_given.seed_all(given.seed)
    model = model_name.model(name)
    if given.weights is not None:
        of_given.load_weights(model, given.weights)
    if given.eval:
        model.eval()
    return model if given.device is None else _moved(model, given.device)


def _moved(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # PyTorch raises each of them for some device
        raise CaptureError(
            f"--device {device}: the model cannot be moved there ({str(error).splitlines()[0]}). Name another: "
            "`torcheer doctor` lists the devices of this machine."
        ) from None


def is_recording(path: str) -> bool:
    """Whether a name is the path of a recording. A recording is a folder; a model's name never is."""
    return file.is_recording(path)


def check_free(path: Path | None, *, overwrite: bool) -> None:
    """Refuse a path that is taken before anything takes long."""
    if path is not None and path.exists() and not overwrite:
        raise CaptureError(f"{path} exists already. Give another path, or --overwrite.")
