"""examples:
  torcheer watch train.py --epochs 3                     options of torcheer go before the script
  torcheer watch --log-freq 1 --name first train.py
  torcheer watch --nan stop train.py                     end where NaN is born, and name the operation
  torcheer watch --backend store train.py                only keep it: look later with `torcheer open torcheer_runs`
  torcheer watch --backend tensorboard -m package.train
  torchrun --nproc-per-node 2 --no-python torcheer watch train.py

The script needs no change: the models whose params its optimizers hold are watched from their first call on, as
tl.watch does it. Where it ends with an exit code of its own, that is the exit code.

result: folder, address, num_steps, models, and `alerts`, a list of {step, rule, message}
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.cli.answer import DIFFERENT, FAILED, Answer, say
from torcheer.errors import NonFiniteError, WatchError

if TYPE_CHECKING:
    from torcheer.watching.watch import Watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.add_argument("--log-freq", type=int, default=100, metavar="N", help="which steps are logged: each Nth (100)")
    parser.add_argument(
        "--log",
        default="io,io_grad,params,params_grad",
        metavar="WHAT",
        help="any of io,io_grad,params,params_grad (all)",
    )
    parser.add_argument(
        "--backend",
        default="standalone",
        metavar="NAME",
        help="standalone: also show it live (default); store; tensorboard; wandb; several with commas between",
    )
    parser.add_argument(
        "--nan",
        choices=("warn", "stop"),
        help="check every step, and name the operation in which NaN is born; stop: end there, with exit code 1",
    )
    parser.add_argument("--dir", metavar="FOLDER", help="where runs are kept (torcheer_runs)")
    parser.add_argument("--name", help="of the run (the model's class and the time)")
    parser.add_argument("--resume", action="store_true", help="go on with the run of that name")
    parser.add_argument("--port", type=int, default=5000, help="of the explorer (5000, or the next that is free)")
    parser.add_argument("script", metavar="SCRIPT", help="the program that trains")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="its own arguments")


def run(given: argparse.Namespace) -> Answer:
    # torch, by way of the api.
    from torcheer.api.watch import watching_script

    if not given.is_module and not Path(given.script).is_file():
        raise WatchError(f"There is no script {given.script!r}. Give its path, or -m and the name of a module.")
    options = {
        "log": [one for one in given.log.split(",") if one],
        "log_freq": given.log_freq,
        "backend": given.backend.split(","),
        "nan": given.nan,
        "dir": given.dir,
        "name": given.name,
        "resume": given.resume,
        "standalone_port": given.port,
    }
    with _as_the_program(given), watching_script(**options) as watches:
        code = _run_script(given)
    if not watches:
        say("note: no optimizer of torch.optim had params of a model that was called: nothing was watched.")
        return Answer(code=code or FAILED)
    return _answer(watches[0], code)


def _run_script(given: Any) -> int:
    """Run the program as Python would; return its exit code."""
    try:
        if given.is_module:
            runpy.run_module(given.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(given.script, run_name="__main__")
    except NonFiniteError as error:
        say(f"torcheer: {error}")
        return DIFFERENT
    except SystemExit as ended:
        if isinstance(ended.code, str):
            say(ended.code)
            return 1
        return int(ended.code or 0)
    return 0


@contextmanager
def _as_the_program(given: Any) -> Iterator[None]:
    """What the program finds in ``sys`` is what it finds when Python runs it."""
    before = sys.argv, list(sys.path)
    sys.argv = [given.script, *given.arguments]
    sys.path.insert(0, str(Path.cwd() if given.is_module else Path(given.script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def _answer(watch: Watch, code: int) -> Answer:
    # It computes with numpy.
    from torcheer.store import Run

    with Run.open(watch.folder, watch.rank) as run:
        alerts = [{"step": alert.step, "rule": alert.rule, "message": alert.message} for alert in run.alerts()]
        last, models = run.last_step, sorted({one.model for one in run.series})
    result = {"folder": str(watch.folder), "num_steps": watch.step + 1, "models": models, "alerts": alerts}
    lines = [f"Watched {watch.step + 1} steps, the last logged is {last}. See it: torcheer open {watch.folder}"]
    lines += _told(alerts)
    return Answer("\n".join(lines), result, [str(watch.folder)], code=code)


def _told(alerts: list[dict[str, Any]]) -> list[str]:
    """The alerts as lines; what comes again and again is told once, with how often."""
    steps: dict[str, list[int]] = {}
    for alert in alerts:
        steps.setdefault(alert["message"], []).append(alert["step"])
    return [
        f"step {given[0]}{f' and {len(given) - 1} times more' if len(given) > 1 else ''}: {message}"
        for message, given in steps.items()
    ]
