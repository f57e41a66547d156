"""A release of the chart with the image of the drivers: what is in its pods comes from the image alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from dra_sdk.tools.manifests import Chart, Manifest
from tests.cluster.deployed import chart_values
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.driver_image import REPOSITORY
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.pods import JSON

NAMESPACE: Final = "of-image"
NAME: Final = "of-image"
PYTHON: Final = "/opt/dra-sdk/bin/python3"
CLASSES: Final = {"cpu": "image-cpus", "memory": "image-memory"}
"""DeviceClasses by the key of the driver. Each driver has a directory of its own for CDI specs."""


def driver_name(key: str) -> str:
    return f"dra.{key}"


def values(cluster: Cluster, tag: str) -> JSON:
    """Returns the values of a release with the drivers for CPUs and memory, whose image has this tag."""
    shared = [{"path": "/sys/fs/cgroup", "access": "ReadWrite"}]
    manager = [{"path": str(cluster.kubelet_dir / "cpu_manager_state"), "type": "File"}]
    drivers = {
        key: {
            "enabled": True,
            "cdiDir": str(cdi_dir(cluster, key)),
            "hostPaths": shared + (manager if key == "cpu" else []),
            "deviceClasses": [{"name": CLASSES[key], "expression": _devices(key)}],
        }
        for key in OWN_CDI_DIRS
    }
    return chart_values(cluster, REPOSITORY, tag, drivers)


def _devices(key: str) -> str:
    name = driver_name(key)
    return f'device.driver == "{name}"' + (f' && !device.attributes["{name}"].hugeTLB' if key == "memory" else "")


def cdi_dir(cluster: Cluster, key: str) -> Path:
    """Returns the directory for CDI specs of one driver."""
    return cluster.dir / "cdi-drivers" / key


class Release:
    """What `dra-sdk manifests` prints for these drivers, which is what Helm installs, on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def put(self, tag: str) -> None:
        """Installs it with this tag of the image, or upgrades it to that."""
        self._cluster.apply(*(each.text for each in self._objects(tag)))

    def remove(self) -> None:
        """Deletes every object that it has made, and waits until they are gone."""
        texts = "".join(f"---\n{each.text}\n" for each in self._objects("one"))
        self._cluster.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", input=texts)

    def _objects(self, tag: str) -> list[Manifest]:
        return Chart().render(values(self._cluster, tag), release=NAME, namespace=NAMESPACE)

    def pod(self, key: str) -> JSON:
        """Returns the pod of a driver, the newest if there are two."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Ddra-{key}"
        found = sorted(
            self._cluster.api.get(path)["items"], key=lambda each: str(each["metadata"]["creationTimestamp"])
        )
        return dict(found[-1])

    def wait_rolled_out(self, *keys: str) -> None:
        """Waits until each pod of these drivers is that of the newest values, and ready."""
        for key in keys or OWN_CDI_DIRS:
            where = (f"daemonset/dra-{key}", f"--namespace={NAMESPACE}", f"--timeout={TIMEOUT:.0f}s")
            self._cluster.kubectl("rollout", "status", *where)

    def run_inside(self, key: str, code: str, *arguments: str) -> Any:
        """Runs Python code of a test in the pod of a driver, with the image's Python; returns the JSON it prints."""
        name = self.pod(key)["metadata"]["name"]
        command = ["exec", f"--namespace={NAMESPACE}", name, "--", PYTHON, "-c", code, *arguments]
        return json.loads(self._cluster.kubectl(*command))
