"""A driver in a process of its own, as `dra-sdk run` starts it: to be killed, stopped, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.records import NOTIFY
from tests.faults.lamps import LAMPS
from tests.faults.site import Site
from tests.lamps import NAME

ROOT = Path(__file__).parents[2]


class Outside(Site):
    """A site whose driver is another process; what it logs is in `log`."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, target: str = "tests.faults.lamps:WatchedLamps") -> None:
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
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), LAMPS: str(self.lamps)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment)
        self._started.append(self.process)

    @contextmanager
    def running(self, *flags: str) -> Iterator[None]:
        """Start it, wait until the kubelet knows it, and see that it and all others are dead at the end."""
        before = self.registrations()
        self.start(*flags)
        try:
            self.wait_registered(before + 1)
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
        return self.process.wait(LONG)

    def registrations(self) -> int:
        """How often the kubelet has registered a driver so far, all processes together."""
        calls = self.cluster.kubelet.records.calls(NOTIFY, NAME)
        return sum(bool(each.registered) and not each.error for each in calls)

    def wait_registered(self, times: int) -> None:
        """Until the kubelet has registered drivers so often: what it knows at first may be a process that has ended."""
        self.wait(lambda: self.registrations() >= times)
        self.cluster.kubelet.wait_for_driver(NAME, timeout=LONG)

    def wait_logged(self, text: str) -> None:
        """Until its log has this text."""
        self.wait(lambda: text in self.log.read_text())

    def wait_watching(self) -> None:
        """Until it has connected to the API server and only follows its slices: then it ends at once."""
        self.wait(lambda: self.cluster.server.open_watches)

    def wait(self, check: Callable[[], object]) -> None:
        """Until `check` is true; fails at once, with its log, where the process has ended."""

        def checked() -> object:
            ended = self.process.poll() is not None
            found = check()
            assert found or not ended, f"the driver has ended with {self.process.returncode}: {self.log.read_text()}"
            return found

        wait(checked)
