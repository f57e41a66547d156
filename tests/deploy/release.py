"""The dry run of a release: `python -m tests.deploy.release FOLDER` builds wheels and sdists twice and compares them.

Beside them it writes their provenance: from which commit, by which tools (in-toto Statement v1, SLSA provenance v1). It
is not signed; whoever publishes signs it.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributions import distributions

ROOT = Path(__file__).parents[2]
PROVENANCE = "provenance.json"
BUILD = (sys.executable, "-m", "hatchling", "build")
TEXTS = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml")
PARTS = ("dra_sdk", "drivers", "deploy", "templates", *TEXTS)


def checkout(target: Path) -> Path:
    """Copy what a release is built from."""
    target.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "build"))
        else:
            shutil.copyfile(ROOT / name, target / name)
    return target


def built(root: Path) -> dict[str, bytes]:
    """Build wheel and sdist of each distribution of a checkout; the files by name."""
    files: dict[str, bytes] = {}
    for distribution in distributions(root):
        subprocess.run(BUILD, cwd=distribution.folder, check=True, capture_output=True)
        files |= {path.name: path.read_bytes() for path in (distribution.folder / "dist").iterdir()}
    return files


def commit() -> tuple[str, bool]:
    """The commit that is checked out, and whether files differ from it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    changes = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True).stdout
    return head.strip(), bool(changes)


def provenance(files: Mapping[str, bytes], head: str, *, changed: bool) -> dict[str, object]:
    """The statement about these files. `changed`: whether the working tree differs from the commit `head`."""
    source = {"name": "source", "digest": {"gitCommit": head}, "annotations": {"changed": changed}}
    tools = [{"name": "hatchling", "annotations": {"version": version("hatchling")}}]
    definition = {
        "buildType": "python -m hatchling build",
        "externalParameters": {"targets": sorted(files)},
        "resolvedDependencies": [source, *tools],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": sha256(content).hexdigest()}} for name, content in sorted(files.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": definition,
            "runDetails": {"builder": {"id": "make release", "version": {"python": platform.python_version()}}},
        },
    }


def main(target: Path) -> int:
    """Build twice; status 1 if the results differ."""
    with TemporaryDirectory() as temporary:
        first, second = (built(checkout(Path(temporary, name))) for name in ("one", "two"))
    target.mkdir(parents=True, exist_ok=True)
    for name, content in sorted(first.items()):
        (target / name).write_bytes(content)
        same = "twice the same" if second.get(name) == content else "DIFFERENT when it is built again"
        print(f"{sha256(content).hexdigest()}  {name}  {len(content)} bytes, {same}")
    head, changed = commit()
    (target / PROVENANCE).write_text(json.dumps(provenance(first, head, changed=changed), indent=2) + "\n")
    print(f"{PROVENANCE}: commit {head}{', with changes that are not committed' if changed else ''}")
    return 0 if first == second else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
