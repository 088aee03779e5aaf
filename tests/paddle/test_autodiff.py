"""autodiff across frameworks: equal networks are equal, planted mistakes are named at their layer."""

from __future__ import annotations

import pytest

import torcheer as tl
from tests.paddle import bugs
from tests.paddle.model_pairs import MODEL_PAIRS

# Said by Paddle whenever a BatchNorm trains.
pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track global mean:UserWarning")


@pytest.mark.parametrize("name", MODEL_PAIRS)
@pytest.mark.parametrize("torch_first", [False, True])
def test_equal_networks_are_equal(name: str, torch_first: bool) -> None:
    pair = MODEL_PAIRS[name]
    layer, module = pair.make()
    models = (module, layer) if torch_first else (layer, module)
    report = tl.autodiff(*models, pair.inputs(), options={"atol": 1e-4, "steps": 3})
    assert report, str(report)
    assert "SUCCESS !!!" in str(report)
    assert report.num_forward > 5
    assert report.num_backward > 5
    assert report.num_steps == 3


@pytest.mark.parametrize("bug", bugs.BUGS, ids=lambda bug: bug.name)
def test_a_mistake_is_named_at_its_layer(bug: bugs.Bug) -> None:
    report = bugs.run(bug)
    assert bugs.names_the_layer(report, bug), f"{report.blamed}\n{report}"
    assert "FAILED !!!" in str(report)
