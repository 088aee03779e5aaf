"""examples:
  torcheer summary net.py:Net                            params only: nothing is run
  torcheer summary net.py:Net -i 1x3x224x224             with shapes and FLOPs
  torcheer summary 'torchnet.py:Net(layers=96)' -i 1x128:int64 --fake    nothing is computed, whatever its size
  torcheer summary run.tch                               of a recording: torch is not needed

result: what report.to_dict() gives (docs/design/profiling.md)
"""

from __future__ import annotations

import argparse

from torcheer.cli import subject
from torcheer.cli.answer import Answer
from torcheer.cli.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subject.add_model(parser, "a model (file.py:Net, package.module:make_net), or a recording (run.tch)")
    parser.add_argument("--depth", type=int, metavar="N", help="how many levels of modules to show (all)")
    parser.add_argument("--fake", action="store_true", help="compute nothing: only shapes, FLOPs and params")
    subject.add_options(parser)


def run(given: argparse.Namespace) -> Answer:
    import torcheer as tl  # the package imports nothing until it is used

    if subject.is_recording(given.model):
        # It computes with numpy, and needs no torch.
        from torcheer.profiling import build

        report = build(tl.load(given.model).record)
    else:
        with progress(3) as step:
            one = subject.make(given, step, needs_input=False)
            step("running the model")
            report = tl.summary(one.model, *one.args, execution="fake" if given.fake else None, **one.kwargs)
    return Answer(report.table(depth=given.depth), report.to_dict())
