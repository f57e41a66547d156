"""`python -m tests.newest [PYTEST ARGUMENT...]`: runs tests on the newest Python, that of Debian's unstable suite.

Debian, with the newest versions of all dependencies, is installed in the cache once and run in namespaces of its own,
without network. Needs root, debootstrap, and the network for the installation. `--remove` removes it from the cache, so
that the next run installs what is the newest then.

DRA_SDK_CACHE          the cache, ~/.cache/dra-sdk by default
DRA_SDK_DEBIAN_MIRROR  the Debian archive, by default the one that apt uses on this machine
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests import vectors
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.debian import SEARCH_PATH
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness.layers import CHECKOUT, PYTHON, System, ensure_layers, in_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.harness.layers import Layers

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = f"{CHECKOUT}/tests/newest/run-tests"
VECTORS: Final = "/lab/vectors"
NEWEST: Final = System(
    "newest",
    "the system with the newest Python",
    "sid",
    ("python3", "iproute2", "gcc", "libc6-dev"),  # the compiler makes the stub of NVML
    mounts=(VECTORS,),
)
FAILED_TO_RUN: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Runs the tests; returns pytest's exit status, or 2 after a message on standard error."""
    try:
        cache = Cache.from_env()
        if arguments == ["--remove"]:
            shutil.rmtree(cache.root / NEWEST.name, ignore_errors=True)
            return 0
        return run_tests(ensure_layers(cache, ROOT, Progress(), NEWEST), ROOT, arguments)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED_TO_RUN


def run_tests(layers: Layers, checkout: Path, arguments: Sequence[str], tables: Path = vectors.ROOT) -> int:
    """Runs pytest in the system, with the upstream tables if they are at `tables`; returns its exit status."""
    read, environment = {CHECKOUT: checkout, PYTHON: layers.python}, {"PATH": SEARCH_PATH}
    if tables.is_dir():
        read[VECTORS] = tables
        environment["DRA_SDK_VECTORS"] = VECTORS
    with layers.in_use():
        command = in_root(layers.base, ["sh", SCRIPT, *arguments], read=read, write={})
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
