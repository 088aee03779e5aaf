"""Models made at random: recording them changes nothing, and the record is true, as for every specimen of the zoo."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.zoo.checker import check_specimen
from tests.zoo.random_programs import BATCH, SIZE, Step, Whole, programs
from tests.zoo.specimen import Specimen

ANYHOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def check(steps: list[Step]) -> None:
    specimen = Specimen("program", "random", lambda: (Whole(steps), {"x": torch.randn(BATCH, SIZE)}))
    with tempfile.TemporaryDirectory() as folder:
        check_specimen(specimen, Path(folder))


@settings(max_examples=30, derandomize=True, **ANYHOW)
@given(programs)
def test_any_program(steps: list[Step]) -> None:
    check(steps)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=1000, **ANYHOW)
@given(programs)
def test_a_thousand_programs(steps: list[Step]) -> None:
    check(steps)
