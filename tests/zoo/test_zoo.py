"""Real architectures of every kind: recording them changes nothing, and the record is true.

The specimens marked slow run with ``make zoo`` only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo import (
    nets_detection,
    nets_generative,
    nets_graph,
    nets_sequence,
    nets_vision,
    transformers_models,
)
from tests.zoo.checker import check_specimen
from tests.zoo.specimen import Specimen

_GROUPS = (nets_vision, nets_detection, nets_generative, nets_sequence, nets_graph, transformers_models)
SPECIMENS = [specimen for group in _GROUPS for specimen in group.SPECIMENS]


def test_the_zoo_is_large_and_no_specimen_stands_twice() -> None:
    names = [specimen.name for specimen in SPECIMENS]
    assert len(set(names)) == len(names)
    assert len(names) >= 150
    assert all(specimen.why for specimen in SPECIMENS if not (specimen.trains and specimen.backward))


@pytest.mark.filterwarnings("default")  # models written for several versions of torch use what one deprecates
@pytest.mark.parametrize(
    "specimen", [pytest.param(one, id=one.name, marks=() if one.quick else pytest.mark.slow) for one in SPECIMENS]
)
def test_recording_changes_nothing_and_is_true(specimen: Specimen, tmp_path: Path) -> None:
    check_specimen(specimen, tmp_path)
