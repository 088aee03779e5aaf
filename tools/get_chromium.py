"""Makes sure that there is a Chromium for the tests of the page, and prints where: ``python tools/get_chromium.py``.

``TORCHEER_CHROMIUM`` names one. Where there is none and this is Debian or a relative of it with rights to install,
the system's package is installed; elsewhere the message says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

VARIABLE = "TORCHEER_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


class MissingBrowserError(Exception):
    """There is no Chromium, and how to get one."""


def chromium() -> str:
    """Return the path of a Chromium."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingBrowserError(f"{VARIABLE}={named} is not a program that can be run.")
        return found
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise MissingBrowserError(
            "The tests of the explorer's page need Chromium, and there is none. Install it (Debian, Ubuntu: "
            f"apt-get install chromium), or name the program of another: {VARIABLE}=/path/to/chrome make test"
        )
    return found


def install() -> None:
    """Install Debian's package."""
    # Without recommendations: these are desktops' icons and a second driver.
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium", "fonts-liberation"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"Installing a browser for the tests of the page: {' '.join(command)}", file=sys.stderr)
    if subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode:
        # A fresh image has no list of packages yet, or an old one.
        subprocess.run(["apt-get", "update", "--quiet"], env=environment, stdout=sys.stderr, check=False)
        subprocess.run(command, env=environment, stdout=sys.stderr, check=False)


def can_install() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def main() -> int:
    try:
        print(f"browser: {chromium()}")
    except MissingBrowserError as error:
        if os.environ.get(VARIABLE) or not can_install():
            print(error, file=sys.stderr)
            return 1
        install()
        try:
            print(f"browser: {chromium()}")
        except MissingBrowserError as still:
            print(still, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
