"""`python -m tests.cluster.harness up|down|status|build|helm|image|check|packages`: clusters by hand.

up        brings a cluster up, and leaves it running
down      removes it
status    prints which of its components run; 0 if all do
build     builds the Kubernetes binaries and downloads the container runtime, if they are not in the cache
helm      builds Helm, for the tests of the chart, if it is not in the cache
image     builds the image of the drivers, for the tests with pods of it, if it is not in the cache
check     names the programs that this machine lacks, with the command that installs them; 2 if it lacks any
packages  prints the Debian packages that this machine lacks for these tests and the Debian systems

KUBE_VERSION   1.<minor>.<patch>, 1.36.3 by default
ALPHA=1        turns on all alpha feature gates
GATES          sets single gates: `Name=true,Other=false`
DRA_SDK_CACHE  the cache of the binaries, ~/.cache/dra-sdk by default
VERBOSE=1      prints each package that is built and each command line
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from . import debian
from .build import ensure_kubernetes
from .build import missing as missing_binaries
from .cache import DEFAULT_VERSION, Cache, Version
from .cluster import Cluster, take_down
from .driver_image import ensure_image
from .errors import HarnessError
from .helm import ensure_helm
from .layout import DEFAULT_NAME, Layout
from .progress import Progress
from .runtime import Runtime, ensure_runtime
from .state import State

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
SUITES = {
    "test-core": debian.CLUSTER,
    "test-cluster": (*debian.CLUSTER, *debian.PODMAN),
    "test-image": (*debian.CLUSTER, *debian.IMAGE),
    "test-differential": (),
}
"""What the tests of each target of the Makefile need, without what fills the cache."""
_MISSING = 2
"""The exit status if the machine lacks a program."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit status, 1 after a message on standard error."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.cluster.harness", description=__doc__, formatter_class=shape)
    commands: dict[str, Callable[[argparse.Namespace], int | None]] = {
        "up": _up,
        "down": _down,
        "status": _status,
        "build": _build,
        "helm": _helm,
        "image": _image,
        "check": _check,
        "packages": _packages,
    }
    parser.add_argument("command", choices=commands)
    parser.add_argument("--name", default=DEFAULT_NAME, help="which cluster, if there are several")
    parser.add_argument("--suite", choices=SUITES, default="test-cluster", help="which tests to check for")
    options = parser.parse_args(arguments)
    try:
        return commands[options.command](options) or 0
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def flag(name: str) -> bool:
    """Returns whether an environment variable is on."""
    value = os.environ.get(name, "").lower()
    if value not in _TRUE + _FALSE:
        raise HarnessError(f"{name}={value}: expected 1 or 0")
    return value in _TRUE


def gates(text: str) -> dict[str, bool]:
    """Reads `Name=true,Other=false`."""
    chosen = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.strip().partition("=")
        if not name.isalnum() or value not in {"true", "false"}:
            raise HarnessError(f"GATES: {item!r}: expected Name=true or Name=false")
        chosen[name] = value == "true"
    return chosen


def _version() -> str:
    return os.environ.get("KUBE_VERSION") or DEFAULT_VERSION


def _progress() -> Progress:
    return Progress(verbose=flag("VERBOSE"))


def _up(options: argparse.Namespace) -> None:
    single = gates(os.environ.get("GATES", ""))
    cluster = Cluster.up(_version(), alpha=flag("ALPHA"), gates=single, name=options.name, progress=_progress())
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(options: argparse.Namespace) -> None:
    take_down(options.name, _progress())


def _build(_options: argparse.Namespace) -> None:
    cache, progress = Cache.from_env(), _progress()
    ensure_runtime(cache, progress)
    print(ensure_kubernetes(cache, Version.parse(_version()), progress))


def _helm(_options: argparse.Namespace) -> None:
    print(ensure_helm(Cache.from_env(), _progress()))


def _image(_options: argparse.Namespace) -> None:
    print(ensure_image(Cache.from_env(), _progress()))


def _status(options: argparse.Namespace) -> int:
    layout = Layout.of(options.name)
    state = State.load(layout.state_file)
    if state is None:
        print(f"cluster {options.name!r} is down")
        return 1
    cluster = Cluster(layout, state, _progress())
    print(f"cluster {options.name!r}: Kubernetes {cluster.version}, gates {cluster.gates}, {cluster.dir}")
    states = cluster.component_states()
    for component, runs in states.items():
        print(f"  {component:18} {f'process {cluster.pid(component)}' if runs else 'does not run'}")
    return 0 if state.ready and all(states.values()) else 1


def _check(options: argparse.Namespace) -> int:
    lacking = debian.missing((*SUITES[options.suite], *_to_fill_the_cache()))
    if not lacking:
        return 0
    print(f"error: {debian.explain(f'make {options.suite}', lacking)}", file=sys.stderr)
    return _MISSING


def _packages(_options: argparse.Namespace) -> None:
    suites = [tool for tools in SUITES.values() for tool in tools]
    everything = (*suites, *debian.TO_DOWNLOAD, *debian.NAMESPACES, *debian.TO_INSTALL)
    print(" ".join(debian.packages(debian.missing(everything))))


def _to_fill_the_cache() -> list[debian.Tool]:
    cache = Cache.from_env()
    build = debian.TO_BUILD if missing_binaries(cache.kube(Version.parse(_version()))) else ()
    download = debian.TO_DOWNLOAD if Runtime.under(cache.runtime).missing() else ()
    return [*build, *download]


def _end(_number: int, _frame: FrameType | None) -> None:
    """Ends as after Ctrl-C, so that a half-started cluster is removed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
