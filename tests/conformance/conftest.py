"""The TorchLens seed, run once for all its tests."""

from __future__ import annotations

import pytest

import torcheer as tl
from tests.conformance import torchlens_seed


@pytest.fixture(scope="session")
def seed() -> torchlens_seed.Seed:
    return torchlens_seed.run()


@pytest.fixture(scope="session")
def history(seed: torchlens_seed.Seed) -> tl.ModelHistory:
    return seed.history
