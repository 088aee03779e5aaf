"""Runs a specimen plainly and recorded, and asserts that nothing but the record tells the two apart."""

from __future__ import annotations

import gc
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from tests.torch.fidelity.compare import (
    content_differences,
    differences,
    module_state,
    random_state,
    seed_all,
    torch_globals,
)
from tests.zoo.specimen import Specimen
from torcheer.errors import NotSavedError
from torcheer.history import ModelHistory


class Ran:
    """A specimen that has run, and what can be seen afterwards."""

    def __init__(self, specimen: Specimen, *, training: bool, layers_to_save: str | None = None) -> None:
        seed_all(3)
        model, inputs = specimen.build()
        model.train(training)
        seed_all(4)
        self.history: ModelHistory | None = None
        before = torch_globals()
        if layers_to_save is None:
            self.output = model(**inputs)
        else:
            self.history = tl.log_forward_pass(model, layers_to_save=layers_to_save, **inputs)
            self.output = self.history.output
        self.random = random_state()
        self.globals = (before, torch_globals())
        self.model, self.inputs = model, inputs
        self.state = module_state(model)

    def gradients(self) -> dict[str, Any]:
        """Gradients of the params after a backward pass from every output that has a graph."""
        roots = [one for one in tensors_of(self.output) if one.requires_grad and one.grad_fn is not None]
        assert roots, "nothing it returned leads back to its params"
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
        return {name: param.grad for name, param in self.model.named_parameters()}


def tensors_of(structure: Any) -> list[torch.Tensor]:
    from torcheer.capture.torch.tape import named_tensors

    return [tensor for _, tensor in named_tensors(structure)]


def check_specimen(specimen: Specimen, folder: Path) -> None:
    """Assert all that the zoo promises of an architecture."""
    labels = _check_run(specimen, training=False, layers_to_save="all", folder=folder)
    again = Ran(specimen, training=False, layers_to_save="none").history
    assert again is not None
    assert again.op_labels == labels, "another recording of the same model and input has other labels"
    assert not again.record.saved
    if specimen.trains:
        _check_run(specimen, training=True, layers_to_save="none", folder=None, backward=specimen.backward)
    _check_validation(specimen)
    # Models hold themselves in cycles; many specimens run in one process.
    gc.collect()


def _check_run(
    specimen: Specimen, *, training: bool, layers_to_save: str, folder: Path | None, backward: bool = False
) -> list[str]:
    plain = Ran(specimen, training=training)
    recorded = Ran(specimen, training=training, layers_to_save=layers_to_save)
    history = recorded.history
    assert history is not None
    assert differences(plain.output, recorded.output, "output") == []
    assert recorded.random == plain.random, "the random state after the run differs from a plain run's"
    assert differences(plain.state, recorded.state, "model") == []
    assert recorded.globals[0] == recorded.globals[1], "the capture left something of torch changed"
    assert differences(plain.inputs, recorded.inputs, "inputs") == []
    check_record(history.record)
    # Some models compute positions from Python lists: that is said, and nothing else.
    assert {note.code for note in history.diagnostics} <= {"dataflow-left-torch"}
    assert str(history)
    if folder is not None:
        _check_file(history, folder)
    if backward and differences(plain.gradients(), recorded.gradients(), "gradient"):
        # oneDNN takes another kernel the first time it meets a shape: two plain runs then differ as well.
        plain, recorded = (Ran(specimen, training=training, layers_to_save=one) for one in (None, layers_to_save))
        assert differences(plain.gradients(), recorded.gradients(), "gradient") == []
    return history.op_labels


def _check_file(history: ModelHistory, folder: Path) -> None:
    path = folder / "run.tch"
    history.save(path)
    loaded = tl.load(path)
    assert loaded.record == history.record
    # What a file cannot hold (sparse tensors) is counted as kept in memory only.
    if set(loaded.payloads) == set(history.payloads):
        assert str(loaded) == str(history)
    num_kept = 0
    for before, after in zip(history, loaded, strict=True):
        for place in range(len(before.outputs)):
            try:
                kept = after.tensor(place)
            except NotSavedError:
                continue
            num_kept += 1
            assert content_differences(kept, before.tensor(place)) == [], before.label
    assert num_kept > len(history) // 2


def _check_validation(specimen: Specimen) -> None:
    seed_all(3)
    model, inputs = specimen.build()
    model.eval()
    before = random_state(), deepcopy(model.state_dict()), _attributes(model)
    result = tl.validate(model, **inputs)
    assert result, str(result)
    assert sum(check.tested for check in result.checks) > 0
    assert random_state() == before[0]
    assert differences(before[1], model.state_dict(), "model") == []
    assert _attributes(model) == before[2]


def _attributes(model: torch.nn.Module) -> dict[str, Any]:
    """Attributes and hooks of all modules. Not how often a tensor was written: what a run wrote is written back."""
    return {address: facts for address, facts in module_state(model).items() if isinstance(facts, dict)}
