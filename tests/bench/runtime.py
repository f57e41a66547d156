"""What the benchmarks of NRI share: a driver as a process of its own beside a simulated runtime, and their tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from tests.bench.stats import Pair, compare, quantile

HEAD = f"{'ms':32} {'calls':>6} {'p50':>8} {'p99':>8} {'max':>8}"
_WAIT = 60.0  # seconds


@contextmanager
def running_driver(
    name: str,
    cluster: EmbeddedCluster,
    runtime: NriRuntime,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a driver that is connected to the runtime; it is ended when the context ends."""
    command = [
        sys.executable, "-m", "dra_sdk.cli.main", "run", name, "--node-name", cluster.node_name,
        "--kubeconfig", str(cluster.kubeconfig), "--kubelet-dir", str(cluster.registry_dir.parent),
        "--cdi-dir", str(cluster.cdi_dir), "--nri-socket", str(runtime.path), "--log-level", "error", *arguments,
    ]  # fmt: skip
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}) as driver:
        try:
            wait_connected(runtime)
            yield driver
        finally:
            driver.terminate()


def wait_connected(runtime: NriRuntime) -> None:
    """Wait until the driver is connected to the runtime."""
    if not runtime.wait_plugins(1, _WAIT):
        raise SystemExit(f"the driver has not connected within {_WAIT:g} s")


def print_row(what: str, seconds: Sequence[float]) -> None:
    """Print a row of the table, below `HEAD`."""
    numbers = [1000 * each for each in (median(seconds), quantile(seconds, 0.99), max(seconds))]
    print(f"{what:32} {len(seconds):6} " + " ".join(f"{each:8.2f}" for each in numbers))


def print_comparison(what: str, theirs: str, pairs: Sequence[Pair]) -> None:
    """Print a row of each side, below `HEAD`, and their ratio; `theirs` is the name of the other driver."""
    for label, seconds in zip(("dra_sdk", theirs), zip(*pairs, strict=True), strict=True):
        print_row(f"{what}, {label}", seconds)
    told = compare(pairs)
    p99 = told.p99[0] / told.p99[1]
    print(f"{what}: ratio p50 {told.ratio:.2f} ({told.low:.2f} to {told.high:.2f}), p99 {p99:.2f}")
