"""examples:
  torcheer trace net.py:Net -i 1x3x224x224                    print what ran
  torcheer trace net.py:Net -i 1x3x224x224 -o run.tch         keep it: open, export and compare read it later
  torcheer trace net.py:make -i ids=1x16:int64:1000 --backward --save none
  torcheer trace net.py:Net -i x.npy --layer features.6       print one layer
  torcheer trace net.py:Net -i 1x3x64x64 --draw net.svg       draw its graph
  torchrun --nproc-per-node 2 --no-python torcheer trace net.py:make -i 4x8 -o ranks    one recording for each rank

result: model, framework, num_ops, num_layers, num_modules, num_params, error, time_ns, recording, and
`layers`: a list of {label, shape, dtype, module, source}
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.cli import ranks, subject
from torcheer.cli.answer import FAILED, Answer, say
from torcheer.cli.failure import described
from torcheer.cli.progress import Step, progress
from torcheer.errors import TorcheerError

if TYPE_CHECKING:
    from torcheer.history import ModelHistory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subject.add_model(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="run.tch", help="write the recording there")
    parser.add_argument("--overwrite", action="store_true", help="replace a recording that is there")
    parser.add_argument(
        "--save",
        default="all",
        metavar="WHAT",
        help="whose tensors to keep: all (default), none, or modules, labels and positions, with commas between",
    )
    parser.add_argument("--backward", action="store_true", help="also record a backward pass, from the output's mean")
    parser.add_argument("--layer", metavar="KEY", help="print this layer instead: a label, a module or a position")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the graph: .svg, .png, .pdf, .dot or .html")
    subject.add_options(parser)


def run(given: argparse.Namespace) -> Answer:
    output = None if given.output is None else ranks.recording_of(given.output)
    subject.check_free(output, overwrite=given.overwrite)
    num_steps = 3 + given.backward + (given.output is not None) + (given.draw is not None)
    with progress(num_steps) as step:
        one = subject.make(given, step)
        step("recording")
        return _recorded(given, one, step)


def _recorded(given: argparse.Namespace, one: subject.Subject, step: Step) -> Answer:
    import torcheer as tl  # the package imports nothing until it is used

    try:
        history = tl.log_forward_pass(one.model, *one.args, layers_to_save=_keys(given.save), **one.kwargs)
    except TorcheerError:
        raise
    except Exception as error:
        # The user's model raised: what ran until then is the answer.
        partial = getattr(error, "model_history", None)
        if partial is None:
            raise
        say(ranks.named(described(error)))
        answer = _answer(given, partial, step)
        answer.code, answer.error = FAILED, error
        return answer
    if given.backward:
        step("backward")
        history.log_backward(_loss(history.output))
    return _answer(given, history, step)


def _answer(given: argparse.Namespace, history: ModelHistory, step: Step) -> Answer:
    files = []
    if given.output is not None:
        step("writing the recording")
        path = ranks.recording_of(given.output)
        if ranks.rank() is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        history.save(path, overwrite=given.overwrite)
        files.append(str(given.output))
    if given.draw is not None and ranks.speaks():
        step("drawing")
        history.draw(given.draw)
        files.append(str(given.draw))
    shown = str(history) if given.layer is None else str(history[position(given.layer)])
    notes = [diagnostic.message for diagnostic in history.diagnostics]
    return Answer(shown, facts(history) | {"recording": str(given.output or "") or None}, files, notes)


def facts(history: ModelHistory) -> dict[str, Any]:
    """What a program wants to know of a run."""
    record = history.record
    layers = [
        {
            "label": op.label,
            "shape": None if op.shape is None else list(op.shape),
            "dtype": op.dtype,
            "module": op.module,
            "source": op.source,
        }
        for op in history
    ]
    return {
        "model": record.run.model,
        "framework": record.run.framework,
        "num_ops": len(history),
        "num_layers": len(record.layers),
        "num_modules": len(record.modules),
        "num_params": sum(param.num_elements for param in history.params.values() if param.kind == "param"),
        "time_ns": record.run.time_ns,
        "error": record.run.error,
        "layers": layers,
    }


def position(key: str) -> Any:
    """A key of ``history[…]`` as a command line gives it: numbers are positions."""
    return int(key) if key.lstrip("-").isdigit() else key


def _keys(text: str) -> Any:
    return text if text in {"all", "none"} else [position(key) for key in text.split(",") if key]


def _loss(output: Any) -> Any:
    # torch, by way of the api.
    from torcheer.api.given import loss_of

    return loss_of(output)
