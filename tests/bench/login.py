"""`python -m tests.bench.login`: how long a driver takes to start, and what memory it needs, by the way it logs in.

The same driver is started in turn with a kubeconfig and as in a pod, on an API server with TLS and a token that is part
of this process. A start ends when the kubelet has registered the driver and its device is published.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from dra_sdk.tools.simulator import EmbeddedCluster
from tests.bench import pydriver
from tests.bench.contestants import Contestant, Dirs
from tests.bench.machine import processor

_DRIVER: Final = "bench.dra-sdk.example"
_SETTLE: Final = 2.0  # seconds until what follows a start is over


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds until the device is visible; a little later processor seconds and resident MiB."""

    visible: float
    cpu: float
    rss: float


def main() -> int:
    """Print the medians of both ways."""
    parser = argparse.ArgumentParser("python -m tests.bench.login", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two starts each")
    parser.add_argument("-o", "--output", type=Path, help="also write every start as JSON")
    chosen = parser.parse_args()
    starts = measure(2 if chosen.quick else 11)
    print(f"{processor()}; medians of {len(starts['kubeconfig'])} starts each, after one that is not counted")
    print(f"{'login':<12} {'visible, ms':>12} {'processor, ms':>14} {'resident, MiB':>14}")
    for way, found in starts.items():
        middle = Start(*(median(values) for values in zip(*(asdict(start).values() for start in found), strict=True)))
        print(f"{way:<12} {middle.visible * 1000:>12.0f} {middle.cpu * 1000:>14.0f} {middle.rss:>14.1f}")
    if chosen.output:
        chosen.output.write_text(json.dumps({way: [*map(asdict, found)] for way, found in starts.items()}, indent=2))
    return 0


def measure(times: int) -> dict[str, list[Start]]:
    """So many starts of each way, by turns, after one of each."""
    with (
        tempfile.TemporaryDirectory(prefix="dra-bench-") as directory,
        EmbeddedCluster(tls=True, token="secret") as cluster,
    ):
        ways = _ways(cluster, Path(directory))
        found: dict[str, list[Start]] = {way.label: [] for way in ways}
        for _ in range(times + 1):
            for way in ways:
                found[way.label].append(_start(cluster, way))
    return {label: starts[1:] for label, starts in found.items()}


def _ways(cluster: EmbeddedCluster, root: Path) -> Sequence[Contestant]:
    dirs = Dirs(cluster.registry_dir.parent, cluster.cdi_dir, root / "driver.log")
    server, tls = urlsplit(cluster.server.url), cluster.server.tls
    assert tls is not None
    account = root / "account"
    account.mkdir()
    shutil.copy(tls.ca, account / "ca.crt")
    (account / "token").write_text("secret")
    run = ["run", "tests.bench.pydriver:BenchDriver", f"--node-name={cluster.node_name}"]
    run += [f"--kubelet-dir={dirs.kubelet}", f"--cdi-dir={dirs.cdi}"]
    settings = {pydriver.NAME_VARIABLE: _DRIVER, pydriver.DEVICES_VARIABLE: "1"}
    pod = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
    by_file = [sys.executable, "-m", "dra_sdk.cli.main", *run, f"--kubeconfig={cluster.kubeconfig}"]
    in_pod = [sys.executable, "-m", "tests.bench.pod", str(account), *run]
    return (
        Contestant("kubeconfig", "", _DRIVER, dirs, lambda _: by_file, lambda _: settings),
        Contestant("in a pod", "", _DRIVER, dirs, lambda _: in_pod, lambda _: {**settings, **pod}),
    )


def _start(cluster: EmbeddedCluster, way: Contestant) -> Start:
    running = way.start(1)
    try:
        cluster.wait_slices(_DRIVER)
        visible = time.monotonic() - running.began
        time.sleep(_SETTLE)
        found = Start(visible, running.cpu_seconds(), running.rss_mib())
        running.stop()
    finally:
        running.kill()
    for each in cluster.api.list("resourceslices"):
        cluster.api.delete("resourceslices", each["metadata"]["name"])
    return found


if __name__ == "__main__":
    sys.exit(main())
