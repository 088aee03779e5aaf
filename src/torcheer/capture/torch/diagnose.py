"""What a record cannot show, said in the record."""

from __future__ import annotations

from typing import Any

from torcheer.capture.torch.events import CALL
from torcheer.capture.torch.tape import Tape
from torcheer.record.model import Diagnostic, Op, Record


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
    notes += _left_torch(record)
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


# Calls that hand contents to something PyTorch's modes do not see, and calls that bring contents back.
_LEAVING = frozenset({"torch.Tensor.numpy", "torch.Tensor.__array__", "torch.Tensor.tolist", "torch.Tensor.__dlpack__"})
# torch.from_numpy is seen as the ATen call it ends with.
_COMING = frozenset(  # by function
    {"aten.lift_fresh.default", "torch.tensor", "torch.as_tensor", "torch.frombuffer", "torch.from_dlpack"}
)


def _left_torch(record: Record) -> list[Diagnostic]:
    """The first place where tensors came from numpy or Python after contents had gone there."""
    left: Op | None = None
    for op in record.ops:
        if op.function in _LEAVING and op.parents:
            left = left or op
        elif left is not None and op.function in _COMING and not op.parents:
            short = left.function.rsplit(".", 1)[-1].strip("_")
            return [
                Diagnostic(
                    "dataflow-left-torch",
                    f"The model took contents out of PyTorch ({short}) and made a tensor from outside of it later. "
                    "What happened in between is not recorded: the new tensor has no parents, though it may depend on "
                    "earlier ones.",
                    op.index,
                )
            ]
    return []


def _is_compiled(raw: Any) -> bool:
    """Is it a call of what ``torch.compile(module)`` returned?"""
    return type(raw) is tuple and raw[0] == CALL and type(raw[1]).__name__ == "OptimizedModule"
