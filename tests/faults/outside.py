"""A driver in a process of its own, as `dra-sdk run` starts it: to be killed, stopped, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_sdk.simulator import EmbeddedCluster
from tests.faults import lamps
from tests.faults.site import Site, wait

ROOT = Path(__file__).parents[2]


class Outside(Site):
    """A site whose driver is another process; what it logs is in `log`."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, target: str = "tests.faults.lamps:LampDriver") -> None:
        self.lamps = folder / "lamps"
        self.lamps.mkdir()
        super().__init__(cluster, self.lamps)
        self.log = folder / "log"
        self.target = target
        self.process: subprocess.Popen[bytes]
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *flags: str) -> None:
        """Start it and return at once."""
        command = [
            sys.executable, "-m", "dra_sdk.cli.main", "run", self.target, "--kubeconfig", str(self.cluster.kubeconfig),
            "--node-name", self.cluster.node_name, "--kubelet-dir", str(self.cluster.registry_dir.parent),
            "--cdi-dir", str(self.cluster.cdi_dir), *flags,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), lamps.LAMPS: str(self.lamps)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)
        self._started.append(self.process)

    @contextmanager
    def running(self, *flags: str) -> Iterator[None]:
        """Start it, wait until the kubelet knows it, and see that it and all others are dead at the end."""
        self.start(*flags)
        try:
            self.cluster.kubelet.wait_for_driver(lamps.NAME, timeout=20)
            yield
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for every process that was started."""
        for each in self._started:
            each.kill()
            each.wait()

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def wait_logged(self, text: str) -> None:
        """Until its log has this text."""
        wait(lambda: text in self.log.read_text())
