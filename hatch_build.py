"""Builds the explorer's page when the package is built, if it is not built yet (``tools/build_page.py``).

Wheels, sdists and editable installs all pass here. An sdist carries the built page, so a wheel made from one needs
no Node; only a fresh clone does, and then Node comes as a build dependency.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import build_page  # noqa: E402 - found only with the line above


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook of hatchling that ``pyproject.toml`` names."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for Node only where the page has to be built and the system's Node cannot do it."""
        return [] if build_page.is_built() or build_page.system_node() else [build_page.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling calls it so
        """Build the page before files are collected."""
        if not build_page.is_built():
            build_page.build()
