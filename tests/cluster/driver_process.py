"""A driver as its own operating system process, acting as its own service account on a real cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.harness import network
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.patience import PATIENCE
from tests.cluster.harness.processes import MARK
from tests.cluster.knobs import Knobs

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT = 90.0
"""Seconds to end in good order: calls under way get 20, threads 5 each, and the machine may be busy."""
KEPT_FOR = 30.0
"""Seconds that the kubelet leaves the slices of a driver alone that it has lost (`defaultWipingDelay` of 1.36)."""
_PORTS = range(10000, 20000)
"""Below those that the kernel and the cluster choose from: a driver's port stays free while the driver is away."""


class DriverUnderTest:
    """`dra-sdk run` on the cluster's node; `name` is the driver's name in the API, `target` what `run` is given.

    Its log and its knobs are in `folder`. Instances of one driver share the knobs; `instance` tells their logs apart.
    """

    def __init__(self, cluster: Cluster, target: str, name: str, folder: Path, instance: str = "") -> None:
        self.cluster, self.target, self.name = cluster, target, name
        self.log = folder / f"{name}{instance and '-'}{instance}.log"
        self.knobs = Knobs(folder / name)
        self.path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{name}"
        self.data = cluster.kubelet_dir / "plugins" / name
        self.process: subprocess.Popen[bytes] | None = None
        self._kubeconfig = _account(cluster)
        self.port = _free_port()
        self._since = 0  # where in the log the last start is
        self._left = float("inf")  # when it was last told to go

    # -- life

    def start(self, *flags: str) -> None:
        command = [
            sys.executable, "-m", "dra_sdk.cli.main", "run", self.target,
            "--kubeconfig", str(self._kubeconfig), "--node-name", self.cluster.node_name,
            "--kubelet-dir", str(self.cluster.kubelet_dir), "--cdi-dir", str(self.cluster.cdi_dir),
            "--http-address", f"127.0.0.1:{self.port}", *flags,
        ]  # fmt: skip
        # With the mark, taking the cluster away ends a driver whose test was killed.
        added = {"PYTHONPATH": str(ROOT), "KNOBS": str(self.knobs.directory), "KNOB_DRIVER": self.name}
        with self.log.open("ab") as log:
            self._since = log.tell()
            environment = {**os.environ, **added, MARK: self.cluster.name}
            self.process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """Ask it to end, as a kubelet does; its exit status."""
        assert self.process is not None
        self._left = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        assert self.process is not None
        self._left = time.monotonic()
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    # -- waiting

    def wait(self, check: Callable[[], object], timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while not check():
            assert self.running(), f"the driver ended: {self.log_text()}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {self.log_text()[-3000:]}"
            time.sleep(0.1)

    def wait_free(self) -> None:
        """Until it holds no claim and has no CDI spec."""
        self.wait(lambda: not self.held() and not self.specs())

    def wait_registered_again(self, before: int) -> None:
        """Until the kubelet has registered it once more than `before` times since its start."""
        self.wait(lambda: self.registrations() > before)

    # -- what can be seen of it

    def log_text(self) -> str:
        return self.log.read_text()

    def ready(self) -> bool:
        """Whether its slices are published and the kubelet has registered it."""
        return bool(self.slices() and self.registrations())

    def registrations(self) -> int:
        """How often the kubelet has registered it since its last start."""
        return self.log_text().encode()[self._since :].count(b"registered with the kubelet")

    def slices(self) -> list[dict[str, Any]]:
        return list(self.cluster.api.get(self.path)["items"])

    def assert_kept(self, before: list[dict[str, Any]]) -> None:
        """Its slices are what they were `before` it went away, and nobody has written them since, nor will.

        Where it was away so long that the kubelet may have taken them, it has published the same again.
        """
        self.wait(lambda: self._sum("dra_sdk_slices_synced{") == 1)
        if time.monotonic() - self._left < KEPT_FOR:
            assert self.slices() == before
            return
        self.wait(lambda: [each["spec"] for each in self.slices()] == [each["spec"] for each in before])

    def published(self, device: str) -> dict[str, Any]:
        """One device as the API server has it."""
        found = [each for piece in self.slices() for each in piece["spec"].get("devices", []) if each["name"] == device]
        return dict(found[0])

    def held(self) -> list[Path]:
        """The state files of claims."""
        return sorted(self.data.glob("claims*/*.json"))

    def specs(self) -> list[Path]:
        return sorted(self.cluster.cdi_dir.glob("*.json"))

    def answered(self, call: str) -> int:
        """How many claims of `prepare` or `unprepare` calls it has answered since its start, with or without error."""
        return self._sum(f'dra_sdk_call_seconds_count{{call="{call}"')

    def _sum(self, wanted: str) -> int:
        """The sum of those of its metrics that begin so."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as page:
            lines = page.read().decode().splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(wanted))


@cache
def _account(cluster: Cluster) -> Path:
    """The account of all drivers of a cluster; its token is good for a day."""
    return cluster.service_account_kubeconfig("dra-sdk", "dra-driver")


def _free_port() -> int:
    return next(port for port in random.sample(_PORTS, 500) if network.is_free("127.0.0.1", port))
