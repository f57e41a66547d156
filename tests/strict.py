"""Examples as an author checks their types: strict mypy without the configuration of this repository."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("MYPY_CACHE_DIR", ROOT / ".mypy_cache")) / "strict"
"""One for all examples, since mypy reads all of dra_sdk for the first."""


def type_errors(*files: Path, search: Sequence[Path] = ()) -> str:
    """What mypy prints about these files, which may import modules from `search` too; empty if nothing is wrong."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", *map(str, files)]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, (*search, ROOT)))}
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of pytest wait for the cache instead of filling it too
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    return done.stdout + done.stderr if done.returncode else ""
