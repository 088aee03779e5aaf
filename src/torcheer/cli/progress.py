"""Progress on stderr while something takes long: a bar over the steps, on a terminal only.

The bar is drawn between steps and never during one: a thread that redraws it would be in the way of what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torcheer.cli import ranks

Step = Callable[[str], None]


@contextmanager
def progress(num_steps: int) -> Iterator[Step]:
    """Yields a function to be called with what begins now, ``num_steps`` times."""
    if not sys.stderr.isatty() or not ranks.speaks():
        yield lambda _what: None
        return
    # Its import takes a moment, and most runs in scripts never need it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=num_steps, completed=-1)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)
            bar.refresh()

        yield step
