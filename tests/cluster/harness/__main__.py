"""`python -m tests.cluster.harness up|down|status|build`; the environment says which Kubernetes.

KUBE_VERSION   1.<minor>.<patch>, 1.36.3 if not set
ALPHA=1        all alpha feature gates on
GATES          single gates, `Name=true,Other=false`
DRA_SDK_CACHE  where binaries are kept, ~/.cache/dra-sdk if not set
VERBOSE=1      print each package built and each command line
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from .build import ensure_kubernetes
from .cache import DEFAULT_VERSION, Cache, Version
from .cluster import Cluster, take_down
from .errors import HarnessError
from .layout import DEFAULT_NAME, Layout
from .progress import Progress
from .runtime import ensure_runtime
from .state import State

if TYPE_CHECKING:
    from types import FrameType

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 after saying on standard error what went wrong."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.cluster.harness", description=__doc__, formatter_class=shape)
    parser.add_argument("command", choices=("up", "down", "status", "build"))
    parser.add_argument("--name", default=DEFAULT_NAME, help="which cluster, if there are several")
    options = parser.parse_args(arguments)
    try:
        progress = Progress(verbose=flag("VERBOSE"))
        commands = {"up": _up, "down": take_down, "status": _status, "build": _build}
        return commands[options.command](options.name, progress) or 0
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def flag(name: str) -> bool:
    """Reads an environment variable that is on or off."""
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


def _up(name: str, progress: Progress) -> None:
    version = os.environ.get("KUBE_VERSION") or DEFAULT_VERSION
    single = gates(os.environ.get("GATES", ""))
    cluster = Cluster.up(version, alpha=flag("ALPHA"), gates=single, name=name, progress=progress)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _build(_name: str, progress: Progress) -> None:
    cache, version = Cache.from_env(), Version.parse(os.environ.get("KUBE_VERSION") or DEFAULT_VERSION)
    ensure_runtime(cache, progress)
    print(ensure_kubernetes(cache, version, progress))


def _status(name: str, progress: Progress) -> int:
    """Prints what runs; 0 when the cluster is whole."""
    layout = Layout.of(name)
    state = State.load(layout.state_file)
    if state is None:
        print(f"cluster {name!r} is down")
        return 1
    cluster = Cluster(layout, state, progress)
    print(f"cluster {name!r}: Kubernetes {cluster.version}, gates {cluster.gates}, {cluster.dir}")
    states = cluster.component_states()
    for component, runs in states.items():
        print(f"  {component:18} {f'process {cluster.pid(component)}' if runs else 'does not run'}")
    return 0 if state.ready and all(states.values()) else 1


def _end(_number: int, _frame: FrameType | None) -> None:
    """Ends as after Ctrl-C, so that a half-started cluster is taken away."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
