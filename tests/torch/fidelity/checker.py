"""Runs a case plainly and recorded, and asserts that nothing but the record tells the two apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torcheer as tl
from tests.torch.fidelity.case import Case
from tests.torch.fidelity.compare import (
    content_differences,
    differences,
    has_memory,
    module_state,
    random_state,
    seed_all,
    torch_globals,
)
from torcheer.errors import NotSavedError
from torcheer.history import ModelHistory, OpView
from torcheer.record.model import Op, Record


class _Census(TorchDispatchMode):
    """Names of the ATen calls of a run, counted without torcheer."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator):
            with self:
                return func(*args, **(kwargs or {}))
        # Marks for the profiler are no operations.
        if func.namespace != "profiler":
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Ran:
    """A model that has run, and all that can be seen afterwards."""

    def __init__(self, case: Case, layers_to_save: str | None = None, census: _Census | None = None) -> None:
        seed_all(11)
        model, args, kwargs = case.build()
        seed_all(12)
        self.history: ModelHistory | None = None
        before = torch_globals()
        with case.context():
            if layers_to_save is not None:
                # A tuple is spread, so that an argument that is a list or tuple arrives as it is.
                given = args if kwargs else (args,)
                self.history = tl.log_forward_pass(model, *given, layers_to_save=layers_to_save, **kwargs)
                self.output = self.history.output
            elif census is not None:
                with census:
                    self.output = model(*args, **kwargs)
            else:
                self.output = model(*args, **kwargs)
        self.random = random_state()
        self.globals = (before, torch_globals())
        self.model = model
        self.state = module_state(model)
        self.inputs = (args, kwargs)

    def gradients(self) -> dict[str, Any]:
        """Gradients of inputs and params after a backward pass from every output that has a graph."""
        roots = [tensor for tensor in _tensors(self.output) if tensor.requires_grad and tensor.grad_fn is not None]
        if not roots:
            return {}
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
        found = {f"input {place}": tensor.grad for place, tensor in enumerate(_tensors(self.inputs)) if tensor.is_leaf}
        if isinstance(self.model, torch.nn.Module):
            found.update({name: param.grad for name, param in self.model.named_parameters()})
        return found


def check_case(case: Case, layers_to_save: str, folder: Path) -> None:
    """Assert everything that is promised of a case."""
    plain = Ran(case)
    recorded = Ran(case, layers_to_save)
    history = recorded.history
    assert history is not None
    assert recorded.random == plain.random, "the random state after the run differs from a plain run's"
    assert differences(plain.state, recorded.state, "model") == []
    assert recorded.globals[0] == recorded.globals[1], "the capture left something of torch changed"
    assert differences(plain.inputs, recorded.inputs, "inputs") == []
    check_record(history.record)
    _check_expectations(case, history)
    if case.census:
        census = _Census()
        Ran(case, census=census)
        assert [op.function for op in history.record.aten] == census.names
    # First: printing what has no memory would end the process.
    _check_contents(history, layers_to_save, case.keeps_all)
    assert str(history)
    assert repr(history)
    for op in history:
        assert str(op)
        assert repr(op)
    for address in history.modules:
        assert str(history.modules[address])
    _check_file(history, folder)
    # Last: comparing generators consumes them, and a backward pass changes gradients.
    assert differences(plain.output, recorded.output, "output", nodes=case.same_nodes) == []
    if case.backward:
        with_grad = (plain.gradients(), recorded.gradients())
        assert differences(*with_grad, "gradient") == []


def check_record(record: Record) -> None:
    """Assert what every record fulfils."""
    for table in (record.ops, record.aten):
        for place, op in enumerate(table):
            assert op.index == place
            assert 0 <= op.call < max(len(record.calls), 1)
            for edge in op.parents:
                assert 0 <= edge.op < op.index, f"{op.name} {op.index} has the later op {edge.op} as a parent"
                assert 0 <= edge.value < len(record.values)
                assert edge.how in {"argument", "memory"}
            for value in (*op.inputs, *op.writes, *(item.value for item in op.outputs)):
                assert 0 <= value < len(record.values)
    owned = [index for op in record.ops for index in op.aten]
    assert len(set(owned)) == len(owned), "an ATen op has two owners"
    for op in record.aten:
        # What a backward pass does for the params and for what came after the model belongs to no op.
        assert op.phase != "forward" or op.owner is not None, f"the ATen op {op.name} {op.index} has no owner"
        assert op.owner is None or op.index in record.ops[op.owner].aten
    for op in record.ops:
        assert op.owner is None or op.owner < op.index
        if op.owner is None:
            assert op.index in record.layers[op.layer].ops
            assert record.layers[op.layer].ops[op.pass_index - 1] == op.index
        for edge in op.parents:
            assert _visible(record, op, edge.op), f"{op.name} {op.index} sees into op {edge.op}"
    labels = [layer.label for layer in record.layers]
    assert len(set(labels)) == len(labels)
    for value in record.values:
        assert value.producer is None or value.producer < len(record.ops)
        assert (value.kind in {"param", "buffer"}) == (value.param is not None) or value.producer is not None
    for call in record.calls:
        assert call.first_op <= call.end_op <= len(record.ops)
        if call.parent is not None:
            above = record.calls[call.parent]
            assert call.depth == above.depth + 1
            assert call.first_op == call.end_op or above.first_op <= call.first_op <= call.end_op <= above.end_op
    for op in record.ops:
        if op.kind == "op":
            inner = record.calls[op.call]
            assert inner.first_op <= op.index < inner.end_op, f"{op.name} {op.index} lies outside its module call"


def _visible(record: Record, op: Op, parent: int) -> bool:
    """Is the parent at the op's own level, or at that of an op around it?"""
    around: set[int | None] = {None}
    owner = op.owner
    while owner is not None:
        around.add(owner)
        owner = record.ops[owner].owner
    return record.ops[parent].owner in around


def _check_expectations(case: Case, history: ModelHistory) -> None:
    record = history.record
    ops = [op for op in record.ops if op.kind == "op"]
    shown = [op.name for op in ops]
    assert len(ops) >= case.min_ops, f"only {shown}"
    assert sorted({note.code for note in history.diagnostics}) == sorted(case.diagnostics), history.diagnostics
    for name in case.names:
        assert name in shown, f"no {name} among {shown}"
    functions = [op.function for op in record.aten]
    for name in case.aten:
        assert any(function == name or function.startswith(f"{name}.") for function in functions), (
            f"no {name} among {functions}"
        )
    assert record.calls[0].parent is None
    if case.check is not None:
        case.check(history)


def _check_contents(history: ModelHistory, layers_to_save: str, keeps_all: bool) -> None:
    """Kept contents have the recorded shape and dtype; outputs are what the model returned."""
    record = history.record
    if layers_to_save == "none":
        assert not record.saved
        return
    for op in history:
        if not op.has_contents:
            assert not op.outputs or not keeps_all, f"{op.label} is not kept"
            for place in range(len(op.outputs)):
                _check_unkept(op, place)
            continue
        for place, output in enumerate(op.outputs):
            tensor, value = op.tensor(place), output.value
            if not has_memory(tensor):
                # Not an assert: it would print the tensor.
                pytest.fail(f"the contents of {op.label} have no memory")
            if not tensor.is_nested:
                assert tuple(tensor.shape) == value.shape, op.label
            assert str(tensor.dtype) == f"torch.{value.dtype}", op.label
    returned = _tensors(history.output)
    assert len(history.outputs) == len(returned)
    for op, tensor in zip(history.outputs, returned, strict=True):
        if op.has_contents or keeps_all:
            assert content_differences(op.tensor(), tensor) == []


def _check_unkept(op: OpView, place: int) -> None:
    """A result that is not kept among others that are says why."""
    if not op.history.contents.has(op.outputs[place].value.index):
        with pytest.raises(NotSavedError, match=" kept: "):
            op.tensor(place)


def _check_file(history: ModelHistory, folder: Path) -> None:
    """What was saved reads back as it was."""
    path = folder / "run.tch"
    history.save(path)
    loaded = tl.load(path)
    assert loaded.op_labels == history.op_labels
    assert loaded.record == history.record
    # What a file cannot hold (meta tensors) is counted as kept in memory only.
    if set(loaded.payloads) == set(history.payloads):
        assert str(loaded) == str(history)
    for before, after in zip(history, loaded, strict=True):
        for place in range(len(before.outputs)):
            try:
                kept = after.tensor(place)
            except NotSavedError:
                continue
            assert content_differences(kept, before.tensor(place)) == [], before.label


def _tensors(structure: Any) -> list[torch.Tensor]:
    from torcheer.capture.torch.tape import named_tensors

    return [tensor for _, tensor in named_tensors(structure)]
