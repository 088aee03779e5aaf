"""A recorded run is the plain run, to the last bit, for everything that PyTorch can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch.fidelity import (
    cases_code,
    cases_distributed,
    cases_layers,
    cases_outputs,
    cases_run,
    cases_tensors,
    cases_transforms,
)
from tests.torch.fidelity.case import Case
from tests.torch.fidelity.checker import check_case

_GROUPS = (
    cases_run, cases_layers, cases_transforms, cases_code, cases_tensors, cases_distributed, cases_outputs,
)  # fmt: skip
CASES = [case for group in _GROUPS for case in group.CASES]


@pytest.mark.parametrize("layers_to_save", ["none", "all"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=case.marks) for case in CASES])
def test_recorded_run_is_the_plain_run(case: Case, layers_to_save: str, tmp_path: Path) -> None:
    check_case(case, layers_to_save, tmp_path)
