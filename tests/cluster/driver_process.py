"""A driver as a process of its own, with a service account of the real cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.deployed import kubeconfig
from tests.cluster.harness import network
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import MARK
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.knobs import Knobs

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT = 90.0
"""Seconds to stop: running calls get 20, threads 5 each, and the machine may be busy."""
KEPT_FOR = 30.0
"""Seconds after which the kubelet removes the slices of a driver that went away (`defaultWipingDelay` of 1.36)."""
_PORTS = range(10000, 20000)
"""Below the ports that the kernel and the cluster use, so that a driver's port stays free while it does not run."""


class DriverUnderTest:
    """`dra-sdk run` on the cluster's node.

    cluster: the cluster.
    target: the driver, as `dra-sdk run` takes it.
    name: the driver's name in the API.
    log: the file with its log. `instance` is part of its name, if a driver has several instances.
    account: a kubeconfig; None for that of an account of its own, which is installed.
    program: the module that runs it.
    knobs: its knobs, which its instances share.
    path: the path of its slices in the API.
    data: the directory of its state.
    process: its process; None before it was started.
    port: the port of its metrics.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: str,
        name: str,
        folder: Path,
        instance: str = "",
        *,
        account: Path | None = None,
        program: str = "dra_sdk.cli.main",
    ) -> None:
        self.cluster, self.target, self.name = cluster, target, name
        self.log = folder / f"{name}{instance and '-'}{instance}.log"
        self.knobs = Knobs(folder / name)
        self.path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{name}"
        self.data = cluster.kubelet_dir / "plugins" / name
        self.process: subprocess.Popen[bytes] | None = None
        self._kubeconfig = account or kubeconfig(cluster, name)
        self._program = program
        self.port = _free_port()
        self._since = 0  # the position in the log of its last start
        self._left = float("inf")  # when it was last stopped

    # -- life

    def start(self, *flags: str) -> None:
        command = [
            sys.executable, "-m", self._program, "run", self.target,
            "--kubeconfig", str(self._kubeconfig), "--node-name", self.cluster.node_name,
            "--kubelet-dir", str(self.cluster.kubelet_dir), "--cdi-dir", str(self.cluster.cdi_dir),
            "--http-address", f"127.0.0.1:{self.port}", *flags,
        ]  # fmt: skip
        # The mark makes `down` end the driver of a test that was killed.
        modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        added = {"PYTHONPATH": modules, "KNOBS": str(self.knobs.directory), "KNOB_DRIVER": self.name}
        with self.log.open("ab") as log:
            self._since = log.tell()
            environment = {**os.environ, **added, MARK: self.cluster.name}
            self.process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """Ends it with SIGTERM, as the kubelet does; returns its exit status."""
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

    def wait(self, check: Callable[[], object], timeout: float = TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        while not check():
            assert self.running(), f"the driver ended: {self.log_text()}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {self.log_text()[-3000:]}"
            time.sleep(0.1)

    def wait_free(self) -> None:
        """Waits until it holds no claim and has no CDI spec."""
        self.wait(lambda: not self.held() and not self.specs())

    def wait_registered_again(self, before: int) -> None:
        """Waits until the kubelet has registered it more than `before` times since its start."""
        self.wait(lambda: self.registrations() > before)

    # -- state

    def log_text(self) -> str:
        return self.log.read_text()

    def ready(self) -> bool:
        """Returns whether its slices are published and the kubelet has registered it."""
        return bool(self.slices() and self.registrations())

    def registrations(self) -> int:
        """Returns how often the kubelet has registered it since its last start."""
        return self.log_since_start().count("registered with the kubelet")

    def log_since_start(self) -> str:
        """Returns what it has logged since its last start."""
        return self.log.read_bytes()[self._since :].decode()

    def slices(self) -> list[dict[str, Any]]:
        return list(self.cluster.api.get(self.path)["items"])

    def assert_kept(self, before: list[dict[str, Any]]) -> None:
        """Asserts that its slices are those of `before` it went away, unchanged, and that it has nothing to write.

        If it was away so long that the kubelet may have removed them, it must have published the same again.
        """
        self.wait(lambda: self._sum("dra_sdk_slices_synced{") == 1)
        if time.monotonic() - self._left < KEPT_FOR:
            assert self.slices() == before
            return
        self.wait(lambda: [each["spec"] for each in self.slices()] == [each["spec"] for each in before])

    def published(self, device: str) -> dict[str, Any]:
        """Returns one of its devices, as the API server has it."""
        found = [each for piece in self.slices() for each in piece["spec"].get("devices", []) if each["name"] == device]
        return dict(found[0])

    def held(self) -> list[Path]:
        """Returns the state files of the claims that it holds."""
        return sorted(self.data.glob("claims*/*.json"))

    def specs(self) -> list[Path]:
        return sorted(self.cluster.cdi_dir.glob("*.json"))

    def answered(self, call: str) -> int:
        """Returns for how many claims it has answered `prepare` or `unprepare` since its start, errors included."""
        return self._sum(f'dra_sdk_call_seconds_count{{call="{call}"')

    def _sum(self, wanted: str) -> int:
        """Returns the sum of its metrics that begin with these words."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as page:
            lines = page.read().decode().splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(wanted))


def _free_port() -> int:
    return next(port for port in random.sample(_PORTS, 500) if network.is_free("127.0.0.1", port))
