"""A driver as on a node, in the process of the test: it publishes over HTTP and serves the kubelet on its sockets.

with running(SerialDriver(), node.root) as cluster:
    assert cluster.kubelet.wait_for_health("serial.example.com", cluster.node_name, "ttyusb0", "Healthy")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster

__all__ = ["AllocatedDevice", "EmbeddedCluster", "running"]


@contextmanager
def running(plugin: object, host_root: Path) -> Iterator[EmbeddedCluster]:
    """Run a driver until the block ends, and yield its cluster once the kubelet has registered it.

    plugin: an instance of the driver's class. The node of the cluster has its own name,
        `cluster.node_name`; `host_root` has its files.
    """
    driver = Driver.of(plugin)
    with EmbeddedCluster() as cluster:
        settings = Settings(
            node_name=cluster.node_name,
            kubeconfig=cluster.kubeconfig,
            kubelet_dir=cluster.root / "kubelet",
            cdi_dir=cluster.cdi_dir,
            host_root=host_root,
        )
        with DriverProcess(driver, settings):
            cluster.kubelet.wait_for_driver(driver.info.name)
            yield cluster
