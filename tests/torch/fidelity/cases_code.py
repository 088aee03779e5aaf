"""Models whose Python is gone or rewritten: scripted, traced, compiled, exported, fx."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory

_JIT = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is (deprecated|not supported):DeprecationWarning")


# Importing inductor scripts modules of torch's own.
_MKLDNN = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.script_method` is deprecated:DeprecationWarning")
# Dynamo asks tensors that are no leaves for their gradient.
_GRAD = pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf Tensor:UserWarning")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))) * 2


def scripted(num_runs: int) -> Any:
    """Newly scripted, or after the runs in which TorchScript finds out how to optimise."""

    class Cold(Small):
        pass

    model = torch.jit.script(Cold())
    for _ in range(num_runs):
        model(inputs())
    return model


class Holder(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.before(x)) + 1


def inputs() -> Tensor:
    return torch.randn(2, 3)


def exported() -> Any:
    return torch.export.export(Small(), (inputs(),)).module()


def traced() -> Any:
    return torch.jit.trace(Small(), inputs())


def compiled(backend: str) -> Any:
    torch._dynamo.reset()
    return torch.compile(Small(), backend=backend)


def check_small(history: ModelHistory) -> None:
    """Two matrix products, one after the other, with the model's params, up to the output."""
    products = [op for op in history.record.aten if op.function in {"aten.addmm.default", "aten.linear.default"}]
    assert len(products) >= 2
    record = history.record
    read = {record.params[param].address for op in record.ops for param in op.params}
    for name in ("first.weight", "first.bias", "second.weight", "second.bias"):
        assert any(address.endswith(name) for address in read), read
    (output,) = history.outputs
    reached = {output}
    todo = [output]
    while todo:
        fresh = set(todo.pop().parents) - reached
        reached |= fresh
        todo += fresh
    assert set(history.inputs) <= reached
    assert {"relu", "mul"} <= {op.name for op in reached}


def check_held(history: ModelHistory) -> None:
    check_small(history)
    before = history["before"]
    assert before.children, "the inner model does not read what came before it"
    assert any(op.module.startswith("inner") for op in history)


def case(name: str, build: Any, **options: Any) -> Case:
    return Case(name, model_of(lambda: (build(), inputs())), min_ops=3, **{"check": check_small, **options})


# The eager source is recorded, and its autograd nodes are those of eager code.
COMPILED: dict[str, Any] = {"same_nodes": False, "diagnostics": ("compiled-ran-eagerly",)}

CASES = [
    case("jit_script", lambda: scripted(0), marks=(_JIT,)),
    case("jit_script_warm", lambda: scripted(3), marks=(_JIT,)),
    case("jit_trace", traced, marks=(_JIT,)),
    case("jit_script_submodule", lambda: Holder(scripted(0)), check=check_held, marks=(_JIT,)),
    case("jit_trace_submodule", lambda: Holder(traced()), check=check_held, marks=(_JIT,)),
    case("compile_eager", lambda: compiled("eager"), **COMPILED),
    case("compile_aot_eager", lambda: compiled("aot_eager"), **COMPILED),
    case("compile_inductor", lambda: compiled("inductor"), **COMPILED, marks=(_MKLDNN,)),
    case("compile_submodule", lambda: Holder(compiled("eager")), check=check_held, **COMPILED, marks=(_GRAD,)),
    case("exported_program", exported),
    case("exported_submodule", lambda: Holder(exported()), check=check_held),
    case("fx", lambda: torch.fx.symbolic_trace(Small())),
    case("fx_submodule", lambda: Holder(torch.fx.symbolic_trace(Small())), check=check_held),
]
