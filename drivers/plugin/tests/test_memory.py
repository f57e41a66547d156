"""What the bridge needs as a process of its own: memory and threads, at its limits, beyond them, after restarts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from dra_driver_plugin import limits
from dra_driver_plugin.testing import FakePlugin

from dra_sdk.testing.embedded import EmbeddedCluster
from dra_sdk.testing.waiting import wait

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
DEVICES: Final = {f"thing{number}": "Healthy" for number in range(50)}
MIB: Final = 1024  # KiB
LIMIT: Final = 128 * MIB
THREADS: Final = 2 * limits.RESOURCES + 40
"""A thread that follows and one of gRPC for each plugin, and those of any driver."""
_SECONDS: Final = 120.0


@dataclass(frozen=True)
class BridgeProcess:
    """A bridge that runs on a node of its own."""

    cluster: EmbeddedCluster
    pid: int
    log: Path

    def status(self, field: str) -> int:
        """A number of /proc/PID/status: VmRSS and VmHWM in KiB, Threads."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))

    def devices(self) -> list[dict[str, Any]]:
        """The published devices."""
        slices = self.cluster.api.list("resourceslices")
        return [device for published in slices for device in published["spec"].get("devices", ())]


@contextmanager
def running_bridge(tmp_path: Path, directory: Path) -> Iterator[BridgeProcess]:
    with EmbeddedCluster() as cluster:
        arguments = {
            "node-name": cluster.node_name,
            "kubeconfig": cluster.kubeconfig,
            "kubelet-dir": cluster.root / "kubelet",
            "cdi-dir": cluster.cdi_dir,
            "host-root": tmp_path,
        }
        (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
        (tmp_path / "proc/sys/kernel/random/boot_id").write_text("5134cc50-0000-4000-8000-000000000001\n")
        command = [sys.executable, "-m", "dra_sdk.cli", "run", "device-plugin"]
        command += [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        environment = {**os.environ, "DRA_PLUGIN_DIRECTORY": str(directory)}
        log = tmp_path / "log"
        with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=environment) as process:
            try:
                wait((directory / "kubelet.sock").exists, _SECONDS)
                yield BridgeProcess(cluster, process.pid, log)
            finally:
                process.terminate()


def register(plugin: FakePlugin, resource: str) -> None:
    plugin.resource = resource
    plugin.register()


def test_memory_and_threads_at_the_limits_and_beyond(tmp_path: Path, directory: Path) -> None:
    """The figures are those of the documentation: 100 plugins with 5 000 devices need less than 128 MiB."""
    plugin = FakePlugin(directory, DEVICES, threads=limits.RESOURCES + 8)
    with running_bridge(tmp_path, directory) as bridge, plugin:
        for number in range(limits.RESOURCES):
            register(plugin, f"vendor.com/thing-{number}")
        wait(lambda: len(bridge.devices()) == limits.DEVICES, _SECONDS)
        assert bridge.status("VmHWM") < LIMIT
        for number in range(limits.RESOURCES, limits.RESOURCES + 20):
            with pytest.raises(grpc.RpcError, match="is refused: the bridge has 100 resources already"):
                register(plugin, f"vendor.com/thing-{number}")
        for number in range(limits.RESOURCES):
            register(plugin, f"vendor.com/thing-{number}")
        wait(lambda: bridge.status("Threads") <= THREADS, _SECONDS)
        plugin.publish(dict.fromkeys((*DEVICES, "one-more"), "Healthy"))
        wait(lambda: bridge.log.read_text().count("lists too many devices") >= limits.RESOURCES, _SECONDS)
        assert len(bridge.devices()) == limits.DEVICES
        for _ in range(5):
            plugin.stop()
            streams = plugin.streams
            plugin.start()
            wait(lambda before=streams: plugin.streams == before + limits.RESOURCES, _SECONDS)
        assert bridge.status("VmHWM") < LIMIT
        assert bridge.status("Threads") <= THREADS
    assert bridge.log.read_text().count("is refused") == 1


def test_a_list_far_beyond_the_limit_needs_little_memory_and_harms_no_other(tmp_path: Path, directory: Path) -> None:
    many = dict.fromkeys((f"thing{number}" for number in range(60_000)), "Healthy")
    other = FakePlugin(directory, DEVICES, resource="other.com/thing", endpoint="other.sock")
    with running_bridge(tmp_path, directory) as bridge, FakePlugin(directory, many) as plugin, other:
        other.register()
        plugin.register()
        wait(lambda: len(bridge.devices()) == limits.LISTED + len(DEVICES), _SECONDS)
        assert bridge.status("VmHWM") < LIMIT
    assert "vendor.com/thing lists too many devices, and 58000 of them are left out" in bridge.log.read_text()
