"""The dry run of a release: `python -m tests.deploy.release FOLDER` builds wheel and sdist twice and compares them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PARTS = (
    "dra_sdk",
    "drivers",
    "deploy",
    "templates",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "pyproject.toml",
)


def checkout(target: Path, *more: str) -> Path:
    """A copy of what a release is built from; `more` names further folders of the repository."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (*PARTS, *more):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "build"))
        else:
            shutil.copyfile(ROOT / name, target / name)
    return target


def built(folder: Path) -> dict[str, bytes]:
    """The files that a build makes there, by name."""
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=folder, check=True, capture_output=True)
    return {each.name: each.read_bytes() for each in (folder / "dist").iterdir()}


def main(target: Path) -> int:
    """Build twice; status 1 if the results differ."""
    with TemporaryDirectory() as temporary:
        first, second = (built(checkout(Path(temporary, name), "tests")) for name in ("one", "two"))
    target.mkdir(parents=True, exist_ok=True)
    for name, content in sorted(first.items()):
        (target / name).write_bytes(content)
        same = "twice the same" if second.get(name) == content else "DIFFERENT when it is built again"
        print(f"{sha256(content).hexdigest()}  {name}  {len(content)} bytes, {same}")
    return 0 if first == second else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
