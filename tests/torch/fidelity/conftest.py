"""Assertions in the files that the test file imports show their values too."""

import pytest

for _name in (
    "checker", "cases_run", "cases_layers", "cases_transforms", "cases_code", "cases_tensors", "cases_distributed",
    "cases_outputs",
):  # fmt: skip
    pytest.register_assert_rewrite(f"tests.torch.fidelity.{_name}")
