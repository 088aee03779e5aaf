"""Paddle's own warnings, each by its text. Those of anything else stay errors."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    # Said on import where no compiler cache is installed; nothing here compiles.
    warnings.filterwarnings("ignore", message="No ccache found")
    paddle = pytest.importorskip("paddle")
