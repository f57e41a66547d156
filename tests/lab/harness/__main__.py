"""`python -m tests.lab.harness prepare|test|remove`: the virtual machine by hand.

prepare   makes its files, if they are not in the cache
test      boots it and runs pytest inside; further arguments are pytest's, all tests by default; after `--then` come
          those for another boot of the same machine
remove    removes its files from the cache

KUBE_VERSION           the Kubernetes release of control plane and node
DRA_SDK_CACHE          the cache, ~/.cache/dra-sdk by default
DRA_SDK_DEBIAN_MIRROR  the Debian archive, by default the one that apt uses on this machine
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

from tests.cluster.harness.cache import DEFAULT_VERSION, Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness.hardware import Hardware
from tests.lab.harness.layers import compile_checkout, ensure_layers
from tests.lab.harness.machine import TIME_LIMIT, Limits, run_tests
from tests.lab.harness.outcome import INSIDE, NEEDS_KERNEL, REBOOTED, ROOT
from tests.lab.harness.plane import ensure_binaries, node_plane

if TYPE_CHECKING:
    from types import FrameType


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns 0, 2 after a message on standard error, or pytest's own status."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.lab.harness", description=__doc__, formatter_class=shape)
    parser.add_argument("command", choices=("prepare", "test", "remove"))
    parser.add_argument("--seconds", type=float, default=TIME_LIMIT, help="how long a run may take")
    parser.add_argument(
        "--count-instructions", action="store_true", help="a clock that does not follow this machine's load"
    )
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "test":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        cache = Cache.from_env()
        if options.command == "remove":
            shutil.rmtree(cache.root / "lab", ignore_errors=True)
            return 0
        return _with_layers(cache, options, rest)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _with_layers(cache: Cache, options: argparse.Namespace, rest: list[str]) -> int:
    progress = Progress(verbose=options.command == "test")
    layers = ensure_layers(cache, ROOT, progress)
    version = os.environ.get("KUBE_VERSION") or DEFAULT_VERSION
    if options.command == "prepare":
        ensure_binaries(cache, version, progress)
        return 0
    compile_checkout(layers, ROOT, progress)
    boots, limits = _boots(rest), Limits(options.seconds)
    if options.count_instructions:
        found = run_tests(layers, ROOT, boots, progress, hardware=Hardware(counts=True), limits=limits)
    else:
        with node_plane(cache, version, progress) as plane:
            found = run_tests(layers, ROOT, boots, progress, plane=plane, limits=limits)
    if found.status is None:
        raise HarnessError(f"{found.ended}; its console ends:\n{found.tail()}")
    return found.status


def _boots(arguments: list[str]) -> list[list[str]]:
    """Returns the arguments for pytest of each boot."""
    if not arguments:
        return [[INSIDE, NEEDS_KERNEL], [REBOOTED]]
    boots: list[list[str]] = [[]]
    for each in arguments:
        if each == "--then":
            boots.append([])
        else:
            boots[-1].append(each)
    return boots


def _end(_number: int, _frame: FrameType | None) -> None:
    """Ends as after Ctrl-C, so that the machine is removed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
