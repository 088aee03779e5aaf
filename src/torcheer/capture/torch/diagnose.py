"""What a record cannot show, said in the record."""

from __future__ import annotations

from typing import Any

from torcheer.capture.torch.tape import CALL, Tape
from torcheer.record.model import Diagnostic, Record


def diagnose(tape: Tape, record: Record) -> list[Diagnostic]:
    """Everything the reader must know to read this record rightly."""
    notes = [
        Diagnostic(
            "thread-not-recorded",
            f"The thread {name!r} worked during the run. What it did is not recorded, because PyTorch's modes see one "
            "thread only; tensors it made appear as constants.",
        )
        for name in tape.unseen_threads
    ]
    if tape.has_compiled_code or any(_is_compiled(raw) for raw in tape.events):
        notes.append(
            Diagnostic(
                "compiled-ran-eagerly",
                "torch.compile'd code ran as its eager source, so that its ops can be seen. "
                "Kernels that the compiler fuses may round differently.",
            )
        )
    returned = record.run.output_structure
    if returned in {"generator", "async_generator", "coroutine"}:
        notes.append(
            Diagnostic(
                "generator-not-run",
                f"The model returned a {returned}, and nothing of it has run yet. "
                "Record a function that consumes it: log_forward_pass(lambda x: list(model(x)), x).",
            )
        )
    return notes


def _is_compiled(raw: Any) -> bool:
    """Is it a call of what ``torch.compile(module)`` returned?"""
    return type(raw) is tuple and raw[0] == CALL and type(raw[1]).__name__ == "OptimizedModule"
