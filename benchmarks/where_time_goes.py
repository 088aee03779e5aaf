"""Which part of a capture costs how much, on the MLP of 100 tiny operations or another model: where the floor is.

Each rung does what the one above it does and something more. The empty modes are the floor: what PyTorch
itself takes to call Python for every operation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import models
import torch
from measure import CLOCKS, Task, measure
from report import table
from torch.overrides import TorchFunctionMode

import torcheer as tl
from torcheer.capture.torch.inputs import arrange
from torcheer.capture.torch.modes import AtenLevel, FunctionLevel
from torcheer.capture.torch.modules import recording
from torcheer.capture.torch.private import TorchDispatchMode
from torcheer.capture.torch.session import TorchSession
from torcheer.capture.torch.tape import Tape

MODELS = {"mlp": models.mlp, "gpt2": models.gpt2, "bert": models.bert, "resnet50": models.resnet50}


class EmptyFunctionMode(TorchFunctionMode):
    """Sees every Python call and does nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


class EmptyDispatchMode(TorchDispatchMode):
    """Sees every ATen call and does nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as AtenLevel has it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func._op(*args, **kwargs) if kwargs else func._op(*args)


def rungs(case: models.Case) -> dict[str, Callable[[], Any]]:
    """The ladder, from nothing to everything."""
    model, x = case.model, case.x

    def under(*modes: Any) -> Any:
        if len(modes) == 1:
            with modes[0]:
                return model(x)
        with modes[0], modes[1]:
            return model(x)

    def two_levels() -> Any:
        tape = Tape()
        with AtenLevel(tape, None), FunctionLevel(tape, None):
            return model(x), tape

    def with_modules() -> Any:
        tape = Tape()
        level = FunctionLevel(tape, None)
        with AtenLevel(tape, None), recording(tape, level), level:
            return model(x), tape

    def session() -> Any:
        session = TorchSession(model, arrange(model, (x,), {}), None)
        return session.run(), session

    def record() -> Any:
        history = tl.log_forward_pass(model, x, layers_to_save=None)
        return history, history.record

    return {
        "plain": lambda: model(x),
        "empty function mode": lambda: under(EmptyFunctionMode()),
        "empty dispatch mode": lambda: under(EmptyDispatchMode()),
        "both empty": lambda: under(EmptyDispatchMode(), EmptyFunctionMode()),
        "our two levels": two_levels,
        "+ module calls": with_modules,
        "+ session: root call, snapshot, facts": session,
        "= log_forward_pass, nothing kept": lambda: tl.log_forward_pass(model, x, layers_to_save=None),
        "+ building the record": record,
        "log_forward_pass, all kept": lambda: tl.log_forward_pass(model, x, layers_to_save="all"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--grad", action="store_true", help="with gradients enabled")
    parser.add_argument("--rounds", type=int, help="turns of ten calls each for the MLP (40), of one for the rest (12)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    is_tiny = options.model == "mlp"
    case = models.build(MODELS[options.model])
    tasks = {name: Task(run, calls=10 if is_tiny else 1) for name, run in rungs(case).items()}
    with torch.set_grad_enabled(options.grad):
        timings = measure(tasks, options.rounds or (40 if is_tiny else 12), options.clock)
        num_ops = len(tl.log_forward_pass(case.model, case.x, layers_to_save=None))
    plain = timings["plain"]
    rows = []
    for name, timing in timings.items():
        beyond_us = (timing.min_ms - plain.min_ms) * 1e3 / num_ops
        rows.append((
            name, f"{timing.min_ms:.3f} ms", f"{timing.min_ms / plain.min_ms:.2f}×", f"{beyond_us:.1f} µs",
            f"{timing.spread:.2f}",
        ))  # fmt: skip
    print(f"{options.model}, {num_ops} ops, {'grad' if options.grad else 'no_grad'}, threads {options.threads}\n")
    print(table(("rung", "minimum", "÷ plain", "beyond plain, per op", "spread"), rows, num_left=1))


if __name__ == "__main__":
    main()
