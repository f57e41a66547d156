"""A driver as its own operating system process, acting as its own service account on a real cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.harness.cluster import Cluster
from tests.cluster.knobs import Knobs

ROOT = Path(__file__).parents[2]


class DriverUnderTest:
    """`dra-sdk run` on the cluster's node; `name` is the driver's name in the API, `target` what `run` is given.

    Its log and its knobs are in `folder`. Instances of one driver share the knobs; `instance` tells their logs apart.
    """

    def __init__(self, cluster: Cluster, target: str, name: str, folder: Path, instance: str = "") -> None:
        self.cluster, self.target, self.name = cluster, target, name
        self.log = folder / f"{name}{instance and '-'}{instance}.log"
        self.knobs = Knobs(folder / name)
        self.data = cluster.kubelet_dir / "plugins" / name
        self.process: subprocess.Popen[bytes] | None = None
        self._kubeconfig = cluster.service_account_kubeconfig("dra-sdk", "dra-driver")
        self._port = _free_port()
        self._since = 0  # where in the log the last start is

    # -- life

    def start(self, *flags: str) -> None:
        command = [
            sys.executable, "-m", "dra_sdk.cli.main", "run", self.target,
            "--kubeconfig", str(self._kubeconfig), "--node-name", self.cluster.node_name,
            "--kubelet-dir", str(self.cluster.kubelet_dir), "--cdi-dir", str(self.cluster.cdi_dir),
            "--http-address", f"127.0.0.1:{self._port}", *flags,
        ]  # fmt: skip
        knobs = {"KNOBS": str(self.knobs.directory), "KNOB_DRIVER": self.name}
        with self.log.open("ab") as log:
            self._since = log.tell()
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **knobs}
            self.process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout: float = 40.0) -> int:
        """Ask it to end, as a kubelet does; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    # -- waiting

    def wait(self, check: Callable[[], object], timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while not check():
            assert self.running(), f"the driver ended: {self.log_text()}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {self.log_text()[-3000:]}"
            time.sleep(0.1)

    def wait_free(self, timeout: float = 60.0) -> None:
        """Until it holds no claim and has no CDI spec."""
        self.wait(lambda: not self.held() and not self.specs(), timeout)

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
        path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{self.name}"
        return list(self.cluster.api.get(path)["items"])

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
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as page:
            lines = page.read().decode().splitlines()
        wanted = f'dra_sdk_call_seconds_count{{call="{call}"'
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(wanted))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
