"""torch.compile under a capture: compiled code runs as its eager source, so that its ops can be seen.

Dynamo refuses to compile under a dispatch mode, and what it refuses once it marks as not to be compiled ever
after. So while a capture runs it must not be asked: PyTorch's own stance "force_eager" does that. Importing
Dynamo takes seconds, so the stance is only taken once something in the process uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torcheer.capture.torch.private import no_compiled_modules


@contextmanager
def eager_source(note: Callable[[], None]) -> Iterator[None]:
    """Run compiled code eagerly inside the block; ``note()`` is told of modules that were compiled in place."""
    with ExitStack() as stack:
        taken: list[bool] = []

        def take_stance() -> None:
            if not taken:
                taken.append(True)
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                stack.enter_context(no_compiled_modules(note))

        if "torch._dynamo" in sys.modules:
            take_stance()
        original = torch.compile

        def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
            # Also what torch.cond and while_loop call; it imports Dynamo.
            take_stance()
            return original(*args, **kwargs)

        torch.compile = compile_eagerly
        try:
            yield
        finally:
            torch.compile = original
